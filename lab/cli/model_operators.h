/* model_operators.h: a list of kernels, from a JSON file or a preset. */
#ifndef CLI_MODEL_OPERATORS_H
#define CLI_MODEL_OPERATORS_H

#include "ordo/lab/model.h"

enum { CLI_OPERATOR_NAME = 32, CLI_OPERATOR_AFTER = 8 };

typedef struct cli_operators {
    size_t count;
    ordo_operator list[ORDO_OPERATORS_MOST];
    char name[ORDO_OPERATORS_MOST][CLI_OPERATOR_NAME];
    char kind[ORDO_OPERATORS_MOST][CLI_OPERATOR_NAME];
    char waits[ORDO_OPERATORS_MOST][CLI_OPERATOR_AFTER][CLI_OPERATOR_NAME]; /* names */
    int64_t after[ORDO_OPERATORS_MOST][CLI_OPERATOR_AFTER];
} cli_operators;

/* What can be requested of a preset. */
typedef struct cli_preset_args {
    const char *name;
    int precision, generator;
    int64_t batch, seq, tensor_parallel, rounds, bits;
    bool causal;
} cli_preset_args;

/* Each prints its error and returns an exit status. */

/* Read a file, "-" for standard input. */
int cli_operators_read(cli_operators *operators, const char *path);

/* One layer of a model in steady state, from the projection after the attention of the layer
 * before to the attention of this one. */
int cli_operators_preset(cli_operators *operators, const cli_preset_args *args);

#endif
