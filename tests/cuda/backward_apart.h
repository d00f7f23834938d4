/* backward_apart.h: the backward pass in two kernels that owe each other nothing: dK and dV by the
 * chains without their dQ, then dQ by blocks that own query tiles. No turns, no sums in memory: an
 * order exists only inside a block. Seven products instead of five; the oracle of the ordered form,
 * whose dK and dV it repeats bit for bit.
 *
 * A block of the second kernel keeps a tile of queries, its output gradients, and dQ in registers,
 * and walks the key tiles that the mask leaves it, last first. One thread loads; each of two
 * consumer warpgroups owns 64 rows. The two issue in alternation (ping-pong). A step issues
 *
 *     dQ += dS(j-1) K(j-1) | S(j) = Q K(j)^T | dP(j) = dO V(j)^T
 *
 * and turns S and dP into dS under the products of the other warpgroup. dS is a register operand
 * as it is. Every row's sum has one order: key tiles downwards, columns as the products add them.
 */
#ifndef TESTS_CUDA_BACKWARD_APART_H
#define TESTS_CUDA_BACKWARD_APART_H

#include <cuda_runtime.h>
#include <math.h>

#include "cuda/pass/forward_order.h"
#include "cuda/sm90/backward/kernel.h"
#include "cuda/sm90/backward/rows.h"
#include "cuda/support/launch.h"
#include "cuda/support/repair.h"

template <int D> struct apart_shape {
    enum {
        CONSUMERS = 2, /* consumer warpgroups */
        ROWS = 64 * CONSUMERS,
        COLUMNS = 128,
        Q_STAGES = D == 64 ? 2 : 1,
        K_STAGES = D == 64 ? 4 : 3, /* a tile is read a step longer than V's */
        V_STAGES = D == 64 ? 4 : 2,
        THREADS = 128 * (CONSUMERS + 1),
        CONSUMER_REGISTERS = 240,
        PRODUCER_REGISTERS = 24,
        PANELS = D / ORDO_PANEL_COLUMNS,
        Q_BYTES = ROWS * D * 2,
        KV_BYTES = COLUMNS * D * 2,
        /* shared memory */
        Q = ORDO_SMEM_BASE, /* and dQ on its way out: a warpgroup's rows are its own */
        DO = Q + Q_STAGES * Q_BYTES,
        K = DO + Q_STAGES * Q_BYTES,
        V = K + K_STAGES * KV_BYTES,
        Q_FULL = V + V_STAGES * KV_BYTES, /* barriers, 8 bytes each */
        Q_EMPTY = Q_FULL + 8 * Q_STAGES,
        K_FULL = Q_EMPTY + 8 * Q_STAGES,
        K_EMPTY = K_FULL + 8 * K_STAGES,
        V_FULL = K_EMPTY + 8 * K_STAGES,
        V_EMPTY = V_FULL + 8 * V_STAGES,
        SLOT = V_EMPTY + 8 * V_STAGES, /* the units that the stages of Q belong to */
        END = SLOT + 4 * Q_STAGES,
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");
};

typedef struct apart_args {
    CUtensorMap q, dout, k, v, dq;
    ordo_forward_issue_order issue;
    int32_t units, group_heads;
    int64_t stat_rows; /* of one head, in lse2 and delta */
    float scale, scale_log2;
    const float *lse2, *delta;
    int32_t *ticket;
} apart_args;

/* Named barriers: the turn of each consumer warpgroup at the tensor cores, and one for itself. */
enum { APART_PINGPONG = 1, APART_OWN = 3 };

/* A place in a ring of stages, and the parity of its barriers there. */
template <int STAGES> struct apart_ring {
    int stage, parity;

    __device__ __forceinline__ void advance(void)
    {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* ---- loads: one thread ---- */

template <int D> ORDO_DEVICE void apart_load(const apart_args &args)
{
    using Z = apart_shape<D>;
    const uint64_t keep = policy_evict_last(), once = policy_evict_first();
    apart_ring<Z::Q_STAGES> q = { 0, 1 };
    apart_ring<Z::K_STAGES> k = { 0, 1 };
    apart_ring<Z::V_STAGES> v = { 0, 1 };
    for (int ticket = blockIdx.x; ticket < args.units; q.advance()) {
        const ordo_forward_unit unit = ordo_forward_issue(&args.issue, ticket);
        const int head = unit.head % args.issue.heads, sequence = unit.head / args.issue.heads;
        const int kv_head = head / args.group_heads, row = unit.tile * Z::ROWS;
        const uint32_t q_full = Z::Q_FULL + 8 * q.stage;
        mbar_wait(Z::Q_EMPTY + 8 * q.stage, q.parity);
        store_shared(Z::SLOT + 4 * q.stage, ticket);
        mbar_expect(q_full, 2 * Z::Q_BYTES);
        load_rows<D>(Z::Q + q.stage * Z::Q_BYTES, &args.q, q_full, Z::ROWS, row, head, sequence,
                     once);
        load_rows<D>(Z::DO + q.stage * Z::Q_BYTES, &args.dout, q_full, Z::ROWS, row, head, sequence,
                     once);
        ticket = (int)gridDim.x + atomicAdd(args.ticket, 1);
        for (int tile = unit.keys - 1; tile >= 0; tile--) {
            const uint32_t k_full = Z::K_FULL + 8 * k.stage, v_full = Z::V_FULL + 8 * v.stage;
            mbar_wait(Z::K_EMPTY + 8 * k.stage, k.parity);
            mbar_expect(k_full, Z::KV_BYTES);
            load_rows<D>(Z::K + k.stage * Z::KV_BYTES, &args.k, k_full, Z::COLUMNS,
                         tile * Z::COLUMNS, kv_head, sequence, keep);
            mbar_wait(Z::V_EMPTY + 8 * v.stage, v.parity);
            mbar_expect(v_full, Z::KV_BYTES);
            load_rows<D>(Z::V + v.stage * Z::KV_BYTES, &args.v, v_full, Z::COLUMNS,
                         tile * Z::COLUMNS, kv_head, sequence, keep);
            k.advance();
            v.advance();
        }
    }
    mbar_wait(Z::Q_EMPTY + 8 * q.stage, q.parity);
    store_shared(Z::SLOT + 4 * q.stage, -1); /* no more */
    mbar_arrive(Z::Q_FULL + 8 * q.stage);
}

/* ---- products ---- */

/* A thread's rows r and r + 8: what they see, and their statistics. */
struct apart_rows {
    int limit[2]; /* columns at or beyond it are hidden */
    float lse2[2], delta[2];
};

template <int D> struct apart_math {
    using Z = apart_shape<D>;
    enum { SCORES = Z::COLUMNS / 2, PACKED = Z::COLUMNS / 4 };
    uint32_t q_low, do_low; /* of the stage in use */

    __device__ __forceinline__ void s(float (&d)[SCORES], int stage) const /* S = Q K^T */
    {
        const uint32_t low = ordo_descriptor_low(Z::K, 16) + stage * (Z::KV_BYTES / 16);
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma_ss<false, 0, 0>(d, wgmma_by_columns(q_low, Z::ROWS, k),
                                  wgmma_by_columns(low, Z::COLUMNS, k), k > 0);
    }

    __device__ __forceinline__ void dp(float (&d)[SCORES], int stage) const /* dP = dO V^T */
    {
        const uint32_t low = ordo_descriptor_low(Z::V, 16) + stage * (Z::KV_BYTES / 16);
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma_ss<false, 0, 0>(d, wgmma_by_columns(do_low, Z::ROWS, k),
                                  wgmma_by_columns(low, Z::COLUMNS, k), k > 0);
    }

    /* dQ += dS K */
    __device__ __forceinline__ void dq(float (&d)[D / 2], const uint32_t (&ds)[PACKED],
                                       int stage) const
    {
        const uint32_t low =
            ordo_descriptor_low(Z::K, Z::COLUMNS * ORDO_LINE_BYTES) + stage * (Z::KV_BYTES / 16);
#pragma unroll
        for (int k = 0; k < Z::COLUMNS / 16; k++)
            wgmma_rs<false, 1>(d, ds + 4 * k, wgmma_by_rows(low, k), 1);
    }
};

/* Scores to probabilities; `column` is this thread's first. A tile that all rows see entirely
 * needs no mask. */
template <int N>
ORDO_DEVICE void apart_weights(float (&s)[N], const apart_rows &rows, int column, bool partial,
                               float scale_log2)
{
    if (partial) {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (8 * (i / 4) + i % 2 >= rows.limit[i / 2 % 2] - column)
                s[i] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        s[i] = exp2_approx(fmaf(s[i], scale_log2, -rows.lse2[i / 2 % 2]));
}

template <int N>
ORDO_DEVICE void apart_ds(uint32_t (&ds)[N / 2], const float (&p)[N], const float (&dp)[N],
                          const apart_rows &rows)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        ds[i] = pack_pair<false>(p[2 * i] * (dp[2 * i] - rows.delta[i % 2]),
                                 p[2 * i + 1] * (dp[2 * i + 1] - rows.delta[i % 2]));
}

ORDO_DEVICE apart_rows apart_rows_of(const apart_args &args, const ordo_forward_unit &unit, int row)
{
    apart_rows rows;
    const ordo_band &band = args.issue.band;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int at = row + 8 * r;
        const int64_t stat = unit.head * args.stat_rows + ordo_stat_place(at);
        rows.limit[r] = min(band.kv_len, at + band.high + 1);
        rows.lse2[r] = at < band.q_len ? args.lse2[stat] : INFINITY;
        rows.delta[r] = at < band.q_len ? args.delta[stat] : 0.0f;
    }
    return rows;
}

template <int D> ORDO_DEVICE void apart_begin(void)
{
    using Z = apart_shape<D>;
    for (int s = 0; s < Z::Q_STAGES; s++) {
        mbar_init(Z::Q_FULL + 8 * s, 1);
        mbar_init(Z::Q_EMPTY + 8 * s, Z::CONSUMERS);
    }
    for (int s = 0; s < Z::K_STAGES; s++) {
        mbar_init(Z::K_FULL + 8 * s, 1);
        mbar_init(Z::K_EMPTY + 8 * s, 4 * Z::CONSUMERS);
    }
    for (int s = 0; s < Z::V_STAGES; s++) {
        mbar_init(Z::V_FULL + 8 * s, 1);
        mbar_init(Z::V_EMPTY + 8 * s, 4 * Z::CONSUMERS);
    }
    mbar_init_fence();
}

template <int D>
__global__ void __launch_bounds__(384, 1) apart_kernel(const __grid_constant__ apart_args args)
{
    using Z = apart_shape<D>;
    extern __shared__ __align__(1024) char smem[];
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        if ((uint32_t)__cvta_generic_to_shared(smem) != ORDO_SMEM_BASE)
            ordo_fault();
        apart_begin<D>();
    }
    __syncthreads();

    if (warpgroup == 0) {
        registers_down<Z::PRODUCER_REGISTERS>();
        if (threadIdx.x < 32 && elect_one())
            apart_load<D>(args);
        return;
    }

    registers_up<Z::CONSUMER_REGISTERS>();
    const int mine = warpgroup - 1, warp = threadIdx.x / 32 % 4;
    const bool leader = threadIdx.x % 128 == 0;
    const uint32_t rows_at = mine * 64 * ORDO_LINE_BYTES;
    apart_ring<Z::Q_STAGES> q = { 0, 0 };
    apart_ring<Z::K_STAGES> k = { 0, 0 };
    apart_ring<Z::V_STAGES> v = { 0, 0 };
    float dq[D / 2];
    if (mine == 0)
        named_arrive(APART_PINGPONG, 256);
    for (;; q.advance()) {
        mbar_wait(Z::Q_FULL + 8 * q.stage, q.parity);
        const int ticket = load_shared(Z::SLOT + 4 * q.stage);
        if (ticket < 0)
            break;
        const ordo_forward_unit unit = ordo_forward_issue(&args.issue, ticket);
        const int first = unit.tile * Z::ROWS + mine * 64, column = 2 * (lane % 4);
        const int whole = min(args.issue.band.kv_len, first + args.issue.band.high + 1);
        const apart_rows rows = apart_rows_of(args, unit, first + warp * 16 + lane / 4);
        const uint32_t q_at = Z::Q + q.stage * Z::Q_BYTES + rows_at;
        const apart_math<D> m = { ordo_descriptor_low(q_at, 16),
                                  ordo_descriptor_low(q_at + Z::DO - Z::Q, 16) };
        uint32_t ds[apart_math<D>::PACKED];
        int tile = unit.keys - 1;
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            dq[i] = 0.0f;
        { /* the first tile: no dS yet */
            float s[apart_math<D>::SCORES], dp[apart_math<D>::SCORES];
            mbar_wait(Z::K_FULL + 8 * k.stage, k.parity);
            wgmma_pin(s);
            wgmma_fence();
            m.s(s, k.stage);
            wgmma_commit();
            mbar_wait(Z::V_FULL + 8 * v.stage, v.parity);
            wgmma_pin(dp);
            wgmma_fence();
            m.dp(dp, v.stage);
            wgmma_commit();
            wgmma_wait<1>();
            wgmma_pin(s);
            apart_weights(s, rows, tile * Z::COLUMNS + column, true, args.scale_log2);
            wgmma_wait<0>();
            wgmma_pin(dp);
            mbar_arrive_warp(Z::V_EMPTY + 8 * v.stage, lane);
            apart_ds(ds, s, dp, rows);
        }
        v.advance();
#pragma unroll 1
        for (tile--; tile >= 0; tile--) {
            float s[apart_math<D>::SCORES], dp[apart_math<D>::SCORES];
            apart_ring<Z::K_STAGES> next = k;
            next.advance();
            mbar_wait(Z::K_FULL + 8 * next.stage, next.parity);
            mbar_wait(Z::V_FULL + 8 * v.stage, v.parity);
            named_sync(APART_PINGPONG + mine, 256);
            wgmma_pin(dq);
            wgmma_fence();
            m.dq(dq, ds, k.stage);
            wgmma_commit();
            wgmma_pin(s);
            wgmma_fence();
            m.s(s, next.stage);
            wgmma_commit();
            wgmma_wait<1>(); /* dS has been read: its registers are dP's */
            wgmma_pin(dq);
            mbar_arrive_warp(Z::K_EMPTY + 8 * k.stage, lane);
            wgmma_pin(dp);
            wgmma_fence();
            m.dp(dp, v.stage);
            wgmma_commit();
            named_arrive(APART_PINGPONG + (mine ^ 1), 256);
            wgmma_wait<1>();
            wgmma_pin(s);
            apart_weights(s, rows, tile * Z::COLUMNS + column, (tile + 1) * Z::COLUMNS > whole,
                          args.scale_log2);
            wgmma_wait<0>();
            wgmma_pin(dp);
            mbar_arrive_warp(Z::V_EMPTY + 8 * v.stage, lane);
            apart_ds(ds, s, dp, rows);
            k = next;
            v.advance();
        }
        wgmma_pin(dq);
        wgmma_fence();
        m.dq(dq, ds, k.stage);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_pin(dq);
        mbar_arrive_warp(Z::K_EMPTY + 8 * k.stage, lane);
        k.advance();

        named_sync(APART_OWN + mine, 128); /* nobody reads these rows of Q any more */
        uint32_t taint = 0;
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            uint32_t out[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                out[i] = pack_pair<false>(dq[8 * c + 2 * i] * args.scale,
                                          dq[8 * c + 2 * i + 1] * args.scale);
                taint = not_finite<false>(taint, out[i]);
            }
            store_matrix4(q_at + ordo_store_offset(Z::ROWS, warp, lane, c), out[0], out[1], out[2],
                          out[3]);
        }
        if (taint)
            args.ticket[ORDO_NOT_FINITE] = 1;
        fence_shared_to_async();
        named_sync(APART_OWN + mine, 128);
        if (leader) {
#pragma unroll
            for (int p = 0; p < Z::PANELS; p++)
                tma_store(&args.dq, q_at + p * Z::ROWS * ORDO_LINE_BYTES, p * ORDO_PANEL_COLUMNS,
                          first, unit.head % args.issue.heads, unit.head / args.issue.heads);
            bulk_commit();
            bulk_wait_read();
            mbar_arrive(Z::Q_EMPTY + 8 * q.stage);
        }
    }
    if (leader)
        bulk_wait();
}

/* ---- launch ---- */

template <int D>
static ordo_status apart_keys(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    using Z = backward_shape<D, ORDO_KEEP_NONE>;
    ordo_backward_args args;
    int blocks = 0;
    CUDA_TRY(ordo_backward_arguments(pass, Z::ROWS, Z::KEYS, &args, &blocks, why, why_size));
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES, ORDO_LAUNCH_EARLY };
    return ordo_cuda_launch((const void *)backward_kernel<D, ORDO_DQ_NONE, ORDO_KEEP_NONE>, &args,
                            grid, pass->stream, why, why_size);
}

template <int D>
static ordo_status apart_queries(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    using Z = apart_shape<D>;
    const ordo_run *run = &pass->run;
    const ordo_cuda_lengths q = { run->band.q_len, run->kv_heads * run->group_heads, run->sequences,
                                  D };
    const ordo_cuda_lengths kv = { run->band.kv_len, run->kv_heads, run->sequences, D };
    apart_args args;
    args.issue = ordo_forward_order(run, Z::ROWS, Z::COLUMNS, D);
    args.units = args.issue.q_tiles * args.issue.all_heads;
    args.group_heads = run->group_heads;
    args.stat_rows = (int64_t)ordo_band_query_tiles(&run->band) * run->band.bq;
    args.scale = pass->scale;
    args.scale_log2 = pass->scale * 1.4426950408889634f;
    args.lse2 = pass->lse2;
    args.delta = pass->delta;
    args.ticket = pass->ticket;
    CUDA_TRY(ordo_cuda_map(&args.q, &pass->q, q, Z::ROWS, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args.dout, &pass->dout, q, Z::ROWS, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args.k, &pass->k, kv, Z::COLUMNS, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args.v, &pass->v, kv, Z::COLUMNS, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args.dq, &pass->dq, q, 64, why, why_size));
    int blocks = 0;
    CUDA_TRY(ordo_cuda_blocks(run->workers, args.units, &blocks, why, why_size));
    CUDA_CALL(cudaMemsetAsync(pass->ticket, 0, sizeof *pass->ticket, (cudaStream_t)pass->stream));
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES, ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch((const void *)apart_kernel<D>, &args, grid, pass->stream, why,
                            why_size);
}

template <int D>
static ordo_status apart_launch(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    CUDA_TRY(ordo_backward_begin(pass, false, why, why_size));
    CUDA_TRY(apart_keys<D>(pass, why, why_size));
    CUDA_TRY(apart_queries<D>(pass, why, why_size));
    return ordo_repair_backward(pass, why, why_size);
}

static inline ordo_status backward_apart(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return pass->head_dim == 64 ? apart_launch<64>(pass, why, why_size)
                                : apart_launch<128>(pass, why, why_size);
}

#endif
