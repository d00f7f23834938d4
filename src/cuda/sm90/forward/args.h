/* sm90/forward/args.h: arguments of the forward kernels, and what an instance is. */
#ifndef CUDA_SM90_FORWARD_ARGS_H
#define CUDA_SM90_FORWARD_ARGS_H

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda/pass/blocks.h"
#include "cuda/pass/forward_order.h"
#include "cuda/pass/keep_tile.h"
#include "cuda/tile/keep_inside.h"
#include "cuda/tile/score.h"
#include "ordo/status.h"

typedef struct ordo_forward_args {
    CUtensorMap q, k, v, o;
    ordo_forward_issue_order issue;
    int32_t units, group_heads;
    float scale, scale_log2, keep_scale;
    const uint2 *keep_bits; /* dropout: the words of rows r and r + 8, one pair per lane */
    float *lse;
    int32_t *ticket;
    ordo_cuda_batch batch;
    /* Read by the varlen kernel only. */
    ordo_cuda_tensor rows; /* o, for tiles that are stored row by row */
    int32_t chunks;        /* of 8 columns, in one row of it */
    ordo_score_rule rule;
    bool ruled; /* `scale` and `scale_log2` then apply to what the rule gives */
    const float *slopes;
    int64_t slopes_sequence;
    const float *sink; /* one logit per query head, or NULL */
    /* Read if ORDO_KEEP_MADE. */
    ordo_keep_maker maker;
    /* Read by the kernel for block masks only. */
    ordo_cuda_block_mask blocks;
    int32_t backward_rows; /* of the query tiles that the table of sequences counts */
    /* Read by the dense kernel if ORDO_KEEP_MADE. */
    ordo_keep_select select;
} ordo_forward_args;

/* What happens to scores before the softmax. */
typedef enum ordo_forward_rule {
    ORDO_RULE_ANY,      /* `ruled` and `rule` say it at run time: the varlen kernel */
    ORDO_RULE_NONE,     /* nothing */
    ORDO_RULE_CAP,      /* softcap alone */
    ORDO_RULE_DISTANCE, /* ALiBi alone, with a scale of which rule.h leaves scores as they are */
} ordo_forward_rule;

/* A kernel and its launch parameters. */
typedef struct ordo_forward_instance {
    const void *kernel;
    int32_t rows, columns; /* of its tiles */
    unsigned threads, shared_bytes;
} ordo_forward_instance;

#endif
