/* backward/rows.cu: row statistics before the chains, dQ as rows of bf16 after them. */
#include "cuda/backward/rows.h"

#include <math.h>

#include "cuda/common/launch.h"
#include "cuda/common/layout.h"
#include "cuda/common/ptx.h"
#include "cuda/common/repair.h"

typedef struct row_args {
    ordo_run run; /* general: of one sequence */
    ordo_band band;
    ordo_cuda_batch batch;
    int32_t heads, q_tiles; /* q_tiles: of one head; general: of all sequences */
    int32_t head_dim;
    int64_t tiles; /* of all heads */
    float scale;   /* of dQ */
    float kept; /* delta is multiplied by it: dropout, 1 / what kept elements are multiplied by */
    ordo_cuda_tensor a, b; /* begin: o, dout; end: dq */
    const float *lse, *dlse;
    float *lse2, *delta, *dq_sum;
    int32_t *turns, *ticket;
} row_args;

/* A tile of queries: where it lies in the tensors, and what there is of it. */
typedef struct tile_place {
    int32_t head, sequence;
    int32_t row0;  /* its first row in its sequence, */
    int32_t q_row; /* whose first row in the tensor is this, */
    int32_t q_len; /* and which has so many; 0: the tile does not exist */
    int32_t keys;  /* tiles of keys that add to it */
    int64_t lse;   /* of the sequence's first row of this head */
} tile_place;

template <int ROWS, bool GENERAL>
static __device__ __forceinline__ tile_place place_of(const row_args &args, int32_t all, int32_t i)
{
    if constexpr (GENERAL) {
        tile_place at = { all, 0, 0, 0, 0, 0, 0 };
        if (i >= ordo_batch_before(&args.batch, ORDO_BEFORE_QUERY, args.batch.sequences))
            return at;
        const int32_t b = ordo_batch_find(&args.batch, ORDO_BEFORE_QUERY, i);
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, b);
        const ordo_band band = ordo_sequence_band(&s, ROWS, args.band.bk);
        at.sequence = s.batch;
        at.row0 = (i - s.query_tile) * ROWS;
        at.q_row = s.q_row;
        at.q_len = s.q_len;
        at.keys = ordo_span_count(ordo_band_keys(&band, i - s.query_tile));
        at.lse = s.lse + all * args.batch.lse_head;
        return at;
    }
    return { all % args.heads,
             all / args.heads,
             i * args.band.bq,
             0,
             args.band.q_len,
             ordo_span_count(ordo_band_keys(&args.band, i)),
             (int64_t)all * args.band.q_len };
}

static __device__ __forceinline__ int64_t element(const ordo_cuda_tensor &x, const tile_place &at,
                                                  int32_t row)
{
    return at.sequence * x.sequence + at.head * x.head + (at.q_row + row) * x.row;
}

/* Sum of products of eight pairs, upwards. */
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

/* Threads a row, rows a round of a block, rows of a tile, blocks a tile. */
template <int D> struct begin_shape {
    enum {
        EACH = D / 8,
        ROUND = ROW_THREADS / EACH,
        ROWS = D == 64 ? 128 : 64,
        BLOCKS = ROWS / (ROUND * ROW_ROUNDS)
    };
};

/* D / 8 threads a row of a padded tile, and four rows a thread, all loaded before any is used. A
 * row that does not exist, or sees nothing, gets lse2 = +inf: its probabilities are then
 * exp2(-inf) = 0. */
template <int D, bool CLEAR, bool GENERAL, bool F16>
static __global__ void __launch_bounds__(ROW_THREADS)
    begin_kernel(const __grid_constant__ row_args args)
{
    using Z = begin_shape<D>;
    grid_let_next();
    const int64_t thread = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    for (int64_t tile = thread; tile < args.tiles; tile += (int64_t)gridDim.x * ROW_THREADS)
        args.turns[tile] = 0;
    if (thread == 0)
        args.ticket[0] = args.ticket[ORDO_NOT_FINITE] = 0;
    const int part = threadIdx.x % Z::EACH;
    const int32_t tile = blockIdx.x / Z::BLOCKS;
    const tile_place at =
        place_of<Z::ROWS, GENERAL>(args, tile / args.q_tiles, tile % args.q_tiles);
    if (GENERAL && at.q_len == 0)
        return;
    const int32_t in_tile =
        blockIdx.x % Z::BLOCKS * (Z::ROUND * ROW_ROUNDS) + threadIdx.x / Z::EACH;
    const int32_t row0 = at.row0 + in_tile;
    const int64_t first = element(args.a, at, row0) * 2 + part * 16;
    const int64_t second = element(args.b, at, row0) * 2 + part * 16;
    uint4 o[ROW_ROUNDS], dout[ROW_ROUNDS];
#pragma unroll
    for (int n = 0; n < ROW_ROUNDS; n++) {
        o[n] = dout[n] = make_uint4(0, 0, 0, 0);
        if (row0 + n * Z::ROUND < at.q_len && (!GENERAL || part * 8 < args.head_dim)) {
            const int64_t step = n * Z::ROUND * 2;
            o[n] = *(const uint4 *)((const char *)args.a.data + first + step * args.a.row);
            dout[n] = *(const uint4 *)((const char *)args.b.data + second + step * args.b.row);
        }
    }
#pragma unroll
    for (int n = 0; n < ROW_ROUNDS; n++) {
        const int32_t row = row0 + n * Z::ROUND;
        const int64_t place = (int64_t)tile * Z::ROWS + in_tile + n * Z::ROUND;
        float sum = dot8<F16>(o[n], dout[n]);
#pragma unroll
        for (int x = Z::EACH / 2; x; x /= 2)
            sum += __shfl_xor_sync(~0u, sum, x);
        if (CLEAR)
            for (int x = 0; x < 2; x++)
                ((float4 *)args.dq_sum)[place * (D / 4) + x * Z::EACH + part] =
                    make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (part != 0)
            continue;
        float lse2 = INFINITY;
        if (row < at.q_len) {
            const float lse = args.lse[at.lse + row];
            lse2 = lse == -INFINITY ? INFINITY : lse * 1.4426950408889634f;
            if (GENERAL && args.dlse)
                sum -= args.dlse[at.lse + row];
            if (GENERAL && lse == -INFINITY)
                sum = 0.0f;
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
template <int D, bool EARLY, bool GENERAL, bool F16>
static __global__ void __launch_bounds__(128) end_kernel(const __grid_constant__ row_args args)
{
    enum { ROWS = D == 64 ? 128 : 64 };
    grid_let_next(); /* the repair: it waits by itself */
    const int half = blockIdx.x % 2, t = threadIdx.x, quad = t % 4;
    const int32_t all = head_ended(args.run, blockIdx.x / 2 / args.q_tiles);
    const int32_t i = blockIdx.x / 2 % args.q_tiles;
    const int64_t tile = (int64_t)all * args.q_tiles + i;
    if (GENERAL && EARLY) /* the table that another kernel made: not as it was once read */
        (void)load_acquire(args.turns);
    const tile_place at = place_of<ROWS, GENERAL>(args, all, i);
    const bool seen = at.keys > 0;
    if (EARLY) {
        if (t == 0)
            for (uint32_t spins = 0; seen && load_acquire(args.turns + tile) != at.keys; spins++) {
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
        pairs[0][c] = pack_pair<F16>(x.x * args.scale, x.y * args.scale);
        pairs[1][c] = pack_pair<F16>(x.z * args.scale, x.w * args.scale);
        taint = not_finite<F16>(not_finite<F16>(taint, pairs[0][c]), pairs[1][c]);
    }
    if (taint)
        args.ticket[ORDO_NOT_FINITE] = 1;
    const int row0 = at.row0 + (D == 64 ? half * 64 : 0) + ordo_accumulator_row(t, 0);
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
            const int row = row0 + 8 * r, column = column0 + 32 * g + 8 * quad;
            if (row < at.q_len && (!GENERAL || column < args.head_dim))
                *(uint4 *)((char *)args.a.data + 2 * (element(args.a, at, row) + column)) =
                    make_uint4(out[0], out[1], out[2], out[3]);
        }
}

/* ---- launch ---- */

bool ordo_backward_plain(const ordo_cuda_pass *pass)
{
    const bool made_inside = pass->keep_scale > 0.0f && !pass->keep_bits;
    return pass->layout == ORDO_DENSE && !pass->f16 && pass->bucket <= 128 &&
           pass->head_dim == pass->bucket && pass->run.band.low == -ORDO_BAND_OPEN &&
           pass->softcap == 0.0f && !pass->slopes && !pass->dlse && !made_inside;
}

static row_args arguments(const ordo_cuda_pass *pass)
{
    const bool plain = ordo_backward_plain(pass);
    row_args args;
    args.run = pass->run;
    args.run.sequences = plain ? pass->run.sequences : 1;
    args.band = pass->run.band;
    args.batch = pass->batch;
    args.heads = pass->run.kv_heads * pass->run.group_heads;
    args.q_tiles = plain ? ordo_band_query_tiles(&args.band) : pass->batch.tiles;
    args.head_dim = pass->head_dim;
    args.tiles = (int64_t)args.q_tiles * args.heads * args.run.sequences;
    args.scale = pass->keep_scale > 0.0f ? pass->scale * pass->keep_scale : pass->scale;
    args.kept = pass->keep_scale > 0.0f ? 1.0f / pass->keep_scale : 1.0f;
    args.lse = pass->lse;
    args.dlse = pass->dlse;
    args.lse2 = pass->lse2;
    args.delta = pass->delta;
    args.dq_sum = pass->dq_sum;
    args.turns = pass->turns;
    args.ticket = pass->ticket;
    return args;
}

template <int D> static const void *begin_of(bool plain, bool clear, bool f16)
{
    if (!plain)
        return f16 ? (const void *)begin_kernel<D, false, true, true>
                   : (const void *)begin_kernel<D, false, true, false>;
    return clear ? (const void *)begin_kernel<D, true, false, false>
                 : (const void *)begin_kernel<D, false, false, false>;
}

ordo_status ordo_backward_begin(const ordo_cuda_pass *pass, bool clear, char *why, size_t why_size)
{
    row_args args = arguments(pass);
    args.a = pass->o;
    args.b = pass->dout;
    const bool plain = ordo_backward_plain(pass);
    const int64_t blocks = args.tiles * (pass->bucket == 256 ? begin_shape<256>::BLOCKS : 1);
    const ordo_cuda_grid grid = { (unsigned)(blocks > 0 ? blocks : 1), ROW_THREADS, 0,
                                  ORDO_LAUNCH_PLAIN };
    const void *kernel = pass->bucket == 64    ? begin_of<64>(plain, clear, pass->f16)
                         : pass->bucket == 128 ? begin_of<128>(plain, clear, pass->f16)
                         : pass->f16           ? (const void *)begin_kernel<256, false, true, true>
                                     : (const void *)begin_kernel<256, false, true, false>;
    if (args.q_tiles == 0)
        args.q_tiles = 1; /* a divisor; no tile exists */
    return ordo_cuda_launch(kernel, &args, grid, pass->stream, why, why_size);
}

template <int D> static const void *end_of(bool plain, bool early, bool f16)
{
    if (plain)
        return early ? (const void *)end_kernel<D, true, false, false>
                     : (const void *)end_kernel<D, false, false, false>;
    if (f16)
        return early ? (const void *)end_kernel<D, true, true, true>
                     : (const void *)end_kernel<D, false, true, true>;
    return early ? (const void *)end_kernel<D, true, true, false>
                 : (const void *)end_kernel<D, false, true, false>;
}

ordo_status ordo_backward_end(const ordo_cuda_pass *pass, bool early, char *why, size_t why_size)
{
    row_args args = arguments(pass);
    args.a = pass->dq;
    const bool plain = ordo_backward_plain(pass);
    const ordo_cuda_grid grid = { (unsigned)(2 * args.tiles), 128, 0,
                                  early ? ORDO_LAUNCH_EARLY : ORDO_LAUNCH_PLAIN };
    const void *kernel = pass->bucket == 64 ? end_of<64>(plain, early, pass->f16)
                                            : end_of<128>(plain, early, pass->f16);
    if (args.tiles > 0)
        CUDA_TRY(ordo_cuda_launch(kernel, &args, grid, pass->stream, why, why_size));
    return ordo_repair_backward(pass, why, why_size);
}

static void general_arguments(const ordo_cuda_pass *pass, ordo_backward_args *args)
{
    args->batch = pass->batch;
    args->dk_rows = pass->dk;
    args->dv_rows = pass->dv;
    args->head_dim = pass->head_dim;
    args->ruled = pass->softcap > 0.0f || pass->slopes;
    args->rule = ordo_score_rule_of(pass->scale, pass->softcap);
    if (args->ruled)
        args->scale_log2 = 1.0f;
    args->slopes = pass->slopes;
    args->slopes_sequence = pass->slopes_sequence;
    args->maker = ordo_keep_maker_of(pass);
}

ordo_status ordo_backward_arguments(const ordo_cuda_pass *pass, int rows, int keys,
                                    ordo_backward_args *args, int *blocks, char *why,
                                    size_t why_size)
{
    const ordo_run *run = &pass->run;
    const bool plain = ordo_backward_plain(pass), packed = pass->layout == ORDO_PACKED;
    const int64_t sequences = packed ? 1 : run->sequences;
    /* An extent of no rows is none; nothing is copied from it. */
    const int64_t q_rows = plain ? run->band.q_len : pass->q_rows > 0 ? pass->q_rows : 1;
    const int64_t kv_rows = plain ? run->band.kv_len : pass->kv_rows > 0 ? pass->kv_rows : 1;
    const ordo_cuda_lengths q = { q_rows, run->kv_heads * run->group_heads, sequences,
                                  pass->head_dim };
    const ordo_cuda_lengths kv = { kv_rows, run->kv_heads, sequences, pass->head_dim };
    CUDA_TRY(ordo_cuda_map(&args->q, &pass->q, q, rows, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->dout, &pass->dout, q, rows, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->k, &pass->k, kv, keys, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->v, &pass->v, kv, keys, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->dk, &pass->dk, kv, 64, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->dv, &pass->dv, kv, 64, why, why_size));
    args->run = *run;
    args->first_class = ordo_run_tickets(run, 0);
    args->units = args->first_class + ordo_run_tickets(run, 1); /* ragged: no more than these */
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
    general_arguments(pass, args);
    CUDA_TRY(ordo_cuda_blocks(run->workers, args->units, blocks, why, why_size));
    if (*blocks == 0) /* no keys at all: it draws a ticket and ends */
        *blocks = 1;
    return ORDO_OK;
}
