/* forward.h: units of the forward pass and the order in which blocks take them. Plain C; changes
 * no bit: a unit is a tile of queries of one head, and adds into nobody else's rows. */
#ifndef CUDA_FORWARD_H
#define CUDA_FORWARD_H

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda/forward_order.h"
#include "cuda/pass.h"

typedef struct ordo_forward_args {
    CUtensorMap q, k, v, o;
    ordo_forward_issue_order issue;
    int32_t units, group_heads;
    float scale, scale_log2, keep_scale;
    const uint2 *keep_bits; /* dropout: of rows r and r + 8, a lane each */
    float *lse;
    int32_t *ticket;
} ordo_forward_args;

#endif
