/* sm90/forward/kernel.h: O = softmax(Q K^T) V and its log-sum-exp.
 * docs/design/hopper-forward.md draws roles and buffers.
 *
 * A block owns one query tile and walks the key tiles that the mask leaves, last first. One
 * producer thread loads; each consumer warpgroup owns 64 rows. In the mainloop the product P V of
 * one key tile runs while the scores of the next are computed, and the warpgroups issue their
 * products one after the other (ping-pong), so that the exponentials of one overlap the products of
 * the others. Every row is summed in one order: key tiles downwards, columns as the products add
 * them.
 *
 * The dense kernel (VARLEN false) runs dense batches whose head size is D under full or causal
 * masks: there the tiles that the mask cuts come before the whole ones. The varlen kernel decides
 * everything else at run time, except block masks, which have instances of their own (BLOCKS):
 * there a stage of K says which key tile it holds and which warpgroups see it. */
#ifndef CUDA_SM90_FORWARD_KERNEL_H
#define CUDA_SM90_FORWARD_KERNEL_H

#include "cuda/sm90/forward/blocks.h"
#include "cuda/sm90/forward/epilogue.h"
#include "cuda/sm90/wgmma.h"
#include "cuda/sm90/zero_rows.h"

template <bool X> struct constant {
    static const bool value = X;
};

template <int D, int DV, ordo_keep_source SOURCE, bool VARLEN, bool F16, bool BLOCKS = false>
__global__ void __launch_bounds__(forward_shape<D, DV, VARLEN, BLOCKS>::THREADS, 1)
    forward_kernel(const __grid_constant__ ordo_forward_args args)
{
    using Z = forward_shape<D, DV, VARLEN, BLOCKS>;
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
        if (threadIdx.x < 32 && elect_one()) {
            if constexpr (BLOCKS)
                listed_load<D, DV>(args, smem);
            else
                forward_load<D, DV, VARLEN>(args, smem);
        }
        return;
    }

    /* ---- products ---- */
    registers_up<Z::CONSUMER_REGISTERS>();
    const int mine = warpgroup - 1, warp = threadIdx.x / 32 % 4;
    const bool leader = threadIdx.x % 128 == 0;
    const uint32_t q_low0 = ordo_descriptor_low(Z::Q + mine * 64 * ORDO_LINE_BYTES, 16);
    const uint32_t k_low0 = ordo_descriptor_low(Z::K, 16);
    const uint32_t v_low0 = ordo_descriptor_low(Z::V, Z::COLUMNS * ORDO_LINE_BYTES);
    const ordo_keep maker = SOURCE == ORDO_KEEP_MADE ? keep_now(args.maker) : ordo_keep();
    const bool by_parts = SOURCE == ORDO_KEEP_MADE && !VARLEN;
    ordo_keep_keys keys = {};
    if (by_parts)
        keys = keep_keys_now(maker);
    const bool usual = ordo_keep_tile_makes(&maker);
    float o[DV / 2];
    uint32_t p[Z::COLUMNS / 4];
    int stage = 0, parity = 0;
    uint32_t q_low = q_low0;

    auto scores = [&](float(&s)[Z::COLUMNS / 2], int at) {
        const uint32_t k_low = k_low0 + at * (Z::K_BYTES / 16);
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma_ss<F16, 0, 0>(s, wgmma_by_columns(q_low, Z::ROWS, k),
                                wgmma_by_columns(k_low, Z::COLUMNS, k), k > 0);
    };
    auto outputs = [&](int at) {
        const uint32_t v_low = v_low0 + at * (Z::V_BYTES / 16);
#pragma unroll
        for (int k = 0; k < Z::COLUMNS / 16; k++)
            wgmma_rs<F16, 1>(o, p + 4 * k, wgmma_by_rows(v_low, k), 1);
    };

    auto advance = [&] {
        if (++stage == Z::STAGES) {
            stage = 0;
            parity ^= 1;
        }
    };
    /* A key tile that only other warpgroups see: release it and let the next warpgroup issue. */
    auto pass_on = [&](uint32_t k_empty) {
        mbar_wait(Z::K_FULL + 8 * stage, parity);
        mbar_arrive_warp(k_empty, lane);
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
        const forward_record &record = *forward_record_of<Z>(smem, drawn); /* if varlen */
        const forward_slot unit =
            VARLEN ? forward_slot() : forward_slot_read<Z>(drawn); /* if not */
        if ((VARLEN ? record.head : unit.row) < 0)
            break;
        q_low = q_low0 + q_stage * (Z::Q_BYTES / 16);
        const int all_head = unit.batch * args.issue.heads + unit.head; /* of all sequences */
        const int first = (VARLEN ? record.row : unit.row) + mine * 64;
        const int row = first + warp * 16 + lane / 4;
        const int column = 2 * (lane % 4);
        const ordo_band &band = args.issue.band; /* if not */
        const int &q_len = VARLEN ? record.q_len : band.q_len;
        const int &kv_len = VARLEN ? record.kv_len : band.kv_len;
        const int &high = VARLEN ? record.high : band.high;
        const int whole = min(kv_len, first + high + 1); /* columns all rows see */
        const int limit[2] = { min(kv_len, row + high + 1), min(kv_len, row + 8 + high + 1) };
        /* Rows that do not exist have no bits and are not written: they use the last row's. */
        const int block = min(first + warp * 16, (q_len - 1) / 16 * 16);
        const uint2 *const keep0 =
            args.keep_bits +
            (VARLEN ? record.keep + (int64_t)(block / 16) * record.keep_across
                    : ordo_keep_at(all_head, block, 0, q_len, kv_len)) *
                32 +
            lane;
        uint2 keep = { 0, 0 }, ahead = { 0, 0 };
        row_state state = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
#pragma unroll
        for (int i = 0; i < DV / 2; i++)
            o[i] = 0.0f;

        int tile = VARLEN ? record.last : unit.last;
        int32_t listed = 0; /* of the tile at hand: what its stage says */
        const forward_listed &more = *forward_listed_of<Z>(smem, drawn); /* if BLOCKS */
        auto look = [&] {
            mbar_wait(Z::K_FULL + 8 * stage, parity);
            listed = load_shared(Z::TILE + 4 * stage);
            tile = listed & LISTED_TILE;
        };
        auto is = [&](int flag) { return (listed >> (flag + mine) & 1) != 0; };
        auto empty = [&] { /* after what its stage says was read */
                           const uint32_t bar = Z::K_EMPTY + 8 * stage;
                           return BLOCKS ? bar_after(bar, listed) : bar;
        };
        int own = min(kv_len, first + 64 + high); /* columns its last row sees */
        if (VARLEN && first >= q_len)
            own = 0;
        if constexpr (BLOCKS)
            for (look(); tile > record.first && !is(LISTED_SEEN); look())
                pass_on(empty());
        else
            for (; tile > (VARLEN ? record.first : 0) && tile * Z::COLUMNS >= own; tile--)
                pass_on(empty());
        /* It sees key tiles down to `stop`, those from `cut_from` on and before `cut_to` in part */
        int stop = 0, cut_from = 0, cut_to = 0;
        if constexpr (VARLEN && !BLOCKS) {
            stop = max(record.first, min(tile, max(0, first + record.low) / Z::COLUMNS));
            cut_from = max(0, whole) / Z::COLUMNS;
            cut_to = (max(0, first + 63 + record.low) + Z::COLUMNS - 1) / Z::COLUMNS;
        }

        /* Whether the band hides something behind, or before, what it leaves of the tile. With a
         * block mask there are no registers for the limits. */
        auto cut_behind = [&] {
            return BLOCKS ? (tile + 1) * Z::COLUMNS > min(record.kv_len, first + record.high + 1)
                          : tile >= cut_from;
        };
        auto cut_before = [&] {
            return BLOCKS ? tile * Z::COLUMNS < first + 63 + record.low : tile < cut_to;
        };

        /* Bits of a block of 128 columns; those of a tile of 64 are half of it. Given ones are read
         * a tile ahead. */
        auto words = [&](int at) {
            return load_once(keep0 + max(at, 0) * Z::COLUMNS / ORDO_KEEP_COLS * 32);
        };
        if (SOURCE == ORDO_KEEP_GIVEN && !BLOCKS && (!VARLEN || kv_len > 0))
            ahead = words(tile);
        auto given = [&] {
            if constexpr (SOURCE == ORDO_KEEP_GIVEN &&
                          BLOCKS) { /* which tile is next is not known */
                if (kv_len > 0)
                    keep = words(tile);
            } else if constexpr (SOURCE == ORDO_KEEP_GIVEN) {
                keep = ahead;
                if (!VARLEN || kv_len > 0)
                    ahead = words(tile - 1);
            }
        };
        const uint32_t keep_head =
            VARLEN ? 0
                   : keep_head_of(args.maker,
                                  args.batch.first.id + (uint32_t)unit.batch * args.batch.step.id,
                                  unit.head);
        ordo_keep_product lines[2] = {};
        if constexpr (by_parts) {
            keep_keys_own(keys, row);
#pragma unroll
            for (int r = 0; r < 2; r++)
                lines[r] = keep_line_now(keys, keep_head, args.maker.row0 + (uint32_t)row + 8 * r,
                                         lane % 4);
        }
        /* By parts: draw 0 is made while S is computed, draw 1 between the maxima and the end of O.
         * The branches keep the compiler from moving both to after the exponentials. */
        auto draw = [&](int number) {
            const uint32_t place = args.maker.block0 + (uint32_t)tile;
            if (usual) {
                keep_draw(keep, keys, (uint32_t)maker.offset, lines, keep_head, place, args.select,
                          number);
            } else if (number == 0) {
                const uint32_t line = args.maker.row0 + (uint32_t)row;
#pragma unroll 1
                for (uint32_t r = 0; r < 2; r++) {
                    keep.x = keep.y;
                    keep.y = ordo_keep_word_ordo(&maker, keep_head, line + 8 * r, place, lane % 4);
                }
            }
        };
        auto made = [&](bool fresh) {
            if constexpr (by_parts) {
                draw(0);
            } else if constexpr (SOURCE == ORDO_KEEP_MADE) {
                const uint32_t head = VARLEN ? record.keep_head : keep_head;
                const int to = ORDO_KEEP_COLS / Z::COLUMNS;
                if (to == 1 || fresh || tile % to == to - 1) {
                    const uint32_t place = args.maker.block0 + tile / to;
                    uint32_t line = (uint32_t)row;
                    asm volatile("" : "+r"(line)); /* so that the sum is not kept live */
                    line += args.maker.row0;
                    keep.x = keep_inside<D == 64>(maker, head, line, place, lane % 4);
                    keep.y = keep_inside<D == 64>(maker, head, line + 8, place, lane % 4);
                }
            }
        };
        auto pack = [&](const float(&s)[Z::COLUMNS / 2]) {
            const int odd = Z::COLUMNS < ORDO_KEEP_COLS ? tile % 2 * 4 : 0;
            pack_probabilities<SOURCE != ORDO_KEEP_NONE, F16>(
                p, s, make_uint2(keep.x << odd, keep.y << odd));
        };
        /* In a ragged batch the last tile of V may reach beyond its sequence. */
        auto zero_v = [&] {
            const int valid = kv_len - tile * Z::COLUMNS;
            if (VARLEN && args.batch.table && valid < Z::COLUMNS) {
                mbar_wait(Z::V_FULL + 8 * stage, parity);
                zero_rows(Z::V + stage * Z::V_BYTES, Z::COLUMNS, Z::V_PANELS, valid, threadIdx.x,
                          OWN + mine);
            }
        };
        /* Hides what the intervals of rows `row` and `row + 8` do not hold, or everything. Rows
         * that do not exist have the interval of the last one. */
        auto mask_interval = [&](float(&s)[Z::COLUMNS / 2], int at, bool seen) {
            const int last_row = record.q_len - 1 - record.row;
            const int r = more.interval + min(row - record.row, last_row);
            const int r8 = more.interval + min(row + 8 - record.row, last_row);
            hide_from(s, seen ? args.blocks.last[r] + 1 - at : 0,
                      seen ? args.blocks.last[r8] + 1 - at : 0);
            if (seen)
                hide_before(s, args.blocks.first[r] - at, args.blocks.first[r8] - at);
        };
        /* CUT: a tile that rows see in part; of the varlen kernel also one with a rule. */
        auto soften = [&](float(&s)[Z::COLUMNS / 2], auto cut) {
            const int at = tile * Z::COLUMNS + column;
            if constexpr (VARLEN && cut.value) {
                if (args.ruled)
                    apply_rule<-1, true>(s, args.rule, [&](float &slope) {
                        slope = record.slope;
                        return row + record.diagonal - at;
                    });
                if (cut_behind()) /* limits from the record: they are not live in between */
                    hide_from(s, min(record.kv_len, row + record.high + 1) - at,
                              min(record.kv_len, row + 8 + record.high + 1) - at);
                if (cut_before())
                    hide_before(s, row + record.low - at, row + 8 + record.low - at);
                if constexpr (BLOCKS)
                    if (!is(LISTED_SEEN) || is(LISTED_CUT))
                        mask_interval(s, at, is(LISTED_SEEN));
            }
            if constexpr (cut.value && !VARLEN)
                mask_from(s, limit, at);
            if constexpr (by_parts) {
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
            scores(s, stage);
            wgmma_commit();
            given();
            made(true);
            wgmma_wait<0>();
            wgmma_pin(s);
            mbar_arrive_warp(Z::K_EMPTY + 8 * stage, lane);
            soften(s, constant<true>());
            pack(s);
            zero_v();
        }
        advance();
        /* One iteration of the mainloop: scores of this tile, outputs of the one before. */
        auto step = [&](auto cut) {
            float s[Z::COLUMNS / 2];
            given();
            mbar_wait(Z::K_FULL + 8 * stage, parity);
            named_sync(PINGPONG + mine, 256);
            wgmma_pin(s);
            wgmma_pin(o);
            wgmma_fence();
            scores(s, stage);
            wgmma_commit();
            mbar_wait(Z::V_FULL + 8 * last_stage, last_parity);
            wgmma_fence();
            outputs(last_stage);
            wgmma_commit();
            named_arrive(PINGPONG + (mine + 1) % Z::CONSUMERS, 256);
            if (D > 64)
                made(false);
            wgmma_wait<1>();
            wgmma_pin(s);
            mbar_arrive_warp(Z::K_EMPTY + 8 * stage, lane);
            soften(s, cut);
            wgmma_wait<0>();
            wgmma_pin(o);
            mbar_arrive_warp(Z::V_EMPTY + 8 * last_stage, lane);
            if (D == 64) /* P's registers are free now */
                made(false);
            pack(s);
#pragma unroll
            for (int i = 0; i < DV / 2; i++)
                o[i] *= state.shrink[i / 2 % 2];
            last_stage = stage;
            last_parity = parity;
            advance();
        };
        /* A loop of their own for whole tiles takes registers that not every instance has. */
        const bool apart = SOURCE != ORDO_KEEP_MADE && DV <= 192;
        if constexpr (BLOCKS) {
            auto simple = [&] { return apart && !args.ruled && is(LISTED_WHOLE); };
#pragma unroll 1
            while (tile > more.lowest[mine]) {
                look();
                if (simple())
                    step(constant<false>());
                else
                    step(constant<true>());
            }
        } else if constexpr (VARLEN && apart) { /* cut, whole, and with a window cut again */
            auto simple = [&] { return !args.ruled && tile < cut_from && tile >= cut_to; };
            tile--;
            while (tile >= stop) {
#pragma unroll 1
                for (; tile >= stop && !simple(); tile--)
                    step(constant<true>());
#pragma unroll 1
                for (; tile >= stop && simple(); tile--)
                    step(constant<false>());
            }
        } else if constexpr (VARLEN) {
#pragma unroll 1
            for (tile--; tile >= stop; tile--)
                step(constant<true>());
        } else {
#pragma unroll 1
            for (tile--; tile >= 0 && (tile + 1) * Z::COLUMNS > whole; tile--)
                step(constant<true>());
#pragma unroll 1
            for (; tile >= 0; tile--)
                step(constant<false>());
        }
        if (!Z::O_IN_Q)
            mbar_arrive_warp(Z::Q_EMPTY + 8 * q_stage, lane);
        mbar_wait(Z::V_FULL + 8 * last_stage, last_parity);
        wgmma_pin(o);
        wgmma_fence();
        outputs(last_stage);
        wgmma_commit();
        forward_end at;
        at.first = first;
        at.row = row;
        at.q_len = q_len;
        at.tensor_row = VARLEN ? record.q_row + first : first;
        at.head = VARLEN ? record.head : unit.head;
        at.batch = VARLEN ? record.batch : unit.batch;
        at.lse = VARLEN ? record.lse : (int64_t)all_head * (int32_t)args.batch.lse_head;
        at.o_buffer = Z::O_IN_Q ? (int)q_stage : 0;
        /* The rows' sums are taken while the last product runs. */
        const forward_weights weights =
            forward_sums<SOURCE != ORDO_KEEP_NONE, VARLEN, F16>(args, state, at);
        wgmma_wait<0>();
        wgmma_pin(o);
        mbar_arrive_warp(Z::V_EMPTY + 8 * last_stage, lane);
        if constexpr (BLOCKS)
            while (tile > record.first) {
                look();
                pass_on(empty());
            }
        else if constexpr (VARLEN)
            for (; tile >= record.first; tile--)
                pass_on(empty());
        forward_epilogue<D, DV, VARLEN, F16, BLOCKS>(args, smem, o, weights, at, mine);
        if (Z::O_IN_Q) { /* Q's place is free once O has left it */
            if (leader)
                bulk_wait_read();
            named_sync(OWN + mine, 128);
            mbar_arrive_warp(Z::Q_EMPTY + 8 * q_stage, lane);
        }
    }
    if (leader)
        bulk_wait();
}

template <int D, int DV, ordo_keep_source SOURCE, bool VARLEN, bool F16, bool BLOCKS = false>
static ordo_forward_instance forward_instance(void)
{
    using Z = forward_shape<D, DV, VARLEN, BLOCKS>;
    return { (const void *)forward_kernel<D, DV, SOURCE, VARLEN, F16, BLOCKS>, Z::ROWS, Z::COLUMNS,
             Z::THREADS, Z::BYTES };
}

#endif
