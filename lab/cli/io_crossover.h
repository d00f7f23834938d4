/* io_crossover.h: `ordo io --crossover`: the forms of the backward pass over head size. */
#ifndef CLI_IO_CROSSOVER_H
#define CLI_IO_CROSSOVER_H

#include "kit/report.h"
#include "ordo/lab/io.h"

enum { CLI_FORM_FLASH, CLI_FORM_APART, CLI_FORM_PHASE, CLI_FORMS };
enum {
    CLI_CROSSOVER_FIRST = 128,
    CLI_CROSSOVER_LAST = 576,
    CLI_CROSSOVER_STEP = 32,
    CLI_CROSSOVER_ROWS = (CLI_CROSSOVER_LAST - CLI_CROSSOVER_FIRST) / CLI_CROSSOVER_STEP + 1
};

/* One head size. Bytes per score by the model, and those that hardware counted; rates in flop/s at
 * most, and those measured. NAN if not known. */
typedef struct cli_crossover_row {
    int64_t head_dim;
    double bytes[CLI_FORMS], counted[CLI_FORMS];
    double most[CLI_FORMS], measured[CLI_FORMS];
    ordo_io_algorithm fewest, used;
    bool chained; /* phase runs in chains */
} cli_crossover_row;

/* The least head sizes at which phase is ahead of flash: of those at which it runs in chains, and
 * of those above, where it has separate kernels; 0: none. */
typedef struct cli_ahead {
    int64_t chains, separate;
} cli_ahead;

typedef struct cli_crossover {
    const char *title;              /* title of the machine */
    const char *measured, *counted; /* the files, or NULL */
    cli_crossover_row rows[CLI_CROSSOVER_ROWS];
    int64_t chains_last; /* the largest head size at which phase runs in chains */
    cli_ahead by_bytes, by_rate;
} cli_crossover;

extern const char *const cli_form_names[CLI_FORMS];

/* `crossover` is a cli_crossover. */
void cli_crossover_svg(FILE *out, const void *crossover);

#endif
