/* model.h: `ordo model`: what its parts share. */
#ifndef CLI_MODEL_H
#define CLI_MODEL_H

#include "kit/message.h"
#include "kit/report.h"
#include "ordo/lab/model.h"

enum { CLI_MODEL_COMMON = 6, CLI_MODEL_BLOCK = 15 };

/* Options of every part: the machine, its calibration and changes. */
typedef struct cli_model_args {
    const char *machine_name;
    int calibration; /* -1: not given */
    int state;       /* -1: not given; 0 steady, 1 burst */
    bool waves;
    cli_words set;
    cli_json_target json;

    ordo_machine *machine;
    ordo_model *model;
    cli_option options[CLI_MODEL_COMMON];
} cli_model_args;

/* Options for a transformer block. */
typedef struct cli_block_args {
    int precision, generator, overlap;
    int64_t batch, seq, embed, head_dim, kv_heads, rounds, bits;
    int64_t segments, tensor_parallel, sequence_parallel;
    bool causal, backward;
    cli_option options[CLI_MODEL_BLOCK];
} cli_block_args;

cli_section cli_model_section(cli_model_args *args);
cli_section cli_block_section(cli_block_args *args);

/* Each prints its error and returns an exit status. */

/* Load the machine and make args->model, without the changes of --set. `paper` says which
 * calibration holds if none was named. */
int cli_model_open(cli_model_args *args, bool paper);
void cli_model_free(cli_model_args *args);

/* Make one more model of the same machine, calibration and state, without the changes of --set. */
int cli_model_create(const cli_model_args *args, ordo_model **model);

/* Apply one change, "name=value" or "name=2x"; all changes of --set. */
int cli_model_apply(ordo_model *model, const char *change);
int cli_model_apply_set(const cli_model_args *args, ordo_model *model);

/* The value of a constant; NAN if there is none of that name. */
double cli_model_constant(const ordo_model *model, const char *name);

/* cli_model_open() and cli_model_apply_set(). */
int cli_model_finish(cli_model_args *args, bool paper);

ordo_block cli_block_of(const cli_block_args *args);

/* The precision of a block's products, and of its attention where that is another. */
const char *cli_block_precision(const cli_model_args *model, const cli_block_args *block);

/* The paper's setting: 32 bits per element, compared one by one. */
bool cli_block_is_paper(const cli_block_args *args);

/* Print what a part found, or write it as JSON on request: the name of the part,
 * machine, calibration and changes, then the fields. */
int cli_model_show(const cli_model_args *args, const char *part, void (*print)(const void *what),
                   cli_fields *fields, const void *what);

/* One kernel's limiters as a JSON object, those without work left out. */
void cli_limiters_json(cli_json *json, const char *key, const ordo_kernel_time *time);

/* The parts: each takes what follows its name. */
int cli_model_block(int argc, char **argv);
int cli_model_what_if(int argc, char **argv);
int cli_model_kernel(int argc, char **argv);
int cli_model_grid(int argc, char **argv);
int cli_model_report(int argc, char **argv);
int cli_model_validate(int argc, char **argv);
int cli_model_overlap(int argc, char **argv);
int cli_model_constants(int argc, char **argv);

#endif
