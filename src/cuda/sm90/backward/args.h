/* sm90/backward/args.h: arguments of the backward kernels. */
#ifndef CUDA_SM90_BACKWARD_ARGS_H
#define CUDA_SM90_BACKWARD_ARGS_H

#include <cuda.h>

#include "cuda/pass/pass.h"
#include "cuda/tile/keep_inside.h"
#include "cuda/tile/score.h"

/* Dense passes prefetch the sums of dV, and of dK, that a chain takes in, in so many pieces. */
enum { ORDO_SUMS_PIECES = 4 };

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

    ordo_cuda_carry carry; /* dk_rows.data NULL: neither dK nor dV */
    int64_t kv_rows;
    CUtensorMap dk_sums, dv_sums; /* carried in: tiles of keys, or pieces */

    /* Varlen passes. */
    ordo_cuda_batch batch;
    ordo_cuda_tensor dk_rows, dv_rows; /* for tiles that are not whole */
    int32_t head_dim, v_head_dim;
    bool ruled; /* scale_log2 then applies to what the rule gives */
    ordo_score_rule rule;
    const float *slopes;
    int64_t slopes_sequence;
    ordo_keep_maker maker;
    ordo_cuda_block_mask blocks;
} ordo_backward_args;

#endif
