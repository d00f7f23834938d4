/* model_block.h: a priced block, for people and as JSON. */
#ifndef CLI_MODEL_BLOCK_H
#define CLI_MODEL_BLOCK_H

#include "cli/model.h"
#include "cli/model_times.h"

typedef struct cli_priced_block {
    const cli_model_args *model;
    const cli_block_args *args;
    ordo_block_report report;
    const char *file; /* file of measured times, or NULL */
    cli_block_times measured;
    double noise; /* noise of the model */
} cli_priced_block;

extern const char *const cli_gemm_names[ORDO_BLOCK_GEMMS];

/* The ways to train a block, as the reports name them. */
typedef struct cli_training_way {
    const char *key, *name;
    size_t at; /* offset of its seconds in ordo_training */
} cli_training_way;
enum {
    CLI_TRAIN_NONE,
    CLI_TRAIN_SEQUENTIAL_KEEP,
    CLI_TRAIN_SEQUENTIAL_REGENERATE,
    CLI_TRAIN_FUSED,
    CLI_TRAIN_OVERLAPPED_KEEP,
    CLI_TRAIN_OVERLAPPED_REGENERATE,
    CLI_TRAIN_PIPELINED,
    CLI_TRAINING_WAYS
};
extern const cli_training_way cli_training_ways[CLI_TRAINING_WAYS];
double cli_training_seconds(const ordo_training *training, int way);

/* `priced` is a cli_priced_block. */
void cli_block_text(const void *priced);
void cli_block_fields(cli_json *json, const void *priced);

/* "overlapped: 2.3 % faster than fused" and what follows from it. */
void cli_block_advice(const cli_priced_block *priced, char *text, size_t capacity);

#endif
