/* model_block.h: a priced block, for people and as JSON. */
#ifndef CLI_MODEL_BLOCK_H
#define CLI_MODEL_BLOCK_H

#include "lab/model.h"

typedef struct cli_priced_block {
    const cli_model_args *model;
    const cli_block_args *args;
    ordo_block_report report;
} cli_priced_block;

extern const char *const cli_gemm_names[ORDO_BLOCK_GEMMS];

/* `priced` is a cli_priced_block. */
void cli_block_text(const void *priced);
void cli_block_fields(cli_json *json, const void *priced);

/* "overlapped: 2.3 % faster than fused" and what follows from it. */
void cli_block_advice(const cli_priced_block *priced, char *text, size_t capacity);

#endif
