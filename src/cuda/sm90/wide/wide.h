/* sm90/wide/wide.h: what the two kernels of the backward pass for head sizes 129 to 256 share:
 * arguments and tile scheduler. D is the columns of queries and keys that an instance has, DV those
 * of values and outputs.
 *
 * Each kernel owns what it writes, so there are no turns, and any grid gives the same bits:
 *   sm90/wide/keys.h      dK and dV of 64 keys of a key head
 *   sm90/wide/queries.h   dQ of 128 queries of a query head */
#ifndef CUDA_SM90_WIDE_WIDE_H
#define CUDA_SM90_WIDE_WIDE_H

#include <cuda.h>

#include "cuda/sm90/tile64.h"
#include "cuda/tile/keep_inside.h"

typedef struct ordo_wide_args {
    CUtensorMap q, dout, k, v;
    ordo_run run; /* heads and order; lengths and band are each sequence's own */
    ordo_cuda_batch batch;
    ordo_cuda_tensor dq, dk, dv;
    int32_t head_dim, v_head_dim;
    int32_t key_section, query_section; /* heads whose units are taken together */
    ordo_score_rule rule;
    const float *slopes;
    int64_t slopes_sequence;
    float out_scale, keep_scale; /* of dK and dQ; of dV: dropout only */
    const uint32_t *keep_bits;
    ordo_keep_maker maker;
    const float *lse2, *delta;
    int32_t *key_ticket, *query_ticket, *flag;
    ordo_cuda_carry carry;
    int64_t kv_rows;
    CUtensorMap dk_sums, dv_sums; /* carried in: whole tiles of keys */
} ordo_wide_args;

/* Instances of the two kernels, one file each. */
typedef struct ordo_wide_kernel {
    const void *kernel;
    unsigned shared_bytes;
} ordo_wide_kernel;

ordo_wide_kernel ordo_wide_keys(const ordo_cuda_pass *pass);
ordo_wide_kernel ordo_wide_queries(const ordo_cuda_pass *pass);
ordo_wide_kernel ordo_wide_keys_192(const ordo_cuda_pass *pass);
ordo_wide_kernel ordo_wide_queries_192(const ordo_cuda_pass *pass);

/* ---- units ---- */

typedef struct wide_unit {
    int32_t tile, head; /* tile: of one head, over all sequences */
} wide_unit;

/* The tile scheduler: sections of heads whose operands fit the cache; in each, tile after tile,
 * every head of a tile. */
ORDO_HD wide_unit wide_issue(int32_t heads, int32_t section, int32_t tiles, int64_t ticket)
{
    const int32_t begin = (int32_t)(ticket / ((int64_t)section * tiles)) * section;
    const int32_t count = ordo_min32(section, heads - begin);
    const int64_t rest = ticket - (int64_t)begin * tiles;
    const wide_unit unit = { (int32_t)(rest / count), begin + (int32_t)(rest % count) };
    return unit;
}

/* ALiBi's slope of a query head; 0 without ALiBi. */
ORDO_DEVICE float wide_slope(const ordo_wide_args &args, int sequence, int head)
{
    return args.slopes ? args.slopes[sequence * args.slopes_sequence + head] : 0.0f;
}

/* ---- dropout ---- */

/* The words of a block of 16 rows x 128 columns. */
ORDO_DEVICE const uint32_t *wide_keep_at(const ordo_wide_args &args, int64_t block)
{
    return args.keep_bits + block * 64;
}

#endif
