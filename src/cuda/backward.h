/* backward.h: arguments of the backward kernels. */
#ifndef CUDA_BACKWARD_H
#define CUDA_BACKWARD_H

#include <cuda.h>

#include "cuda/pass.h"

typedef struct ordo_backward_args {
    CUtensorMap q, dout, k, v, dk, dv;
    ordo_run run;
    int64_t first_class; /* tickets of the heads issued first: the others come after */
    int64_t units;
    int32_t q_tiles; /* of one head */
    float scale_log2;
    float out_scale, keep_scale; /* of dK and dQ; of dV: dropout only */
    const uint32_t *keep_bits;
    int64_t keep_line; /* words from sixteen rows to the next */
    const float *lse2, *delta;
    float *dq_sum;
    int32_t *turns, *ticket;
} ordo_backward_args;

#endif
