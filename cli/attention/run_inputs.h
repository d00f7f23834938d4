/* run_inputs.h: inputs of a run read from files, and outputs written to files. */
#ifndef CLI_RUN_INPUTS_H
#define CLI_RUN_INPUTS_H

#include "kit/array.h"
#include "kit/problem_args.h"
#include "kit/tensors.h"

enum { CLI_INPUT_Q, CLI_INPUT_K, CLI_INPUT_V, CLI_INPUT_DOUT, CLI_INPUTS };
enum { CLI_INPUT_OPTIONS = 7 };

typedef struct cli_inputs {
    const char *paths[CLI_INPUTS], *input, *out_dir, *save;
    cli_array arrays[CLI_INPUTS]; /* path NULL: seeded */
    cli_option options[CLI_INPUT_OPTIONS];
} cli_inputs;

cli_section cli_inputs_section(cli_inputs *inputs);

/* Each prints its error and returns an exit status. */

/* Read the headers. Sizes and type that the command line does not give are taken from the files; a
 * contradiction is an error that names both sides. To be called before cli_problem_finish(). */
int cli_inputs_open(cli_inputs *inputs, cli_problem *words);

/* Replace the seeded elements by those of the files; checks the shapes once more, against the
 * problem itself. */
int cli_inputs_load(const cli_inputs *inputs, const cli_tensors *tensors);

/* Whether the folder of --out-dir could be written now; leaves no trace. */
int cli_outputs_check(const cli_inputs *inputs);

/* Write DIR/o.npy and so on, each whole or not at all; bf16 as '<u2'. With --save all tensors go to
 * one file, with the line of the plan and what else decides the bits. */
int cli_outputs_save(const cli_inputs *inputs, const cli_tensors *tensors,
                     const bool has[CLI_OUTPUTS], char *line, uint64_t seed, uint64_t offset);

#endif
