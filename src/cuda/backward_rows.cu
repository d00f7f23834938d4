/* backward_rows.cu: row statistics before the chains, dQ as rows of bf16 after them. */
#include "cuda/backward_rows.h"

#include <math.h>

#include "cuda/launch.h"
#include "cuda/layout.h"
#include "cuda/ptx.h"
#include "cuda/repair.h"

typedef struct row_args {
    ordo_run run;
    ordo_band band;
    int32_t heads, q_tiles; /* q_tiles: of one head */
    int64_t tiles;          /* of all heads */
    float scale;            /* of dQ */
    float kept; /* delta is multiplied by it: dropout, 1 / what kept elements are multiplied by */
    ordo_cuda_tensor a, b; /* begin: o, dout; end: dq */
    const float *lse;
    float *lse2, *delta, *dq_sum;
    int32_t *turns, *ticket;
} row_args;

static __device__ __forceinline__ int64_t element(const ordo_cuda_tensor &x, int32_t sequence,
                                                  int32_t head, int32_t row)
{
    return sequence * x.sequence + head * x.head + row * x.row;
}

/* Sum of products of eight bf16 pairs, upwards. */
static __device__ __forceinline__ float dot8(uint4 a, uint4 b)
{
    const uint32_t x[4] = { a.x, a.y, a.z, a.w }, y[4] = { b.x, b.y, b.z, b.w };
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) { /* bf16 is the upper half of an f32 */
        sum = fmaf(__uint_as_float(x[i] << 16), __uint_as_float(y[i] << 16), sum);
        sum = fmaf(__uint_as_float(x[i] & 0xffff0000u), __uint_as_float(y[i] & 0xffff0000u), sum);
    }
    return sum;
}

enum { ROW_THREADS = 256, ROW_ROUNDS = 4 };

/* D / 8 threads a row of a padded tile, and four rows a thread, all loaded before any is used. A
 * row that does not exist, or sees nothing, gets lse2 = +inf: its probabilities are then
 * exp2(-inf) = 0. */
template <int D, bool CLEAR>
static __global__ void __launch_bounds__(ROW_THREADS)
    begin_kernel(const __grid_constant__ row_args args)
{
    enum { EACH = D / 8, ROUND = ROW_THREADS / EACH };
    grid_let_next();
    const int64_t thread = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    for (int64_t tile = thread; tile < args.tiles; tile += (int64_t)gridDim.x * ROW_THREADS)
        args.turns[tile] = 0;
    if (thread == 0)
        args.ticket[0] = args.ticket[ORDO_NOT_FINITE] = 0;
    const int part = threadIdx.x % EACH, padded = args.q_tiles * args.band.bq;
    const int32_t blocks = padded / (ROUND * ROW_ROUNDS), all = blockIdx.x / blocks;
    const int32_t row0 = blockIdx.x % blocks * (ROUND * ROW_ROUNDS) + threadIdx.x / EACH;
    const int32_t head = all % args.heads, sequence = all / args.heads;
    const int64_t first = element(args.a, sequence, head, row0) * 2 + part * 16;
    const int64_t second = element(args.b, sequence, head, row0) * 2 + part * 16;
    uint4 o[ROW_ROUNDS], dout[ROW_ROUNDS];
#pragma unroll
    for (int n = 0; n < ROW_ROUNDS; n++) {
        o[n] = dout[n] = make_uint4(0, 0, 0, 0);
        if (row0 + n * ROUND < args.band.q_len) {
            const int64_t step = n * ROUND * 2;
            o[n] = *(const uint4 *)((const char *)args.a.data + first + step * args.a.row);
            dout[n] = *(const uint4 *)((const char *)args.b.data + second + step * args.b.row);
        }
    }
#pragma unroll
    for (int n = 0; n < ROW_ROUNDS; n++) {
        const int32_t row = row0 + n * ROUND;
        const int64_t place = (int64_t)all * padded + row;
        float sum = dot8(o[n], dout[n]);
#pragma unroll
        for (int x = EACH / 2; x; x /= 2)
            sum += __shfl_xor_sync(~0u, sum, x);
        if (CLEAR)
            for (int x = 0; x < 2; x++)
                ((float4 *)args.dq_sum)[place * (D / 4) + x * EACH + part] =
                    make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (part != 0)
            continue;
        float lse2 = INFINITY;
        if (row < args.band.q_len) {
            const float lse = args.lse[(int64_t)all * args.band.q_len + row];
            lse2 = lse == -INFINITY ? INFINITY : lse * 1.4426950408889634f;
        }
        const int64_t to = place - row % 16 + ordo_stat_place(row % 16);
        args.delta[to] = sum * args.kept;
        args.lse2[to] = lse2;
    }
}

/* Number x of all query heads in the order in which their chains are issued. */
static __device__ __forceinline__ int32_t head_ended(const ordo_run &run, int32_t x)
{
    const int32_t first = ordo_run_heads(&run, 0), key = x / run.group_heads;
    const int32_t head =
        key < first ? ordo_run_head(&run, 0, key) : ordo_run_head(&run, 1, key - first);
    return head * run.group_heads + x % run.group_heads;
}

/* 128 threads a half tile of 64 x 64; a tile that no key adds to is zero, and was never stored. */
template <int D, bool EARLY>
static __global__ void __launch_bounds__(128) end_kernel(const __grid_constant__ row_args args)
{
    grid_let_next(); /* the repair: it waits by itself */
    const int half = blockIdx.x % 2, t = threadIdx.x, quad = t % 4;
    const int32_t all = head_ended(args.run, blockIdx.x / 2 / args.q_tiles);
    const int32_t i = blockIdx.x / 2 % args.q_tiles;
    const int64_t tile = (int64_t)all * args.q_tiles + i;
    const int32_t head = all % args.heads, sequence = all / args.heads;
    const int32_t keys = ordo_span_count(ordo_band_keys(&args.band, i));
    const bool seen = keys > 0;
    if (EARLY) {
        if (t == 0)
            for (uint32_t spins = 0; load_acquire(args.turns + tile) != keys; spins++) {
                __nanosleep(500);
                ordo_watch(spins);
            }
        __syncthreads();
        if (blockIdx.x == gridDim.x - 1) /* this kernel ends no sooner than the chains */
            grid_wait();
    }
    const float4 *from = (const float4 *)args.dq_sum + (2 * tile + half) * 1024 + t;
    uint32_t pairs[2][8]; /* rows r and r + 8, columns in eights: this thread's two of each */
    uint32_t taint = 0;
#pragma unroll
    for (int c = 0; c < 8; c++) {
        const float4 x = seen ? from[c * 128] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        pairs[0][c] = pack_pair<false>(x.x * args.scale, x.y * args.scale);
        pairs[1][c] = pack_pair<false>(x.z * args.scale, x.w * args.scale);
        taint |= not_finite<false>(pairs[0][c]) | not_finite<false>(pairs[1][c]);
    }
    if (taint)
        args.ticket[ORDO_NOT_FINITE] = 1;
    const int row0 = i * args.band.bq + (D == 64 ? half * 64 : 0) + ordo_accumulator_row(t, 0);
    const int column0 = D == 128 ? half * 64 : 0;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int g = 0; g < 2; g++) { /* four threads swap, so that each has eight columns */
            uint32_t out[4];
#pragma unroll
            for (int d = 0; d < 4; d++) {
                const int source = (quad + d) % 4, give = (quad + 4 - d) % 4;
                const uint32_t *mine = pairs[r] + 4 * g;
                const uint32_t gift = give == 0   ? mine[0]
                                      : give == 1 ? mine[1]
                                      : give == 2 ? mine[2]
                                                  : mine[3];
                const uint32_t got = __shfl_sync(~0u, gift, (t % 32 & 28) | source);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (e == source)
                        out[e] = got;
            }
            const int row = row0 + 8 * r;
            if (row < args.band.q_len)
                *(uint4 *)((char *)args.a.data + 2 * (element(args.a, sequence, head, row) +
                                                      column0 + 32 * g + 8 * quad)) =
                    make_uint4(out[0], out[1], out[2], out[3]);
        }
}

/* ---- launch ---- */

static row_args arguments(const ordo_cuda_pass *pass)
{
    row_args args;
    args.run = pass->run;
    args.band = pass->run.band;
    args.heads = pass->run.kv_heads * pass->run.group_heads;
    args.q_tiles = ordo_band_query_tiles(&args.band);
    args.tiles = (int64_t)args.q_tiles * args.heads * pass->run.sequences;
    args.scale = pass->keep_scale > 0.0f ? pass->scale * pass->keep_scale : pass->scale;
    args.kept = pass->keep_scale > 0.0f ? 1.0f / pass->keep_scale : 1.0f;
    args.lse = pass->lse;
    args.lse2 = pass->lse2;
    args.delta = pass->delta;
    args.dq_sum = pass->dq_sum;
    args.turns = pass->turns;
    args.ticket = pass->ticket;
    return args;
}

ordo_status ordo_backward_begin(const ordo_cuda_pass *pass, bool clear, char *why, size_t why_size)
{
    row_args args = arguments(pass);
    args.a = pass->o;
    args.b = pass->dout;
    const int each = pass->head_dim / 8, rows = ROW_THREADS / each * ROW_ROUNDS;
    const int64_t blocks = args.tiles * args.band.bq / rows; /* a tile has 64 or 128 rows */
    const ordo_cuda_grid grid = { (unsigned)blocks, ROW_THREADS, 0, ORDO_LAUNCH_PLAIN };
    const void *kernel = pass->head_dim == 64 ? clear ? (const void *)begin_kernel<64, true>
                                                      : (const void *)begin_kernel<64, false>
                         : clear ? (const void *)begin_kernel<128, true>
                                              : (const void *)begin_kernel<128, false>;
    return ordo_cuda_launch(kernel, &args, grid, pass->stream, why, why_size);
}

ordo_status ordo_backward_end(const ordo_cuda_pass *pass, bool early, char *why, size_t why_size)
{
    row_args args = arguments(pass);
    args.a = pass->dq;
    const ordo_cuda_grid grid = { (unsigned)(2 * args.tiles), 128, 0,
                                  early ? ORDO_LAUNCH_EARLY : ORDO_LAUNCH_PLAIN };
    const void *kernel = pass->head_dim == 64 ? early ? (const void *)end_kernel<64, true>
                                                      : (const void *)end_kernel<64, false>
                         : early ? (const void *)end_kernel<128, true>
                                              : (const void *)end_kernel<128, false>;
    CUDA_TRY(ordo_cuda_launch(kernel, &args, grid, pass->stream, why, why_size));
    return ordo_repair_backward(pass, why, why_size);
}

ordo_status ordo_backward_arguments(const ordo_cuda_pass *pass, int rows, int keys,
                                    ordo_backward_args *args, int *blocks, char *why,
                                    size_t why_size)
{
    const ordo_run *run = &pass->run;
    const ordo_cuda_lengths q = { run->band.q_len, run->kv_heads * run->group_heads, run->sequences,
                                  pass->head_dim };
    const ordo_cuda_lengths kv = { run->band.kv_len, run->kv_heads, run->sequences,
                                   pass->head_dim };
    CUDA_TRY(ordo_cuda_map(&args->q, &pass->q, q, rows, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->dout, &pass->dout, q, rows, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->k, &pass->k, kv, keys, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->v, &pass->v, kv, keys, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->dk, &pass->dk, kv, 64, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->dv, &pass->dv, kv, 64, why, why_size));
    args->run = *run;
    args->first_class = ordo_run_tickets(run, 0);
    args->units = args->first_class + ordo_run_tickets(run, 1);
    args->q_tiles = ordo_band_query_tiles(&run->band);
    args->keep_scale = pass->keep_scale;
    args->keep_bits = pass->keep_bits;
    args->keep_line = (int64_t)(run->band.kv_len + 127) / 128 * 64;
    args->out_scale = pass->keep_scale > 0.0f ? pass->scale * pass->keep_scale : pass->scale;
    args->scale_log2 = pass->scale * 1.4426950408889634f;
    args->lse2 = pass->lse2;
    args->delta = pass->delta;
    args->dq_sum = pass->dq_sum;
    args->turns = pass->turns;
    args->ticket = pass->ticket;
    return ordo_cuda_blocks(run->workers, args->units, blocks, why, why_size);
}
