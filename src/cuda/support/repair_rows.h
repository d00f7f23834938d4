/* support/repair_rows.h: what both repairs share. One warp repairs a row: each lane computes one
 * score, 32 at a time; then the lanes share the columns of the row that is summed, in ascending
 * order, in f64 as in the definition. */
#ifndef CUDA_SUPPORT_REPAIR_ROWS_H
#define CUDA_SUPPORT_REPAIR_ROWS_H

#include <math.h>

#include "base/half.h"
#include "cuda/support/around.h"
#include "cuda/support/launch.h"
#include "cuda/support/sequences.h"
#include "cuda/tile/bias.h"
#include "cuda/tile/keep_inside.h"
#include "cuda/tile/ptx.h"

enum { WARPS = 8, THREADS = 32 * WARPS, MOST = 576, EACH = MOST / 32 /* columns per lane */ };

/* One head of one sequence, and which of its rows or keys a warp repairs. */
typedef struct head_place {
    const ordo_cuda_pass &pass;
    ordo_cuda_sequence s;
    int32_t b, head; /* head: a query head, or of keys */
    int lane;
} head_place;

ORDO_DEVICE int32_t heads_of(const ordo_cuda_pass &pass)
{
    return pass.run.kv_heads * pass.run.group_heads;
}

/* Row 0 of a head in a tensor of queries or of keys. */
ORDO_DEVICE uint16_t *query_rows(const head_place &at, const ordo_cuda_tensor &x, int32_t head)
{
    return (uint16_t *)x.data + at.s.batch * x.sequence + head * x.head + at.s.q_row * x.row;
}

ORDO_DEVICE uint16_t *key_rows(const head_place &at, const ordo_cuda_tensor &x, int32_t head)
{
    return (uint16_t *)x.data + at.s.batch * x.sequence + head * x.head + at.s.kv_row * x.row;
}

ORDO_DEVICE int64_t lse_place(const head_place &at, int32_t head)
{
    return at.s.lse + head * at.pass.batch.lse_head;
}

/* ---- rows: a lane has the pairs of columns lane, lane + 32, .. of them ---- */

/* Whether a row holds NaN or infinity. It was written by the kernel before: not from L1. */
template <bool F16> ORDO_DEVICE bool broken(const head_place &at, const uint16_t *row, int columns)
{
    uint32_t taint = 0;
    for (int pair = at.lane; pair < columns / 2; pair += 32)
        taint = not_finite<F16>(taint, __ldcg((const uint32_t *)row + pair));
    return __any_sync(~0u, taint != 0);
}

template <bool F16> ORDO_DEVICE uint32_t half_of(double x)
{
    return F16 ? ordo_f16_from_f64(x) : ordo_bf16_from_f64(x);
}

template <bool F16>
ORDO_DEVICE void write(const head_place &at, uint16_t *row, const double (&x)[EACH], int columns)
{
#pragma unroll
    for (int w = 0; w < EACH / 2; w++)
        if (at.lane + 32 * w < columns / 2)
            ((uint32_t *)row)[at.lane + 32 * w] =
                half_of<F16>(x[2 * w + 1]) << 16 | half_of<F16>(x[2 * w]);
}

/* A row that every lane multiplies by rows of its own. */
template <bool F16>
ORDO_DEVICE void share(const head_place &at, float *to, const uint16_t *row, int columns)
{
    for (int pair = at.lane; pair < columns / 2; pair += 32) {
        const uint32_t x = ((const uint32_t *)row)[pair];
        to[2 * pair] = pair_low<F16>(x);
        to[2 * pair + 1] = pair_high<F16>(x);
    }
    __syncwarp();
}

template <bool F16> ORDO_DEVICE double dot(const uint16_t *row, const float *shared, int columns)
{
    double sum = 0;
    for (int c = 0; c < columns / 8; c++) {
        const uint4 eight = ((const uint4 *)row)[c];
        const uint32_t pairs[4] = { eight.x, eight.y, eight.z, eight.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum = fma((double)pair_low<F16>(pairs[i]), (double)shared[8 * c + 2 * i], sum);
            sum = fma((double)pair_high<F16>(pairs[i]), (double)shared[8 * c + 2 * i + 1], sum);
        }
    }
    return sum;
}

/* sum += weight * row */
template <bool F16>
ORDO_DEVICE void add(const head_place &at, double (&sum)[EACH], double weight, const uint16_t *row,
                     int columns)
{
#pragma unroll
    for (int w = 0; w < EACH / 2; w++) {
        if (at.lane + 32 * w >= columns / 2)
            continue;
        const uint32_t pair = ((const uint32_t *)row)[at.lane + 32 * w];
        sum[2 * w] = fma(weight, (double)pair_low<F16>(pair), sum[2 * w]);
        sum[2 * w + 1] = fma(weight, (double)pair_high<F16>(pair), sum[2 * w + 1]);
    }
}

ORDO_DEVICE void fill(double (&sum)[EACH], double value)
{
#pragma unroll
    for (int w = 0; w < EACH; w++)
        sum[w] = value;
}

/* ---- one element ---- */

/* The bias, 0 without. */
ORDO_DEVICE float bias_of(const head_place &at, int32_t head, int64_t row, int64_t key)
{
    const ordo_cuda_bias &bias = at.pass.bias;
    const int64_t place = bias_at(bias, at.b, head) + row * bias.row + key;
    if (!bias.data)
        return 0.0f;
    return at.pass.f16 ? bias_value<true>(bias, place) : bias_value<false>(bias, place);
}

/* Whether a block mask and a bias, if there are any, let a row of a query head see a key. */
ORDO_DEVICE bool listed(const head_place &at, int32_t head, int64_t row, int64_t key)
{
    const ordo_cuda_block_mask &blocks = at.pass.blocks;
    if (bias_of(at, head, row, key) < ORDO_BIAS_LEAST)
        return false;
    return !blocks.start ||
           ordo_blocks_sees(&blocks, at.b, head,
                            ordo_blocks_before(&blocks, &at.s, at.pass.run.band.bq), (int32_t)row,
                            (int32_t)key);
}

/* What dropout makes of it: 0, or what kept ones are multiplied by. */
ORDO_DEVICE double keep_of(const head_place &at, int32_t head, int64_t row, int64_t key)
{
    const ordo_cuda_pass &pass = at.pass;
    if (pass.keep_scale == 0)
        return 1;
    bool kept;
    if (pass.keep_bits) {
        const uint32_t *bits =
            pass.keep_bits + (at.s.keep + head * at.s.keep_head) * ORDO_KEEP_WORDS;
        kept = ordo_keep_stored(bits, (int64_t)at.s.keep_across * ORDO_KEEP_COLS, row, key);
    } else {
        const ordo_keep keep = keep_now(pass);
        kept =
            ordo_keep_element(&keep, keep_head_of(pass, at.s.id, head), pass.row0 + (uint32_t)row,
                              pass.block0 * ORDO_KEEP_COLS + (uint32_t)key);
    }
    return kept ? (double)pass.keep_scale : 0;
}

ORDO_DEVICE double logit_of_product(const head_place &at, int32_t head, double qk, int64_t row,
                                    int64_t key)
{
    const double x = (double)at.pass.scale * qk, cap = at.pass.softcap;
    const double capped = cap > 0 ? cap * tanh(x / cap) : x;
    const double bias = bias_of(at, head, row, key);
    if (!at.pass.slopes)
        return capped + bias;
    const double slope = at.pass.slopes[at.b * at.pass.slopes_sequence + head];
    return bias + capped - slope * fabs((double)(row + at.s.diagonal - key));
}

/* ---- units: tiles of a head, as in the backward pass ---- */

/* Tile `unit` of all heads, and its rows (or keys) first .. end - 1. */
ORDO_DEVICE head_place tile_at(const ordo_cuda_pass &pass, ordo_before what, int64_t unit,
                               int64_t tiles, ordo_rows *rows)
{
    const bool keys = what == ORDO_BEFORE_KEY;
    const int32_t tile = (int32_t)(unit % tiles), size = keys ? pass.run.band.bk : pass.run.band.bq;
    const int32_t b = ordo_batch_find(&pass.batch, what, tile);
    const ordo_cuda_sequence s = ordo_batch_sequence(&pass.batch, b);
    rows->first = (tile - (keys ? s.key_tile : s.query_tile)) * size;
    rows->count = min(size, (keys ? s.kv_len : s.q_len) - rows->first);
    return { pass, s, b, (int32_t)(unit / tiles), (int)threadIdx.x % 32 };
}

/* ---- launch ---- */

/* `argument`: the kernel's, the pass or more. */
static ordo_status launch_repair(const ordo_cuda_pass *pass, const void *argument,
                                 const void *kernel)
{
    int blocks = 0;
    CUDA_TRY(ordo_cuda_blocks(pass->run.workers, INT32_MAX, &blocks));
    const ordo_launch kind = pass->capability >= 90 ? ORDO_LAUNCH_EARLY : ORDO_LAUNCH_PLAIN;
    const ordo_cuda_grid grid = { (unsigned)blocks, THREADS, 0, kind };
    return ordo_cuda_launch(kernel, argument, grid, pass->stream);
}

#endif
