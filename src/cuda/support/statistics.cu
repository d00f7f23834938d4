/* support/statistics.cu: row statistics, the first kernel of both backward passes. */
#include "cuda/support/statistics.h"

#include <math.h>

#include "base/constants.h"
#include "cuda/support/launch.h"
#include "cuda/tile/fragment.h"
#include "plan/family_sm90.h"

/* Dot product of eight pairs, in ascending order. */
template <bool F16> static __device__ __forceinline__ float dot8(uint4 a, uint4 b)
{
    const uint32_t x[4] = { a.x, a.y, a.z, a.w }, y[4] = { b.x, b.y, b.z, b.w };
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum = fmaf(pair_low<F16>(x[i]), pair_low<F16>(y[i]), sum);
        sum = fmaf(pair_high<F16>(x[i]), pair_high<F16>(y[i]), sum);
    }
    return sum;
}

enum { ROW_THREADS = 256, ROW_ROUNDS = 4 };

/* EACH: threads per row. CHUNKS: of 8 columns, of each of them. ROUND: rows of a block per round.
 * BLOCKS: per tile of ROWS. D, the class of head sizes, decides the tree of a row's sum. */
template <int D> struct begin_shape {
    enum {
        ROWS = ORDO_SM90_BACKWARD_Q(D),
        EACH = D / 8 < 32 ? D / 8 : 32,
        CHUNKS = (D / 8 + EACH - 1) / EACH,
        ROUND = ROW_THREADS / EACH,
        BLOCKS = ROWS / (ROUND * ROW_ROUNDS)
    };
};

/* Up to 32 threads per row of a padded tile and four rows per thread, all loaded before any is
 * used. A row that does not exist, or sees nothing, gets lse2 = +inf: its probabilities are then 0.
 */
template <int D, bool CLEAR, bool VARLEN, bool F16>
static __global__ void __launch_bounds__(ROW_THREADS)
    begin_kernel(const __grid_constant__ ordo_row_args args)
{
    using Z = begin_shape<D>;
    enum { ROWS = Z::ROWS };
    grid_let_next();
    const int64_t thread = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    for (int64_t tile = thread; tile < args.tiles; tile += (int64_t)gridDim.x * ROW_THREADS)
        args.turns[tile] = 0;
    for (int64_t x = thread; x < args.broken_count; x += (int64_t)gridDim.x * ROW_THREADS)
        args.broken[x] = make_uint4(0, 0, 0, 0);
    if (thread == 0)
        args.ticket[0] = args.ticket[ORDO_NOT_FINITE] = 0;
    const int chunk = threadIdx.x % Z::EACH;
    const int32_t tile = blockIdx.x / Z::BLOCKS;
    const tile_place at = place_of<ROWS, VARLEN>(args, tile / args.q_tiles, tile % args.q_tiles);
    if (VARLEN && at.q_len == 0)
        return;
    const int32_t in_tile =
        blockIdx.x % Z::BLOCKS * (Z::ROUND * ROW_ROUNDS) + threadIdx.x / Z::EACH;
    const int32_t row0 = at.row0 + in_tile;
    const int64_t first = element(args.o, at, row0) * 2 + chunk * 16;
    const int64_t second = element(args.dout, at, row0) * 2 + chunk * 16;
    uint4 o[ROW_ROUNDS][Z::CHUNKS], dout[ROW_ROUNDS][Z::CHUNKS];
#pragma unroll
    for (int n = 0; n < ROW_ROUNDS; n++)
#pragma unroll
        for (int c = 0; c < Z::CHUNKS; c++) {
            const int skip = c * Z::EACH; /* chunks before this one */
            o[n][c] = dout[n][c] = make_uint4(0, 0, 0, 0);
            if (row0 + n * Z::ROUND < at.q_len &&
                (!VARLEN || (skip + chunk) * 8 < args.v_head_dim)) {
                const int64_t step = n * Z::ROUND * 2;
                o[n][c] = *(const uint4 *)((const char *)args.o.data + first + skip * 16 +
                                           step * args.o.row);
                dout[n][c] = *(const uint4 *)((const char *)args.dout.data + second + skip * 16 +
                                              step * args.dout.row);
            }
        }
#pragma unroll
    for (int n = 0; n < ROW_ROUNDS; n++) {
        const int32_t row = row0 + n * Z::ROUND;
        const int64_t place = (int64_t)tile * ROWS + in_tile + n * Z::ROUND;
        float sum = dot8<F16>(o[n][0], dout[n][0]);
#pragma unroll
        for (int c = 1; c < Z::CHUNKS; c++)
            sum += dot8<F16>(o[n][c], dout[n][c]);
        if (D == 256 && ROWS == 128)
            sum += 0.0f; /* as with the columns up to 576: -0 becomes 0 */
#pragma unroll
        for (int x = Z::EACH / 2; x; x /= 2)
            sum += __shfl_xor_sync(~0u, sum, x);
        if (CLEAR)
            for (int x = 0; x < 2; x++)
                ((float4 *)args.dq_sum)[place * (D / 4) + x * Z::EACH + chunk] =
                    make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (chunk != 0)
            continue;
        float lse2 = INFINITY;
        if (row < at.q_len) {
            const float lse = args.lse[at.lse + row];
            lse2 = lse == -INFINITY ? INFINITY : lse * (float)ORDO_LOG2_E;
            if (args.dlse)
                sum -= args.dlse[at.lse + row];
            if ((VARLEN || args.dlse) && lse == -INFINITY)
                sum = 0.0f;
        }
        const int64_t to = place - row % 16 + ordo_stat_place(row % 16);
        args.delta[to] = sum * args.kept;
        args.lse2[to] = lse2;
    }
}

/* ---- launch ---- */

bool ordo_backward_usual_order(const ordo_cuda_pass *pass)
{
    return pass->run.order == ORDO_ORDER_ASCENDING || pass->run.order == ORDO_ORDER_DESCENDING;
}

bool ordo_backward_dense(const ordo_cuda_pass *pass)
{
    const int32_t bucket = ordo_pass_bucket(pass);
    const bool carries = pass->carry.in || pass->carry.out;
    const ordo_keep_source source = ordo_pass_keep_source(pass);
    /* Other orders have instances for what studies of orders need, and no more. */
    const bool order =
        ordo_backward_usual_order(pass) || (!pass->f16 && source == ORDO_KEEP_NONE && !carries);
    return pass->layout == ORDO_DENSE && pass->form == ORDO_FORM_FLASH &&
           pass->head_dim == bucket && pass->v_head_dim == bucket &&
           pass->run.band.low == -ORDO_BAND_OPEN && order && !ordo_pass_has_rule(pass) &&
           pass->dq.data && (pass->dk.data || pass->carry.out) &&
           (source != ORDO_KEEP_MADE || !carries) && !pass->blocks.start;
}

ordo_row_args ordo_row_args_of(const ordo_cuda_pass *pass)
{
    const bool dense = ordo_backward_dense(pass);
    ordo_row_args args;
    (ordo_cuda_pass &)args = *pass;
    args.run.sequences = dense ? pass->run.sequences : 1;
    args.heads = pass->run.kv_heads * pass->run.group_heads;
    args.q_tiles = dense ? ordo_band_query_tiles(&pass->run.band) : pass->batch.tiles;
    args.tiles = (int64_t)args.q_tiles * args.heads * args.run.sequences;
    args.dq_scale = ordo_pass_dk_scale(pass);
    args.kept = pass->keep_scale > 0.0f ? 1.0f / pass->keep_scale : 1.0f;
    args.broken = (uint4 *)pass->carry.dk_broken; /* dv's follow, in as many bytes; both aligned */
    args.broken_count =
        pass->carry.out ? 2 * (pass->carry.dv_broken - pass->carry.dk_broken) / 16 : 0;
    return args;
}

/* The instance of a class of head sizes; how many blocks a tile takes. */
template <int D> static const void *begin_of(const ordo_cuda_pass *pass, bool clear, int *blocks)
{
    *blocks = begin_shape<D>::BLOCKS;
    if constexpr (D <= 128) {
        if (ordo_backward_dense(pass) && clear) /* bf16: for measurements */
            return (const void *)begin_kernel<D, true, false, false>;
        if (ordo_backward_dense(pass))
            return pass->f16 ? (const void *)begin_kernel<D, false, false, true>
                             : (const void *)begin_kernel<D, false, false, false>;
    }
    return pass->f16 ? (const void *)begin_kernel<D, false, true, true>
                     : (const void *)begin_kernel<D, false, true, false>;
}

ordo_status ordo_backward_begin(const ordo_cuda_pass *pass, bool clear)
{
    ordo_row_args args = ordo_row_args_of(pass);
    int each = 1;
    const int32_t bucket = ordo_pass_bucket(pass);
    const bool flash = pass->form == ORDO_FORM_FLASH;
    const void *const kernel = flash && bucket == 64 ? begin_of<64>(pass, clear, &each)
                               : flash               ? begin_of<128>(pass, clear, &each)
                               : bucket <= 256       ? begin_of<256>(pass, clear, &each)
                                                     : begin_of<576>(pass, clear, &each);
    const int64_t blocks = args.tiles * each;
    const ordo_cuda_grid grid = { (unsigned)(blocks > 0 ? blocks : 1), ROW_THREADS, 0,
                                  ORDO_LAUNCH_PLAIN };
    if (args.q_tiles == 0)
        args.q_tiles = 1; /* a divisor; no tile exists */
    return ordo_cuda_launch(kernel, &args, grid, pass->stream);
}
