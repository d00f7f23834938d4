/* forward.cu: O = softmax(Q K^T) V and its log-sum-exp. docs/hopper.md draws roles and buffers.
 *
 * A block keeps a tile of queries and walks the key tiles that the mask leaves it, last first: the
 * cut tiles come before the whole ones. One thread loads; each math warpgroup owns 64 rows. While
 * the product P V of one key tile runs, the next tile's scores are computed; and the warpgroups
 * take turns at the tensor cores, so that the exponentials of one hide under the products of the
 * others. Every row's sum has one order: key tiles downwards, columns as the products add them. */
#include <cuda_runtime.h>
#include <math.h>

#include "cuda/forward.h"
#include "cuda/launch.h"
#include "cuda/repair.h"
#include "cuda/wgmma.h"

template <int D> struct shape {
    enum {
        GROUPS = D == 64 ? 3 : 2, /* math warpgroups */
        ROWS = 64 * GROUPS,
        COLUMNS = 128,
        STAGES = D == 64 ? 4 : 2, /* of K and of V */
        THREADS = 128 * (GROUPS + 1),
        MATH_REGISTERS = D == 64 ? 160 : 240,
        LOAD_REGISTERS = D == 64 ? 32 : 24,
        PANELS = D / ORDO_PANEL_COLUMNS,
        Q_BYTES = ROWS * D * 2,
        KV_BYTES = COLUMNS * D * 2,
        /* shared memory */
        Q = ORDO_SMEM_BASE,
        K = Q + 2 * Q_BYTES,
        V = K + STAGES * KV_BYTES,
        O = V + STAGES * KV_BYTES,
        Q_FULL = O + Q_BYTES, /* barriers, 8 bytes each */
        Q_FREE = Q_FULL + 16,
        K_FULL = Q_FREE + 16,
        K_FREE = K_FULL + 8 * STAGES,
        V_FULL = K_FREE + 8 * STAGES,
        V_FREE = V_FULL + 8 * STAGES,
        SLOT = V_FREE + 8 * STAGES, /* the units that the two Q belong to */
        END = SLOT + 8,
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");
};

/* Named barriers: the turn of each math warpgroup at the tensor cores, and one for itself. */
enum { TURN = 1, OWN = 5 };

template <bool X> struct constant {
    static const bool value = X;
};

/* A thread's part of a row pair: rows r and r + 8 of its warp's sixteen. */
struct row_state {
    float max[2], sum[2], shrink[2];
};

/* Scores to probabilities, relative to the largest score so far; and what that did to the sums.
 * Columns at or beyond `limit` (one a row) are masked, if the tile is cut. Four chains a row: one
 * would cost its latency. */
template <bool CUT, int N>
ORDO_DEVICE void softmax_step(float (&s)[N], const int (&limit)[2], int column, float scale_log2,
                              row_state &state)
{
    if (CUT) {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (8 * (i / 4) + i % 2 >= limit[i / 2 % 2] - column)
                s[i] = -INFINITY;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top[4] = { state.max[r], -INFINITY, -INFINITY, -INFINITY };
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i / 2 % 2 == r)
                top[i / 4 % 4] = fmaxf(top[i / 4 % 4], s[i]);
        float max = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
        max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
        max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
        const float shift = max == -INFINITY ? 0.0f : max * scale_log2; /* nothing seen yet */
        state.shrink[r] = exp2_approx(fmaf(state.max[r], scale_log2, -shift));
        state.max[r] = max;
        float part[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i / 2 % 2 == r) {
                s[i] = exp2_approx(fmaf(s[i], scale_log2, -shift));
                part[i / 4 % 4] += s[i];
            }
        const float sum = (part[0] + part[1]) + (part[2] + part[3]);
        state.sum[r] = fmaf(state.sum[r], state.shrink[r], sum);
    }
}

/* P as the register operand of the next product. Dropout leaves out what `keep` does not have, a
 * word a row: shifted left, it has a pair of columns in the signs of two bytes. */
template <bool DROP, int N>
ORDO_DEVICE void pack_probabilities(uint32_t (&p)[N / 2], const float (&s)[N], uint2 keep)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        p[i] = pack_pair<false>(s[2 * i], s[2 * i + 1]);
        if (DROP) {
            const uint32_t word = (i % 2 ? keep.y : keep.x) << i / 4;
            p[i] &= i / 2 % 2 ? byte_signs<0xbbaa>(word) : byte_signs<0x9988>(word);
        }
    }
}

template <int D, bool DROP>
__global__ void __launch_bounds__(shape<D>::THREADS, 1)
    forward_kernel(const __grid_constant__ ordo_forward_args args)
{
    using Z = shape<D>;
    extern __shared__ __align__(1024) char smem[];
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        if ((uint32_t)__cvta_generic_to_shared(smem) != ORDO_SMEM_BASE)
            ordo_fault();
        for (int s = 0; s < 2; s++) {
            mbar_init(Z::Q_FULL + 8 * s, 1);
            mbar_init(Z::Q_FREE + 8 * s, 4 * Z::GROUPS);
        }
        for (int s = 0; s < Z::STAGES; s++) {
            mbar_init(Z::K_FULL + 8 * s, 1);
            mbar_init(Z::V_FULL + 8 * s, 1);
            mbar_init(Z::K_FREE + 8 * s, 4 * Z::GROUPS);
            mbar_init(Z::V_FREE + 8 * s, 4 * Z::GROUPS);
        }
        mbar_init_fence();
    }
    __syncthreads();
    grid_let_next(); /* the repair: it waits by itself */

    if (group == 0) { /* ---- loads ---- */
        registers_down<Z::LOAD_REGISTERS>();
        if (threadIdx.x >= 32 || !elect_one())
            return;
        const uint64_t keep = policy_evict_last(), once = policy_evict_first();
        int k_stage = 0, k_phase = 1, v_stage = 0, v_phase = 1;
        uint32_t drawn = 0; /* units so far */
        for (int ticket = blockIdx.x; ticket < args.units; drawn++) {
            const uint32_t q_stage = drawn & 1, q_full = Z::Q_FULL + 8 * q_stage;
            const ordo_forward_unit unit = ordo_forward_issue(&args.issue, ticket);
            const int head = unit.head % args.issue.heads;
            const int sequence = unit.head / args.issue.heads;
            const int kv_head = head / args.group_heads;
            auto load_k = [&](int tile) {
                mbar_wait(Z::K_FREE + 8 * k_stage, k_phase);
                mbar_expect(Z::K_FULL + 8 * k_stage, Z::KV_BYTES);
#pragma unroll
                for (int p = 0; p < Z::PANELS; p++)
                    tma_load(Z::K + k_stage * Z::KV_BYTES + p * Z::COLUMNS * ORDO_LINE_BYTES,
                             &args.k, Z::K_FULL + 8 * k_stage, p * ORDO_PANEL_COLUMNS,
                             tile * Z::COLUMNS, kv_head, sequence, keep);
                if (++k_stage == Z::STAGES) {
                    k_stage = 0;
                    k_phase ^= 1;
                }
            };
            load_k(unit.keys - 1); /* its stage is free before Q's */
            mbar_wait(Z::Q_FREE + 8 * q_stage, (drawn >> 1 & 1) ^ 1);
            store_shared(Z::SLOT + 4 * q_stage, ticket);
            mbar_expect(q_full, Z::Q_BYTES);
#pragma unroll
            for (int p = 0; p < Z::PANELS; p++)
                tma_load(Z::Q + q_stage * Z::Q_BYTES + p * Z::ROWS * ORDO_LINE_BYTES, &args.q,
                         q_full, p * ORDO_PANEL_COLUMNS, unit.tile * Z::ROWS, head, sequence, once);
            const int next = (int)gridDim.x + atomicAdd(args.ticket, 1);
            for (int tile = unit.keys - 1; tile >= 0; tile--) {
                if (tile > 0)
                    load_k(tile - 1);
                mbar_wait(Z::V_FREE + 8 * v_stage, v_phase);
                mbar_expect(Z::V_FULL + 8 * v_stage, Z::KV_BYTES);
#pragma unroll
                for (int p = 0; p < Z::PANELS; p++)
                    tma_load(Z::V + v_stage * Z::KV_BYTES + p * Z::COLUMNS * ORDO_LINE_BYTES,
                             &args.v, Z::V_FULL + 8 * v_stage, p * ORDO_PANEL_COLUMNS,
                             tile * Z::COLUMNS, kv_head, sequence, keep);
                if (++v_stage == Z::STAGES) {
                    v_stage = 0;
                    v_phase ^= 1;
                }
            }
            ticket = next;
        }
        mbar_wait(Z::Q_FREE + 8 * (drawn & 1), (drawn >> 1 & 1) ^ 1);
        store_shared(Z::SLOT + 4 * (drawn & 1), -1); /* no more */
        mbar_arrive(Z::Q_FULL + 8 * (drawn & 1));
        return;
    }

    /* ---- products ---- */
    registers_up<Z::MATH_REGISTERS>();
    const int mine = group - 1, warp = threadIdx.x / 32 % 4;
    const bool leader = threadIdx.x % 128 == 0;
    const uint32_t q_low0 = ordo_descriptor_low(Z::Q + mine * 64 * ORDO_LINE_BYTES, 16);
    const uint32_t k_low0 = ordo_descriptor_low(Z::K, 16);
    const uint32_t v_low0 = ordo_descriptor_low(Z::V, Z::COLUMNS * ORDO_LINE_BYTES);
    const uint32_t o_at = Z::O + mine * 64 * ORDO_LINE_BYTES;
    float o[D / 2];
    uint32_t p[Z::COLUMNS / 4];
    int stage = 0, phase = 0;
    uint32_t q_low = q_low0;

    auto scores = [&](float(&s)[Z::COLUMNS / 2], int at) {
        const uint32_t k_low = k_low0 + at * (Z::KV_BYTES / 16);
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma_ss<false, 0, 0>(s, wgmma_by_columns(q_low, Z::ROWS, k),
                                  wgmma_by_columns(k_low, Z::COLUMNS, k), k > 0);
    };
    auto outputs = [&](int at) {
        const uint32_t v_low = v_low0 + at * (Z::KV_BYTES / 16);
#pragma unroll
        for (int k = 0; k < Z::COLUMNS / 16; k++)
            wgmma_rs<false, 1>(o, p + 4 * k, wgmma_by_rows(v_low, k), 1);
    };

    auto advance = [&] {
        if (++stage == Z::STAGES) {
            stage = 0;
            phase ^= 1;
        }
    };

    if (mine == 0)
        named_arrive(TURN, 256);
    for (uint32_t drawn = 0;; drawn++) {
        const uint32_t q_stage = drawn & 1;
        mbar_wait(Z::Q_FULL + 8 * q_stage, drawn >> 1 & 1);
        const int ticket = load_shared(Z::SLOT + 4 * q_stage);
        if (ticket < 0)
            break;
        q_low = q_low0 + q_stage * (Z::Q_BYTES / 16);
        const ordo_forward_unit unit = ordo_forward_issue(&args.issue, ticket);
        const int first = unit.tile * Z::ROWS + mine * 64;
        const int row = first + warp * 16 + lane / 4;
        const int column = 2 * (lane % 4);
        const ordo_band &band = args.issue.band;
        const int whole = min(band.kv_len, first + band.high + 1); /* columns all rows see */
        const int limit[2] = { min(band.kv_len, row + band.high + 1),
                               min(band.kv_len, row + 8 + band.high + 1) };
        /* Rows that do not exist have no bits, and nobody sees theirs: they take the last ones. */
        const int block = min(first + warp * 16, (band.q_len - 1) / 16 * 16);
        const uint2 *const keep0 =
            args.keep_bits + ordo_keep_at(unit.head, block, 0, band.q_len, band.kv_len) * 32 + lane;
        uint2 keep = { 0, 0 };
        row_state state = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            o[i] = 0.0f;

        /* Tiles that only warpgroups below see: handed back, and the turns passed on. */
        int tile = unit.keys - 1;
        const int own = min(band.kv_len, first + 64 + band.high); /* columns its last row sees */
        for (; tile > 0 && tile * Z::COLUMNS >= own; tile--) {
            mbar_wait(Z::K_FULL + 8 * stage, phase);
            mbar_arrive_warp(Z::K_FREE + 8 * stage, lane);
            mbar_wait(Z::V_FULL + 8 * stage, phase);
            mbar_arrive_warp(Z::V_FREE + 8 * stage, lane);
            named_sync(TURN + mine, 256);
            named_arrive(TURN + (mine + 1) % Z::GROUPS, 256);
            advance();
        }

        int last_stage = stage, last_phase = phase;
        { /* the first tile: scores only */
            float s[Z::COLUMNS / 2];
            mbar_wait(Z::K_FULL + 8 * stage, phase);
            wgmma_pin(s);
            wgmma_fence();
            scores(s, stage);
            wgmma_commit();
            if (DROP)
                keep = load_once(keep0 + tile * 32);
            wgmma_wait<0>();
            wgmma_pin(s);
            mbar_arrive_warp(Z::K_FREE + 8 * stage, lane);
            softmax_step<true>(s, limit, tile * Z::COLUMNS + column, args.scale_log2, state);
            pack_probabilities<DROP>(p, s, keep);
        }
        advance();
        /* Scores of this tile beside outputs of the last one. */
        auto step = [&](auto cut) {
            float s[Z::COLUMNS / 2];
            if (DROP)
                keep = load_once(keep0 + tile * 32);
            mbar_wait(Z::K_FULL + 8 * stage, phase);
            named_sync(TURN + mine, 256);
            wgmma_pin(s);
            wgmma_pin(o);
            wgmma_fence();
            scores(s, stage);
            wgmma_commit();
            mbar_wait(Z::V_FULL + 8 * last_stage, last_phase);
            wgmma_fence();
            outputs(last_stage);
            wgmma_commit();
            named_arrive(TURN + (mine + 1) % Z::GROUPS, 256);
            wgmma_wait<1>();
            wgmma_pin(s);
            mbar_arrive_warp(Z::K_FREE + 8 * stage, lane);
            softmax_step<cut.value>(s, limit, tile * Z::COLUMNS + column, args.scale_log2, state);
            wgmma_wait<0>();
            wgmma_pin(o);
            mbar_arrive_warp(Z::V_FREE + 8 * last_stage, lane);
            pack_probabilities<DROP>(p, s, keep);
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                o[i] *= state.shrink[i / 2 % 2];
            last_stage = stage;
            last_phase = phase;
            advance();
        };
#pragma unroll 1
        for (tile--; tile >= 0 && (tile + 1) * Z::COLUMNS > whole; tile--)
            step(constant<true>());
#pragma unroll 1
        for (; tile >= 0; tile--)
            step(constant<false>());
        mbar_arrive_warp(Z::Q_FREE + 8 * q_stage, lane);
        mbar_wait(Z::V_FULL + 8 * last_stage, last_phase);
        wgmma_pin(o);
        wgmma_fence();
        outputs(last_stage);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_pin(o);
        mbar_arrive_warp(Z::V_FREE + 8 * last_stage, lane);

#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = state.sum[r];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            /* The row sees nothing. A sum of 0 beside a score is one too large for f32. */
            const bool blind = sum == 0.0f && state.max[r] == -INFINITY;
            const float weight = (DROP ? args.keep_scale : 1.0f) / sum;
            const int at = row + 8 * r;
            if (lane % 4 == 0 && at < band.q_len)
                args.lse[(int64_t)unit.head * band.q_len + at] =
                    blind ? -INFINITY : fmaf(state.max[r], args.scale, logf(sum));
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                if (i / 2 % 2 == r)
                    o[i] = blind ? 0.0f : o[i] * weight;
        }
        if (leader)
            bulk_wait_read(); /* the last tile's O has left */
        named_sync(OWN + mine, 128);
        uint32_t taint = 0;
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            const uint32_t pairs[4] = { pack_pair<false>(o[8 * c], o[8 * c + 1]),
                                        pack_pair<false>(o[8 * c + 2], o[8 * c + 3]),
                                        pack_pair<false>(o[8 * c + 4], o[8 * c + 5]),
                                        pack_pair<false>(o[8 * c + 6], o[8 * c + 7]) };
            taint |= not_finite<false>(pairs[0]) | not_finite<false>(pairs[1]) |
                     not_finite<false>(pairs[2]) | not_finite<false>(pairs[3]);
            store_matrix4(o_at + ordo_store_offset(Z::ROWS, warp, lane, c), pairs[0], pairs[1],
                          pairs[2], pairs[3]);
        }
        if (taint)
            args.ticket[ORDO_NOT_FINITE] = 1;
        fence_shared_to_async();
        named_sync(OWN + mine, 128);
        if (leader) {
#pragma unroll
            for (int q = 0; q < Z::PANELS; q++)
                tma_store(&args.o, o_at + q * Z::ROWS * ORDO_LINE_BYTES, q * ORDO_PANEL_COLUMNS,
                          first, unit.head % args.issue.heads, unit.head / args.issue.heads);
            bulk_commit();
        }
    }
    if (leader)
        bulk_wait();
}

/* ---- launch ---- */

template <int D, bool DROP>
static ordo_status launch(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    using Z = shape<D>;
    const int32_t heads = pass->run.kv_heads * pass->run.group_heads;
    ordo_forward_args args;
    args.issue = ordo_forward_order(&pass->run, Z::ROWS, Z::COLUMNS, D);
    args.units = args.issue.q_tiles * args.issue.all_heads;
    args.group_heads = pass->run.group_heads;
    args.scale = pass->scale;
    args.scale_log2 = pass->scale * 1.4426950408889634f;
    args.lse = pass->lse;
    args.ticket = pass->ticket;
    args.keep_scale = pass->keep_scale;
    args.keep_bits = (const uint2 *)pass->keep_bits;
    const ordo_cuda_lengths q = { pass->run.band.q_len, heads, pass->run.sequences, D };
    const ordo_cuda_lengths kv = { pass->run.band.kv_len, pass->run.kv_heads, pass->run.sequences,
                                   D };
    CUDA_TRY(ordo_cuda_map(&args.q, &pass->q, q, Z::ROWS, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args.k, &pass->k, kv, Z::COLUMNS, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args.v, &pass->v, kv, Z::COLUMNS, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args.o, &pass->o, q, 64, why, why_size));
    int blocks = 0;
    CUDA_TRY(ordo_cuda_blocks(pass->run.workers, args.units, &blocks, why, why_size));
    /* The ticket, and the flag beside it. */
    CUDA_CALL(
        cudaMemsetAsync(pass->ticket, 0, 2 * sizeof *pass->ticket, (cudaStream_t)pass->stream));
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES, ORDO_LAUNCH_PLAIN };
    CUDA_TRY(ordo_cuda_launch((const void *)forward_kernel<D, DROP>, &args, grid, pass->stream, why,
                              why_size));
    return ordo_repair_forward(pass, why, why_size);
}

ordo_status ordo_sm90_forward(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    if (pass->keep_scale > 0.0f)
        return pass->head_dim == 64 ? launch<64, true>(pass, why, why_size)
                                    : launch<128, true>(pass, why, why_size);
    return pass->head_dim == 64 ? launch<64, false>(pass, why, why_size)
                                : launch<128, false>(pass, why, why_size);
}
