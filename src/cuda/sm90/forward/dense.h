/* sm90/forward/dense.h: O = softmax(Q K^T) V and its log-sum-exp of dense batches whose head size
 * is D, under full or causal masks. docs/design/hopper-forward.md draws roles and buffers.
 *
 * A block owns one query tile and walks the key tiles that the mask leaves, last first. One
 * producer thread loads; each consumer warpgroup owns 64 rows. In the mainloop the product P V of
 * one key tile runs while the scores of the next are computed, and the warpgroups issue their
 * products one after the other (ping-pong), so that the exponentials of one overlap the products of
 * the others. Every row is summed in one order: key tiles downwards, columns as the products add
 * them. Partial tiles come before the whole ones. */
#ifndef CUDA_SM90_FORWARD_DENSE_H
#define CUDA_SM90_FORWARD_DENSE_H

#include "cuda/sm90/forward/epilogue.h"
#include "cuda/sm90/forward/keep.h"

/* MAKER: of the bits, if SOURCE says that they are made. */
template <int D, ordo_keep_source SOURCE, bool F16, class MAKER = dense_maker>
__global__ void __launch_bounds__(forward_shape<D, D, false>::THREADS, 1)
    forward_dense_kernel(const __grid_constant__ ordo_forward_args args)
{
    using Z = forward_shape<D, D, false>;
    extern __shared__ __align__(1024) char smem[];
    const int warpgroup = forward_begin<Z>(), lane = threadIdx.x % 32;
    if (warpgroup == 0) {
        registers_down<Z::PRODUCER_REGISTERS>();
        if (threadIdx.x < 32 && elect_one())
            forward_load<D, D, false>(args, smem);
        return;
    }

    /* ---- products ---- */
    registers_up<Z::CONSUMER_REGISTERS>();
    const int mine = warpgroup - 1, warp = threadIdx.x / 32 % 4;
    const uint32_t q_low0 = ordo_descriptor_low(Z::Q + mine * 64 * ORDO_LINE_BYTES, 16);
    const uint32_t k_low0 = ordo_descriptor_low(Z::K, 16);
    const uint32_t v_low0 = ordo_descriptor_low(Z::V, Z::COLUMNS * ORDO_LINE_BYTES);
    const bool made = SOURCE == ORDO_KEEP_MADE;
    const ordo_keep maker = made ? keep_now(args) : ordo_keep();
    ordo_keep_keys keys = made ? keep_keys_now(maker) : ordo_keep_keys();
    float o[D / 2];
    uint32_t p[Z::COLUMNS / 4];
    int stage = 0, parity = 0;
    uint32_t q_low = q_low0;

    auto advance = [&] {
        if (++stage == Z::STAGES) {
            stage = 0;
            parity ^= 1;
        }
    };

    if (mine == 0)
        named_arrive(PINGPONG, 256);
    for (uint32_t drawn = 0;; drawn++) {
        const uint32_t q_stage = forward_q_stage<Z>(drawn);
        mbar_wait(Z::Q_FULL + 8 * q_stage, forward_q_parity<Z>(drawn));
        const forward_slot unit = forward_slot_read<Z>(drawn);
        if (unit.row < 0)
            break;
        q_low = q_low0 + q_stage * (Z::Q_BYTES / 16);
        const int all_head = unit.batch * args.issue.heads + unit.head; /* over all sequences */
        const int first = unit.row + mine * 64, row = first + warp * 16 + lane / 4;
        const int column = 2 * (lane % 4);
        const ordo_band &band = args.issue.band;
        const int whole = min(band.kv_len, first + band.high + 1); /* columns all rows see */
        const int limit[2] = { min(band.kv_len, row + band.high + 1),
                               min(band.kv_len, row + 8 + band.high + 1) };
        /* Rows that do not exist have no bits and are not written: they use the last row's. */
        const int block = min(first + warp * 16, (band.q_len - 1) / 16 * 16);
        const uint2 *const keep0 = (const uint2 *)args.keep_bits +
                                   ordo_keep_at(all_head, block, 0, band.q_len, band.kv_len) * 32 +
                                   lane;
        uint2 keep = { 0, 0 }, ahead = { 0, 0 };
        row_state state = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            o[i] = 0.0f;

        int tile = unit.last;
        const int own = min(band.kv_len, first + 64 + band.high); /* columns its last row sees */
        /* Key tiles that only other warpgroups see: release them and let the next one issue. */
        for (; tile > 0 && tile * Z::COLUMNS >= own; tile--) {
            const uint32_t k_empty = Z::K_EMPTY + 8 * stage;
            mbar_wait(Z::K_FULL + 8 * stage, parity);
            mbar_arrive_warp(k_empty, lane);
            mbar_wait(Z::V_FULL + 8 * stage, parity);
            mbar_arrive_warp(Z::V_EMPTY + 8 * stage, lane);
            named_sync(PINGPONG + mine, 256);
            named_arrive(PINGPONG + (mine + 1) % Z::CONSUMERS, 256);
            advance();
        }

        /* Bits of a block of 128 columns. Given ones are read a tile ahead. */
        auto words = [&](int at) { return load_once(keep0 + max(at, 0) * 32); };
        if (SOURCE == ORDO_KEEP_GIVEN)
            ahead = words(tile);
        auto given = [&] {
            if constexpr (SOURCE == ORDO_KEEP_GIVEN) {
                keep = ahead;
                ahead = words(tile - 1);
            }
        };
        const uint32_t keep_head = keep_head_of(
            args, args.batch.first.id + (uint32_t)unit.batch * args.batch.step.id, unit.head);
        ordo_keep_product lines[2] = {};
        if constexpr (made) {
            keep_keys_own(keys, row);
#pragma unroll
            for (int r = 0; r < 2; r++)
                lines[r] =
                    keep_line_now(keys, keep_head, args.row0 + (uint32_t)row + 8 * r, lane % 4);
        }
        /* Bits are made in two draws: draw 0 while S is computed, draw 1 between the maxima and the
         * end of O. The branches keep the compiler from moving both to after the exponentials. */
        auto draw = [&](int number) {
            MAKER::draw(keep, args, maker, keys, lines, keep_head, args.row0 + (uint32_t)row,
                        args.block0 + (uint32_t)tile, number);
        };
        /* partial: a tile that rows see in part. */
        auto soften = [&](float(&s)[Z::COLUMNS / 2], auto partial) {
            if constexpr (partial.value)
                mask_from(s, limit, tile * Z::COLUMNS + column);
            if constexpr (made) {
                float top[2] = { row_top(s, state, 0), row_top(s, state, 1) };
                asm volatile("" : "+f"(top[0]), "+f"(top[1])); /* before the branch */
                draw(1);
                row_softmax(s, top[0], args.scale_log2, state, 0);
                row_softmax(s, top[1], args.scale_log2, state, 1);
            } else {
                softmax_step(s, args.scale_log2, state);
            }
        };

        int last_stage = stage, last_parity = parity;
        { /* the first tile: scores only */
            float s[Z::COLUMNS / 2];
            mbar_wait(Z::K_FULL + 8 * stage, parity);
            wgmma_pin(s);
            wgmma_fence();
            forward_scores<Z, F16>(s, q_low, k_low0 + stage * (Z::K_BYTES / 16));
            wgmma_commit();
            given();
            if constexpr (made)
                draw(0);
            wgmma_wait<0>();
            wgmma_pin(s);
            mbar_arrive_warp(Z::K_EMPTY + 8 * stage, lane);
            soften(s, constant<true>());
            pack_probabilities<SOURCE != ORDO_KEEP_NONE, F16>(p, s, keep);
        }
        advance();
        /* One iteration of the mainloop: scores of this tile, outputs of the one before. */
        auto step = [&](auto partial) {
            float s[Z::COLUMNS / 2];
            given();
            mbar_wait(Z::K_FULL + 8 * stage, parity);
            named_sync(PINGPONG + mine, 256);
            wgmma_pin(s);
            wgmma_pin(o);
            wgmma_fence();
            forward_scores<Z, F16>(s, q_low, k_low0 + stage * (Z::K_BYTES / 16));
            wgmma_commit();
            mbar_wait(Z::V_FULL + 8 * last_stage, last_parity);
            wgmma_fence();
            forward_outputs<Z, F16>(o, p, v_low0 + last_stage * (Z::V_BYTES / 16));
            wgmma_commit();
            named_arrive(PINGPONG + (mine + 1) % Z::CONSUMERS, 256);
            if constexpr (made)
                draw(0);
            wgmma_wait<1>();
            wgmma_pin(s);
            mbar_arrive_warp(Z::K_EMPTY + 8 * stage, lane);
            soften(s, partial);
            wgmma_wait<0>();
            wgmma_pin(o);
            mbar_arrive_warp(Z::V_EMPTY + 8 * last_stage, lane);
            pack_probabilities<SOURCE != ORDO_KEEP_NONE, F16>(p, s, keep);
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                o[i] *= state.shrink[i / 2 % 2];
            last_stage = stage;
            last_parity = parity;
            advance();
        };
#pragma unroll 1
        for (tile--; tile >= 0 && (tile + 1) * Z::COLUMNS > whole; tile--)
            step(constant<true>());
#pragma unroll 1
        for (; tile >= 0; tile--)
            step(constant<false>());
        mbar_arrive_warp(Z::Q_EMPTY + 8 * q_stage, lane);
        mbar_wait(Z::V_FULL + 8 * last_stage, last_parity);
        wgmma_pin(o);
        wgmma_fence();
        forward_outputs<Z, F16>(o, p, v_low0 + last_stage * (Z::V_BYTES / 16));
        wgmma_commit();
        const int64_t lse = (int64_t)all_head * (int32_t)args.batch.lse_head;
        const forward_end at = { first, row, band.q_len, first, unit.head, unit.batch, lse, 0 };
        /* The rows' sums are taken while the last product runs. */
        const forward_weights weights =
            forward_sums<SOURCE != ORDO_KEEP_NONE, false, F16>(args, state, at);
        wgmma_wait<0>();
        wgmma_pin(o);
        mbar_arrive_warp(Z::V_EMPTY + 8 * last_stage, lane);
        forward_epilogue<D, D, false, F16>(args, smem, o, weights, at, mine);
    }
    if (threadIdx.x % 128 == 0)
        bulk_wait();
}

template <int D, ordo_keep_source SOURCE, bool F16, class MAKER = dense_maker>
static ordo_forward_instance forward_dense_instance(void)
{
    using Z = forward_shape<D, D, false>;
    static_assert(!Z::O_IN_Q && (int)Z::COLUMNS == (int)ORDO_KEEP_COLS,
                  "O has a buffer of its own; a tile has a block of keep bits");
    return { (const void *)forward_dense_kernel<D, SOURCE, F16, MAKER>, Z::ROWS, Z::COLUMNS,
             Z::THREADS, Z::BYTES };
}

#endif
