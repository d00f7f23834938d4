/* sm90/backward/args.h: arguments of the backward kernels. */
#ifndef CUDA_SM90_BACKWARD_ARGS_H
#define CUDA_SM90_BACKWARD_ARGS_H

#include <cuda.h>

#include "cuda/support/common.h"

/* Dense passes prefetch the sums of dV, and of dK, that a chain takes in, in so many pieces. */
enum { ORDO_SUMS_PIECES = 4 };

typedef struct ordo_backward_args {
    CUtensorMap q, dout, k, v, dk, dv;
    ordo_run run;
    int64_t first_class; /* tickets of the heads issued first: the others come after */
    int64_t units;
    int32_t q_tiles;   /* of one head */
    float out_scale;   /* of dK and dQ */
    int64_t keep_line; /* words from sixteen rows to the next */
    const float *lse2, *delta;
    float *dq_sum;
    int32_t *turns;

    ordo_cuda_carry carry; /* out[0].data NULL: neither dK nor dV */
    int64_t kv_rows;
    CUtensorMap dk_sums, dv_sums; /* carried in: tiles of keys, or pieces */

    ordo_pass_common all;
} ordo_backward_args;

/* A kernel, its tiles, and its launch parameters. */
typedef struct ordo_backward_instance {
    const void *kernel;
    int32_t rows, keys;
    unsigned threads, shared_bytes;
} ordo_backward_instance;

#endif
