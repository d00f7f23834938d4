/* backward_wide_rows.cu: row statistics for head sizes 129 to 256. */
#include "cuda/backward_wide_rows.h"

#include <cuda_runtime.h>
#include <math.h>

#include "cuda/launch.h"
#include "cuda/layout.h"
#include "cuda/ptx.h"

typedef struct wide_row_args {
    ordo_cuda_batch batch;
    ordo_cuda_tensor o, dout;
    int32_t head_dim;
    float kept; /* delta is multiplied by it: dropout, 1 / what kept elements are multiplied by */
    const float *lse, *dlse;
    float *lse2, *delta;
    int32_t *turns, *ticket;
    int64_t tiles; /* of all heads */
} wide_row_args;

enum { ROW_THREADS = 256, ROW_TILE = 64 };

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

/* A block a tile of 64 rows, a warp a row. A row that does not exist, or sees nothing, gets
 * lse2 = +inf: its probabilities are then exp2(-inf) = 0. */
template <bool F16>
static __global__ void __launch_bounds__(ROW_THREADS)
    wide_begin(const __grid_constant__ wide_row_args args)
{
    grid_let_next();
    const int64_t thread = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    if (thread < args.tiles)
        args.turns[thread] = 0;
    if (thread == 0)
        args.ticket[0] = args.ticket[ORDO_NOT_FINITE] = 0;
    const int lane = threadIdx.x % 32, tile = (int)(blockIdx.x % (unsigned)args.batch.tiles);
    const int head = (int)(blockIdx.x / (unsigned)args.batch.tiles);
    const int b = ordo_batch_find(&args.batch, ORDO_BEFORE_QUERY, tile);
    const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, b);
#pragma unroll 1
    for (int r = threadIdx.x / 32; r < ROW_TILE; r += ROW_THREADS / 32) {
        const int row = (tile - s.query_tile) * ROW_TILE + r;
        const bool real = row < s.q_len;
        float sum = 0.0f, lse2 = INFINITY;
        if (real && lane * 8 < args.head_dim) {
            const int64_t o = s.batch * args.o.sequence + (s.q_row + row) * args.o.row +
                              head * args.o.head + lane * 8;
            const int64_t dout = s.batch * args.dout.sequence + (s.q_row + row) * args.dout.row +
                                 head * args.dout.head + lane * 8;
            sum = dot8<F16>(*(const uint4 *)((const char *)args.o.data + 2 * o),
                            *(const uint4 *)((const char *)args.dout.data + 2 * dout));
        }
#pragma unroll
        for (int x = 16; x; x /= 2)
            sum += __shfl_xor_sync(~0u, sum, x);
        if (lane != 0)
            continue;
        if (real) {
            const int64_t at = s.lse + head * args.batch.lse_head + row;
            lse2 = args.lse[at] == -INFINITY ? INFINITY : args.lse[at] * 1.4426950408889634f;
            if (args.dlse)
                sum -= args.dlse[at];
        }
        const int64_t to = (int64_t)blockIdx.x * ROW_TILE + ordo_stat_place(r);
        args.delta[to] = sum * args.kept;
        args.lse2[to] = lse2;
    }
}

ordo_status ordo_wide_begin(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    wide_row_args args;
    args.batch = pass->batch;
    args.o = pass->o;
    args.dout = pass->dout;
    args.head_dim = pass->head_dim;
    args.kept = pass->keep_scale > 0.0f ? 1.0f / pass->keep_scale : 1.0f;
    args.lse = pass->lse;
    args.dlse = pass->dlse;
    args.lse2 = pass->lse2;
    args.delta = pass->delta;
    args.turns = pass->turns;
    args.ticket = pass->ticket;
    args.tiles = (int64_t)pass->batch.tiles * pass->run.kv_heads * pass->run.group_heads;
    const ordo_cuda_grid grid = { (unsigned)args.tiles, ROW_THREADS, 0, ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch(pass->f16 ? (const void *)wide_begin<true>
                                      : (const void *)wide_begin<false>,
                            &args, grid, pass->stream, why, why_size);
}
