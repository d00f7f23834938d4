/* ops/combine.cu: one warp per row; parts are added in their order, column by column. Weights and
 * sums are those of the CPU backend, operation for operation (base/merge.h): the bits do not depend
 * on the grid or on how the parts were passed. */
#include "cuda/ops/combine.h"

#include "base/merge.h"
#include "cuda/support/launch.h"
#include "cuda/tile/ptx.h"

enum { WARPS = 8, THREADS = 32 * WARPS, COLUMNS = 256 / 32 };

typedef struct few_parts {
    ordo_cuda_part at[ORDO_COMBINE_FEW];
} few_parts;

typedef struct combine_args {
    const ordo_cuda_part *table; /* NULL: `few` */
    int32_t parts, dim;
    int64_t heads, rows, all; /* all: rows of all heads and sequences */
    ordo_cuda_part to;        /* lse is written through `lse` */
    float *lse;
    few_parts few;
} combine_args;

typedef struct table_args {
    ordo_cuda_part *table;
    int32_t count;
    few_parts parts;
} table_args;

/* Copies parts from the kernel parameters to memory: one launch per ORDO_COMBINE_FEW of a long
 * list. */
static __global__ void __launch_bounds__(THREADS)
    table_kernel(const __grid_constant__ table_args args)
{
    for (int x = threadIdx.x; x < args.count; x += THREADS)
        args.table[x] = args.parts.at[x];
}

template <bool F16> ORDO_DEVICE float value_of(uint16_t half)
{
    return F16 ? ordo_f32_from_f16(half) : ordo_f32_from_bf16(half);
}

ORDO_DEVICE int64_t place_in(const ordo_cuda_part &x, int64_t sequence, int64_t head, int64_t row)
{
    return sequence * x.sequence + head * x.head + row * x.row;
}

template <bool F16>
ORDO_DEVICE void merge_row(const combine_args &args, const ordo_cuda_part *parts, int64_t at,
                           int lane)
{
    const int64_t all = at / args.rows, row = at % args.rows;
    const int64_t sequence = all / args.heads, head = all % args.heads;
    float sum[COLUMNS] = {}, top = -INFINITY, total = 0;
    for (int x = lane; x < args.parts; x += 32)
        top = ordo_merge_top(top, parts[x].lse[at]);
    for (int step = 16; step; step /= 2)
        top = ordo_merge_top(top, __shfl_xor_sync(~0u, top, step));
    for (int x = 0; x < args.parts && top != -INFINITY; x++) {
        const ordo_cuda_part &part = parts[x];
        const float lse = part.lse[at];
        if (lse == -INFINITY) /* its o counts as 0, whatever it holds */
            continue;
        const float weight = ordo_merge_weight(lse, top);
        const uint16_t *o = part.o + place_in(part, sequence, head, row);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            if (lane + 32 * c < args.dim)
                sum[c] = fmaf(weight, value_of<F16>(o[lane + 32 * c]), sum[c]);
        total += weight;
    }
    const float factor = ordo_merge_factor(top, total);
    uint16_t *to = (uint16_t *)args.to.o + place_in(args.to, sequence, head, row);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        if (lane + 32 * c < args.dim)
            to[lane + 32 * c] =
                F16 ? ordo_f16_from_f32(sum[c] * factor) : ordo_bf16_from_f32(sum[c] * factor);
    if (lane == 0)
        args.lse[at] = ordo_merge_lse(top, total);
}

template <bool F16>
static __global__ void __launch_bounds__(THREADS)
    combine_kernel(const __grid_constant__ combine_args args)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const ordo_cuda_part *parts = args.table ? args.table : args.few.at;
    for (int64_t at = (int64_t)blockIdx.x * WARPS + warp; at < args.all;
         at += (int64_t)gridDim.x * WARPS)
        merge_row<F16>(args, parts, at, lane);
}

/* ---- launch ---- */

/* Strides all 0: contiguous, (sequence, row, head, dim). */
static ordo_cuda_part part_of(const ordo_cuda_combine *c, const ordo_tensor *t, const float *lse)
{
    const bool contiguous = t->stride[3] == 0;
    ordo_cuda_part part;
    part.o = (const uint16_t *)t->data;
    part.lse = lse;
    part.head = contiguous ? c->dim : t->stride[2];
    part.row = contiguous ? c->heads * c->dim : t->stride[1];
    part.sequence = c->sequences == 1 ? 0 : contiguous ? c->rows * c->heads * c->dim : t->stride[0];
    return part;
}

static int32_t take_parts(const ordo_cuda_combine *c, int64_t first, few_parts *parts)
{
    const int64_t left = c->parts - first;
    const int32_t count = left < ORDO_COMBINE_FEW ? (int32_t)left : (int32_t)ORDO_COMBINE_FEW;
    for (int32_t x = 0; x < count; x++)
        parts->at[x] = part_of(c, &c->o_parts[first + x], c->lse_parts[first + x]);
    return count;
}

static ordo_status write_table(const ordo_cuda_combine *c)
{
    const ordo_cuda_grid grid = { 1, THREADS, 0, ORDO_LAUNCH_PLAIN };
    for (int64_t first = 0; first < c->parts; first += ORDO_COMBINE_FEW) {
        table_args args;
        args.table = c->table + first;
        args.count = take_parts(c, first, &args.parts);
        CUDA_TRY(ordo_cuda_launch((const void *)table_kernel, &args, grid, c->stream));
    }
    return ORDO_OK;
}

ordo_status ordo_cuda_combine_parts(const ordo_cuda_combine *c)
{
    const bool many = c->parts > ORDO_COMBINE_FEW;
    combine_args args;
    int blocks = 0;
    args.table = many ? c->table : NULL;
    args.parts = (int32_t)c->parts;
    args.dim = c->dim;
    args.heads = c->heads;
    args.rows = c->rows;
    args.all = c->sequences * c->heads * c->rows;
    args.to = part_of(c, &c->o, NULL);
    args.lse = c->lse;
    if (many)
        CUDA_TRY(write_table(c));
    else
        (void)take_parts(c, 0, &args.few);
    CUDA_TRY(ordo_cuda_blocks(INT32_MAX, (args.all + WARPS - 1) / WARPS, &blocks));
    const ordo_cuda_grid grid = { (unsigned)blocks * 8, THREADS, 0, ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch(c->f16 ? (const void *)combine_kernel<true>
                                   : (const void *)combine_kernel<false>,
                            &args, grid, c->stream);
}
