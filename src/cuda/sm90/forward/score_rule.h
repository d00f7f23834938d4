/* sm90/forward/score_rule.h: the forward kernel for any batch and band, without dropout, where what
 * happens to scores before the softmax is known when the kernel is compiled: nothing, softcap, or
 * ALiBi. Units, roles, buffers, the order of sums and so the bits are those of the varlen kernel
 * of kernel.h.
 *
 * Code that runs once per unit is slow (docs/design/hopper-tuning.md), and windows and short
 * sequences have short units. So there is one loop for all key tiles: products are issued at its
 * end, the first tile has no copy of its own, and masks are a branch around few instructions. */
#ifndef CUDA_SM90_FORWARD_SCORE_RULE_H
#define CUDA_SM90_FORWARD_SCORE_RULE_H

#include "cuda/sm90/forward/epilogue.h"
#include "cuda/sm90/wgmma.h"
#include "cuda/sm90/zero_rows.h"

template <int D, bool F16, ordo_forward_rule RULE>
__global__ void __launch_bounds__(forward_shape<D, D, true>::THREADS, 1)
    forward_score_rule_kernel(const __grid_constant__ ordo_forward_args args)
{
    using Z = forward_shape<D, D, true>;
    extern __shared__ __align__(1024) char smem[];
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        if ((uint32_t)__cvta_generic_to_shared(smem) != ORDO_SMEM_BASE)
            ordo_fault();
        forward_barriers<Z>();
    }
    __syncthreads();
    grid_let_next(); /* the repair: it waits by itself */

    if (warpgroup == 0) {
        registers_down<Z::PRODUCER_REGISTERS>();
        if (threadIdx.x < 32 && elect_one())
            forward_load<D, D, true>(args, smem);
        return;
    }

    /* ---- products ---- */
    registers_up<Z::CONSUMER_REGISTERS>();
    const int mine = warpgroup - 1, warp = threadIdx.x / 32 % 4;
    const uint32_t k_low0 = ordo_descriptor_low(Z::K, 16);
    const uint32_t v_low0 = ordo_descriptor_low(Z::V, Z::COLUMNS * ORDO_LINE_BYTES);
    float s[Z::COLUMNS / 2], o[D / 2];
    uint32_t p[Z::COLUMNS / 4], q_low = 0;
    int stage = 0, parity = 0, last_stage = 0, last_parity = 0;

    auto issue_scores = [&] {
        const uint32_t k_low = k_low0 + stage * (Z::K_BYTES / 16);
        wgmma_pin(s);
        wgmma_pin(o);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma_ss<F16, 0, 0>(s, wgmma_by_columns(q_low, Z::ROWS, k),
                                wgmma_by_columns(k_low, Z::COLUMNS, k), k > 0);
        wgmma_commit();
    };
    auto issue_outputs = [&] { /* of the tile before */
                               const uint32_t v_low = v_low0 + last_stage * (Z::V_BYTES / 16);
                               mbar_wait(Z::V_FULL + 8 * last_stage, last_parity);
                               wgmma_fence();
#pragma unroll
                               for (int k = 0; k < Z::COLUMNS / 16; k++)
                                   wgmma_rs<F16, 1>(o, p + 4 * k, wgmma_by_rows(v_low, k), 1);
                               wgmma_commit();
    };
    auto advance = [&] {
        if (++stage == Z::STAGES) {
            stage = 0;
            parity ^= 1;
        }
    };
    /* A key tile that only other warpgroups see: release it and let the next warpgroup issue. */
    auto pass_on = [&] {
        mbar_wait(Z::K_FULL + 8 * stage, parity);
        mbar_arrive_warp(Z::K_EMPTY + 8 * stage, lane);
        mbar_wait(Z::V_FULL + 8 * stage, parity);
        mbar_arrive_warp(Z::V_EMPTY + 8 * stage, lane);
        named_sync(PINGPONG + mine, 256);
        named_arrive(PINGPONG + (mine + 1) % Z::CONSUMERS, 256);
        advance();
    };

    if (mine == 0)
        named_arrive(PINGPONG, 256);
    for (uint32_t drawn = 0;; drawn++) {
        const uint32_t q_stage = forward_q_stage<Z>(drawn);
        mbar_wait(Z::Q_FULL + 8 * q_stage, forward_q_parity<Z>(drawn));
        const forward_record &record = *forward_record_of<Z>(smem, drawn);
        if (record.head < 0)
            break;
        q_low = ordo_descriptor_low(Z::Q + mine * 64 * ORDO_LINE_BYTES, 16) +
                q_stage * (Z::Q_BYTES / 16);
        const int first = record.row + mine * 64, row = first + warp * 16 + lane / 4;
        const int column = 2 * (lane % 4);
        row_state state = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            o[i] = 0.0f;

        int tile = record.last;
        const int own = first >= record.q_len ? 0 : min(record.kv_len, first + 64 + record.high);
        for (; tile > record.first && tile * Z::COLUMNS >= own; tile--)
            pass_on();
        /* It sees key tiles down to `stop`, those from `cut_from` on and before `cut_to` in part */
        const int begun = tile;
        const int stop = max(record.first, min(tile, max(0, first + record.low) / Z::COLUMNS));
        const int whole = min(record.kv_len, first + record.high + 1);
        const int cut_from = max(0, whole) / Z::COLUMNS;
        const int cut_to = (max(0, first + 63 + record.low) + Z::COLUMNS - 1) / Z::COLUMNS;

        /* A tile that rows see in part. Limits are read from the record: they are not live in
         * between. In a ragged batch the last tile of V may reach beyond its sequence. */
        auto mask = [&] {
            const int at = tile * Z::COLUMNS, end = at + Z::COLUMNS, from = at + column;
            if (end > record.kv_len) {
                mask_from(s, { record.kv_len - from, record.kv_len - from }, 0);
                if (args.batch.table) {
                    mbar_wait(Z::V_FULL + 8 * stage, parity);
                    zero_rows(Z::V + stage * Z::V_BYTES, Z::COLUMNS, Z::V_PANELS,
                              record.kv_len - at, threadIdx.x, OWN + mine);
                }
            }
            if (end > first + record.high + 1) {
                const int limit = row + record.high + 1 - from;
                mask_diagonal(s, [limit](int c) { return c >= limit; });
            }
            if (tile < cut_to) {
                const int limit = row + record.low - from;
                mask_diagonal(s, [limit](int c) { return c < limit; });
            }
        };
        auto soften = [&](float slope, int away) {
            float top[2];
            auto find_top = [&] {
                top[0] = row_top(s, state, 0);
                top[1] = row_top(s, state, 1);
            };
            if constexpr (RULE == ORDO_RULE_CAP)
                cap_scores<true>(s, args.rule);
            if constexpr (RULE == ORDO_RULE_DISTANCE)
                subtract_distance<-1>(s, slope, away);
            if (tile < cut_from && tile >= cut_to) {
                find_top(); /* in both branches: the compiler waits for the outputs after them */
            } else {
                mask();
                find_top();
            }
            row_softmax(s, top[0], args.scale_log2, state, 0);
            row_softmax(s, top[1], args.scale_log2, state, 1);
        };

        mbar_wait(Z::K_FULL + 8 * stage, parity);
        issue_scores();
        wgmma_commit(); /* no outputs yet */
#pragma unroll 1
        for (;;) {
            const int away = row + record.diagonal - tile * Z::COLUMNS - column;
            const float slope = record.slope * args.rule.slope;
            wgmma_wait<1>();
            wgmma_pin(s);
            mbar_arrive_warp(Z::K_EMPTY + 8 * stage, lane);
            soften(slope, away);
            wgmma_wait<0>();
            wgmma_pin(o);
            mbar_arrive_warp(Z::V_EMPTY + 8 * last_stage, tile != begun ? lane : 1);
#pragma unroll
            for (int i = 0; i < Z::COLUMNS / 4; i++)
                p[i] = pack_pair<F16>(s[2 * i], s[2 * i + 1]);
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                o[i] *= state.shrink[i / 2 % 2];
            last_stage = stage;
            last_parity = parity;
            advance();
            if (--tile < stop)
                break;
            mbar_wait(Z::K_FULL + 8 * stage, parity);
            named_sync(PINGPONG + mine, 256);
            issue_scores();
            issue_outputs();
            named_arrive(PINGPONG + (mine + 1) % Z::CONSUMERS, 256);
        }
        mbar_arrive_warp(Z::Q_EMPTY + 8 * q_stage, lane);
        wgmma_pin(o);
        issue_outputs();
        const forward_end at = { first,       row,          record.q_len, record.q_row + first,
                                 record.head, record.batch, record.lse,   0 };
        /* The rows' sums are taken while the last product runs. */
        const forward_weights weights = forward_sums<false, true, F16>(args, state, at);
        wgmma_wait<0>();
        wgmma_pin(o);
        mbar_arrive_warp(Z::V_EMPTY + 8 * last_stage, lane);
        for (; tile >= record.first; tile--)
            pass_on();
        forward_epilogue<D, D, true, F16>(args, smem, o, weights, at, mine);
    }
    if (threadIdx.x % 128 == 0)
        bulk_wait();
}

template <int D, bool F16, ordo_forward_rule RULE>
static ordo_forward_instance forward_score_rule_instance(void)
{
    using Z = forward_shape<D, D, true>;
    static_assert(!Z::O_IN_Q, "O has a buffer of its own");
    return { (const void *)forward_score_rule_kernel<D, F16, RULE>, Z::ROWS, Z::COLUMNS, Z::THREADS,
             Z::BYTES };
}

#endif
