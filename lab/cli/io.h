/* io.h: what the files of `ordo io` share. */
#ifndef CLI_IO_H
#define CLI_IO_H

#include "kit/report.h"
#include "ordo/lab/io.h"
#include "ordo/ordo.h"

/* One algorithm at one size of fast memory. */
typedef struct cli_io_row {
    ordo_io_problem problem;
    ordo_io_algorithm algorithm;
    ordo_status status; /* status of the request; `why` if it failed */
    char why[256];
    bool counted; /* loads and stores were counted in a run, not only predicted */
    ordo_io_report report;
    ordo_io_words predicted;
    ordo_io_tiles tiles;
    ordo_io_bound bound;
    const char *model;   /* "explicit", "lru", ... */
    ordo_io_words inner; /* --outer: what crosses the first level; else 0 */
    double sparse;       /* --sparse: the form of sparse Q and K; else 0 */
    double budget;       /* caches: tiles are for budget M; 0 = M */
} cli_io_row;

/* Give the problem the blocks of `block` (0: 128) rows and columns in which the mask that `text`
 * names shows something (kit/block_mask.h): each is then visible as a whole. free() releases
 * `blocks`. Prints its error and returns an exit status. */
int cli_io_blocks(const char *text, int64_t block, ordo_io_problem *problem, uint8_t **blocks);

/* Words moved: counted if there was a run, else predicted. */
double cli_io_total(const cli_io_row *row);

/* Prints its error and returns an exit status. */
int cli_io_show(const cli_json_target *target, const cli_io_row *rows, size_t count, bool sweep);

/* Log-log plot of all rows of a sweep, with their bounds and the crossover; or of their words as
 * multiples of the best bound. */
void cli_io_plot(FILE *out, const cli_io_row *rows, size_t count, bool ratio);

/* `ordo io --devices`: memory levels of machines, and the byte model where it applies. */
int cli_io_devices(const char *machine, const cli_json_target *json);

/* `ordo io --crossover`: the forms of the backward pass over head size, predicted and measured. */
typedef struct cli_crossover_request {
    const char *machine;            /* NULL: h200 */
    const char *measured, *counted; /* files of rates and of bytes, or NULL */
    const char *svg;                /* NULL: no drawing */
} cli_crossover_request;
int cli_io_crossover(const cli_crossover_request *request, const cli_json_target *json);

/* `ordo io --hbm`: bytes of HBM of one pass, by the kernels of a form. */
typedef struct cli_hbm_request {
    const char *machine; /* NULL: h200 */
    ordo_problem problem;
    ordo_io_pass pass;
    ordo_io_algorithm form; /* ORDO_IO_BEST: the one that ordo uses */
    const char *plan;       /* a plan's line, in the place of problem, pass and form; or NULL */
} cli_hbm_request;
int cli_io_hbm(const cli_hbm_request *request, const cli_json_target *json);

#endif
