/* sm90/forward/spread_scores.h: the scores of long sequences: spread.h. A block has a share of all
 * slots, whatever units they belong to; a loader warp, or four in a gather, runs ahead. */
#ifndef CUDA_SM90_FORWARD_SPREAD_SCORES_H
#define CUDA_SM90_FORWARD_SPREAD_SCORES_H

#include "cuda/sm90/forward/spread.h"

template <int D> struct spread_scores_shape : decode_shape<D> {
    using P = decode_shape<D>;
    enum {
        ROOM = ORDO_SMEM_MOST - ORDO_SMEM_BASE - P::Q_BYTES - 256,
        STAGES = ROOM / P::K_BYTES < 8 ? ROOM / P::K_BYTES : 8,
        Q = ORDO_SMEM_BASE,
        K = Q + P::Q_BYTES,
        Q_FULL = K + STAGES * P::K_BYTES,
        Q_EMPTY = Q_FULL + 8,
        K_FULL = Q_EMPTY + 8,
        K_EMPTY = K_FULL + 8 * STAGES,
        END = K_EMPTY + 8 * STAGES,
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)END <= (int)ORDO_SMEM_MOST, "shared memory");
};

/* A block's slots of one unit: part(unit, first key tile, their number, first slot) for each unit
 * that it has. Blocks have equal shares of all slots. */
template <int D, class F> ORDO_DEVICE void spread_parts(const ordo_paged_args &args, F part)
{
    const ordo_spread_list &list = *ordo_spread_list_of(&args.pages.spread);
    const int64_t all = (int64_t)list.slots * args.run.kv_heads;
    const int64_t end = all * (blockIdx.x + 1) / gridDim.x;
    for (int64_t slot = all * blockIdx.x / gridDim.x; slot < end;) {
        const ordo_spread_at at = ordo_spread_find(&list, slot);
        const decode_record unit =
            spread_describe<D>(args, list.at[at.number].sequence, at.key_head);
        const int tiles = unit.last - unit.first + 1;
        const int64_t stop = min(end, at.first + tiles);
        if (slot < stop)
            part(unit, unit.last - at.tile, (int)(stop - slot), slot);
        slot = min(end, at.first + ordo_spread_slots(tiles));
    }
}

/* A tile of K by the copy engine; `begin`: the lane of its first piece. */
template <int D>
ORDO_DEVICE void spread_copy_keys(const ordo_paged_args &args, const page_span &span, int begin,
                                  int key_head, uint32_t at, uint32_t full, uint64_t policy)
{
    using Z = spread_scores_shape<D>;
    const int lane = threadIdx.x % 32, shift = args.copy_shift;
    const uint32_t piece = (uint32_t)(lane - begin), bytes = (uint32_t)ORDO_LINE_BYTES << shift;
    const bool mine = piece < (uint32_t)(Z::COLUMNS >> shift) && span.page >= 0;
    const uint32_t copied = __ballot_sync(~0u, mine);
    if (lane == 0)
        mbar_expect(full, (uint32_t)__popc(copied) * Z::PANELS * bytes);
    __syncwarp();
    if (mine)
#pragma unroll
        for (int panel = 0; panel < Z::PANELS; panel++)
            tma_load(at + (uint32_t)panel * (Z::COLUMNS * ORDO_LINE_BYTES) + piece * bytes,
                     &args.map.k, full, panel * ORDO_PANEL_COLUMNS, span.row, key_head, span.page,
                     policy);
}

template <int D, bool GATHER>
ORDO_DEVICE void spread_load_keys(const ordo_paged_args &args, int warp)
{
    using Z = spread_scores_shape<D>;
    const uint64_t policy = policy_evict_first();
    pipeline_state<Z::STAGES> to;
    to.parity = 1;
    uint32_t drawn = 0;
    spread_parts<D>(args, [&](const decode_record &unit, int tile, int count, int64_t) {
        page_piece now = {}, next = {}; /* in a gather */
        page_span span = {};            /* else */
        int begin = 0;
        if (GATHER) {
            now = decode_find<D, true>(args, unit, tile, warp);
            next = decode_find<D, true>(args, unit, tile - 1, warp);
        } else {
            span = page_span_find<Z::COLUMNS>(args, unit, tile, 1, unit.first);
        }
        if (warp == 0) {
            mbar_wait(Z::Q_EMPTY, drawn & 1 ^ 1);
            decode_load_q<D>(args, unit, Z::Q, Z::Q_FULL, policy);
        }
        drawn++;
        for (int n = 0; n < count; n++, to.advance()) {
            const uint32_t at = Z::K + to.stage * Z::K_BYTES, full = Z::K_FULL + 8 * to.stage;
            mbar_wait(Z::K_EMPTY + 8 * to.stage, to.parity);
            if (GATHER) {
                decode_gather<D>(now, unit.key_head, args.k, args.head_dim, at, full, warp);
                now = next;
                next = decode_find<D, true>(args, unit, tile - n - 2, warp);
                continue;
            }
            spread_copy_keys<D>(args, span, begin, unit.key_head, at, full, policy);
            begin += Z::COLUMNS >> args.copy_shift;
            if (begin == 32) { /* before its stage is empty: the table's latency is hidden */
                begin = 0;
                span = page_span_find<Z::COLUMNS>(args, unit, tile - n - 1, 1, unit.first);
            }
        }
    });
}

/* Stores the scores of a slot's lines, and their maxima: by the warp that has them. */
template <int N>
ORDO_DEVICE void spread_store(const ordo_paged_args &args, int64_t slot, const float (&s)[N])
{
    const int lane = threadIdx.x % 32;
    const ordo_cuda_spread &spread = args.pages.spread;
    const row_state none = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
#pragma unroll
    for (int r = 0; r < SPREAD_GROUPS; r++) {
        if (r * ORDO_SPREAD_GROUP >= spread.lines)
            break;
        float top = row_top(s, none, r);
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        if (lane % 4 == 0)
            ordo_spread_tops(&spread, slot)[r * ORDO_SPREAD_GROUP + lane / 4] = top;
        char *const to = ordo_spread_group(&spread, args.run.kv_heads, 2 * N, slot, r);
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            *(float4 *)(to + ordo_spread_place(n, lane)) =
                make_float4(s[8 * n + 2 * r], s[8 * n + 2 * r + 1], s[8 * n + 4 + 2 * r],
                            s[8 * n + 4 + 2 * r + 1]);
    }
}

template <int D, bool F16, bool GATHER>
__global__ void __launch_bounds__(decode_threads<GATHER>, 1)
    spread_scores_kernel(const __grid_constant__ ordo_paged_args args)
{
    using Z = spread_scores_shape<D>;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    block_begin([] {
        mbar_init(Z::Q_FULL, 1);
        mbar_init(Z::Q_EMPTY, 4);
        for (int s = 0; s < Z::STAGES; s++) {
            mbar_init(Z::K_FULL + 8 * s, GATHER ? 32 * DECODE_LOADERS : 1);
            mbar_init(Z::K_EMPTY + 8 * s, 4);
        }
    });
    grid_let_next();
    grid_wait();
    if (warp >= 4) {
        spread_load_keys<D, GATHER>(args, warp - 4);
        return;
    }
    const uint32_t q_low = ordo_descriptor_low(Z::Q, 16), k_low0 = ordo_descriptor_low(Z::K, 16);
    float s[Z::COLUMNS / 2];
    pipeline_state<Z::STAGES> now;
    uint32_t drawn = 0;
    spread_parts<D>(args, [&](const decode_record &unit, int tile, int count, int64_t slot) {
        const decode_rows rows = decode_rows_of(args, unit);
        mbar_wait(Z::Q_FULL, drawn++ & 1);
#pragma unroll 1
        for (int n = 0; n < count; n++, tile--, slot++) {
            mbar_wait(Z::K_FULL + 8 * now.stage, now.parity);
            if (GATHER)
                fence_shared_to_async();
            wgmma_pin(s);
            wgmma_fence();
            forward_scores<Z, F16>(s, q_low, k_low0 + now.stage * (Z::K_BYTES / 16));
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(s);
            mbar_arrive_warp(Z::K_EMPTY + 8 * now.stage, lane);
            now.advance();
            if (warp > 0) /* no lines */
                continue;
            const int at = tile * Z::COLUMNS + 2 * (lane % 4);
            if (args.has_rule)
                decode_rule(s, args.rule, rows, unit.diagonal, at);
            /* Partial for some row. */
            if (tile * Z::COLUMNS < max(unit.start, unit.query + unit.queries - 1 + unit.low) ||
                (tile + 1) * Z::COLUMNS > min(unit.kv_len, unit.query + unit.high + 1))
                mask_window(s, { rows.from[0] - at, rows.from[1] - at },
                            { rows.to[0] - at - 1, rows.to[1] - at - 1 }, -INFINITY);
            spread_store(args, slot, s);
        }
        mbar_arrive_warp(Z::Q_EMPTY, lane);
    });
}

template <int D, bool F16, bool GATHER> static ordo_forward_instance spread_scores_instance(void)
{
    using Z = spread_scores_shape<D>;
    return { (const void *)spread_scores_kernel<D, F16, GATHER>, Z::ROWS, Z::COLUMNS,
             decode_threads<GATHER>, Z::BYTES };
}

#endif
