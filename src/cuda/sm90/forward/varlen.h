/* sm90/forward/varlen.h: the forward kernel for any batch, band, rule and block mask, and for keys
 * in pages. Units, roles, buffers, the order of sums and so the bits are those of the dense kernel.
 *
 * Code that runs once per unit is slow (docs/design/hopper-tuning.md), and windows and short
 * sequences have short units. So there is one loop for all key tiles: products are issued at its
 * end, the first tile has no copy of its own, and masks are a branch around few instructions. Every
 * branch between the two waits ends with the maxima: otherwise the compiler moves the wait for the
 * outputs to where the branches meet. */
#ifndef CUDA_SM90_FORWARD_VARLEN_H
#define CUDA_SM90_FORWARD_VARLEN_H

#include "cuda/sm90/forward/blocks.h"
#include "cuda/sm90/forward/epilogue.h"
#include "cuda/sm90/forward/keep.h"
#include "cuda/sm90/forward/paged.h"
#include "cuda/tile/bias.h"

/* Tiles before this one are partial, for the rows of a warpgroup, by the window. */
template <class Z> ORDO_DEVICE int varlen_partial_to(const forward_record &record, int first)
{
    return (max(0, first + 63 + record.low) + Z::COLUMNS - 1) / Z::COLUMNS;
}

/* Tiles before this one are, with keys in pages: also by the first stored column. */
template <class Z>
ORDO_DEVICE int varlen_stored_to(const forward_record &record, const forward_stored &stored,
                                 int first)
{
    return max(varlen_partial_to<Z>(record, first), (stored.start + Z::COLUMNS - 1) / Z::COLUMNS);
}

/* Keys in pages: hides columns that are not stored, and clears values that no row of the unit sees.
 * Every warpgroup that a row has finds such a tile partial. `now`, `tile`, `column`, `mine`: as
 * below. */
template <class Z, int N>
ORDO_DEVICE void varlen_stored(float (&s)[N], const forward_stored &stored,
                               const pipeline_state<Z::STAGES> &now, int tile, int column, int mine)
{
    const int at = tile * Z::COLUMNS, from = stored.start - at - column;
    if (at < stored.start)
        mask_window(s, { from, from }, { INT32_MAX, INT32_MAX }, -INFINITY);
    if (at < stored.from || at + Z::COLUMNS > stored.to) {
        mbar_wait(Z::V_FULL + 8 * now.stage, now.parity);
        zero_outside(Z::V + now.stage * Z::V_BYTES, Z::COLUMNS, Z::V_PANELS, stored.from - at,
                     stored.to - at, threadIdx.x % 128, OWN + mine);
    }
}

/* Hides what a sequence's end and band hide of a tile, and what is not stored. Limits are read from
 * the record: they are not live in between. In a ragged batch the last tile of V may reach beyond
 * its sequence. `first`: row of the warpgroup `mine`; `row`, `column`: of the thread; by the window
 * tiles are partial before `partial_to`. */
template <class Z, bool PAGED, int N>
ORDO_DEVICE void varlen_mask(float (&s)[N], const ordo_forward_args &args,
                             const forward_record &record, const forward_stored &stored,
                             const pipeline_state<Z::STAGES> &now, int tile, int first, int row,
                             int column, int mine, int partial_to)
{
    const int at = tile * Z::COLUMNS, end = at + Z::COLUMNS, from = at + column;
    if (end > record.kv_len) {
        mask_from(s, { record.kv_len - from, record.kv_len - from }, 0);
        if (!PAGED && args.batch.table) {
            mbar_wait(Z::V_FULL + 8 * now.stage, now.parity);
            zero_rows(Z::V + now.stage * Z::V_BYTES, Z::COLUMNS, Z::V_PANELS, record.kv_len - at,
                      threadIdx.x, OWN + mine);
        }
    }
    if (end > first + record.high + 1) {
        const int limit = row + record.high + 1 - from;
        mask_diagonal(s, [limit](int c) { return c >= limit; });
    }
    if (tile < partial_to) {
        const int limit = row + record.low - from;
        mask_diagonal(s, [limit](int c) { return c < limit; });
    }
    if (PAGED)
        varlen_stored<Z>(s, stored, now, tile, column, mine);
}

/* Stage and parity of piece n of a warpgroup's biases. */
template <class Z> ORDO_DEVICE uint32_t varlen_bias_stage(uint32_t n, int mine)
{
    return mine * Z::BIAS_STAGES + n % Z::BIAS_STAGES;
}

/* Reads biases of a turn, which are a stage's, or if there are none words.load(). `n`: pieces so
 * far; `row`, `column`: the thread's first ones; rows that do not exist have the bias of the last
 * one. */
template <class Z, int TURN, class W>
ORDO_DEVICE void varlen_load_bias(W &words, const ordo_forward_bias_args &args,
                                  const forward_record &record, int mine, uint32_t n, int row,
                                  int column)
{
    if (args.staged) {
        const uint32_t stage = varlen_bias_stage<Z>(n, mine);
        mbar_wait(Z::BIAS_FULL + 8 * stage, n / Z::BIAS_STAGES & 1);
        words.load_stage(args.bias, Z::BIASES + stage * Z::BIAS_BYTES);
        return;
    }
    const int last = record.q_len - 1;
    row = (int)opaque((uint32_t)row); /* no addresses from tile to tile */
    const int64_t at = bias_at(args.bias, record.batch, record.head) + column;
    words.template load<TURN>(args.bias, at + min(row, last) * args.bias.row,
                              at + min(row + 8, last) * args.bias.row,
                              args.run.band.kv_len - column);
}

/* Releases a stage whose words have been used. */
template <class Z>
ORDO_DEVICE void varlen_bias_used(const ordo_forward_bias_args &args, int mine, uint32_t &n)
{
    if (args.staged)
        mbar_arrive_warp(Z::BIAS_EMPTY + 8 * varlen_bias_stage<Z>(n++, mine), threadIdx.x % 32);
}

/* The same for a tile that the warpgroup does not see. */
template <class Z>
ORDO_DEVICE void varlen_pass_bias(const ordo_forward_bias_args &args, int mine, uint32_t &n)
{
    if (!args.staged)
        return;
#pragma unroll 1
    for (const uint32_t end = n + (args.bias.f32 ? 2 : 1); n < end;) {
        mbar_wait(Z::BIAS_FULL + 8 * varlen_bias_stage<Z>(n, mine), n / Z::BIAS_STAGES & 1);
        varlen_bias_used<Z>(args, mine, n);
    }
}

/* Adds the biases of a turn, which have been read, and reads and adds those of the turns after. */
template <class Z, int TURN, class W, int N>
ORDO_DEVICE void varlen_add_bias(float (&s)[N], W &words, const ordo_forward_bias_args &args,
                                 const forward_record &record, int mine, uint32_t &n, int row,
                                 int column)
{
    words.template add<TURN>(s, args.bias, args.rule.slope);
    varlen_bias_used<Z>(args, mine, n);
    if constexpr (TURN + 1 < W::TURNS)
        if (TURN + 1 < words.turns(args.bias)) {
            varlen_load_bias<Z, TURN + 1>(words, args, record, mine, n, row, column);
            varlen_add_bias<Z, TURN + 1>(s, words, args, record, mine, n, row, column);
        }
}

/* Whole tiles have code of their own, and up to head size 192 a loop, where that is faster and
 * registers suffice. */
template <int D, ordo_keep_source SOURCE, bool LISTS>
constexpr bool varlen_apart = !LISTS && (SOURCE == ORDO_KEEP_GIVEN  ? D > 64
                                         : SOURCE == ORDO_KEEP_NONE ? D > 128
                                                                    : false);

template <forward_kind KIND> struct varlen_args {
    typedef ordo_forward_args type;
};
template <> struct varlen_args<FORWARD_PAGES> {
    typedef ordo_paged_args type;
};
template <> struct varlen_args<FORWARD_BIAS> {
    typedef ordo_forward_bias_args type;
};

template <int D, int DV, forward_kind KIND> using varlen_shape = forward_shape<D, DV, true, KIND>;

/* The producer warpgroup. */
template <int D, int DV, forward_kind KIND, class ARGS>
ORDO_DEVICE void varlen_produce(const ARGS &args, char *smem)
{
    registers_down<varlen_shape<D, DV, KIND>::PRODUCER_REGISTERS>();
    if constexpr (KIND == FORWARD_PAGES) {
        const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
        if (warp == 0)
            paged_load<D, false, 0>(args, smem);
        else if (warp == 1)
            paged_load<D, true, 0>(args, smem);
        else if (warp == 2)
            paged_load<D, false, 1>(args, smem);
        else
            paged_load<D, true, 1>(args, smem);
    } else if (threadIdx.x < 32 && elect_one()) {
        if constexpr (KIND == FORWARD_LISTS || KIND == FORWARD_ELEMENTS)
            listed_load<D, DV, KIND == FORWARD_ELEMENTS>(args, smem);
        else
            forward_load<D, DV, true, KIND>(args, smem);
    }
}

/* Hides of a tile what lists or bits do not show: all of it, if it is not `seen`. `shift`: of the
 * words of a block, for the tile. */
template <forward_kind KIND, int N>
ORDO_DEVICE void varlen_listed(float (&s)[N], const ordo_forward_args &args,
                               const forward_record &record, const forward_listed &more, bool seen,
                               bool partial, uint2 bits, int shift, int row, int column)
{
    if (KIND == FORWARD_ELEMENTS && partial)
        mask_words(s, make_uint2(bits.x << shift, bits.y << shift));
    else if (!seen || partial)
        listed_mask(s, args, record, more, seen, row, column);
}

ORDO_DEVICE forward_end varlen_end(const forward_record &record, int first, int row, int o_buffer)
{
    return { first,       row,          record.q_len, record.q_row + first,
             record.head, record.batch, record.lse,   o_buffer };
}

template <class Z, bool F16, int S, int O>
ORDO_DEVICE void varlen_issue_scores(float (&s)[S], float (&o)[O], uint32_t q_low, uint32_t k_low)
{
    wgmma_pin(s);
    wgmma_pin(o);
    wgmma_fence();
    forward_scores<Z, F16>(s, q_low, k_low);
    wgmma_commit();
}

template <class Z, bool F16, int O, int P>
ORDO_DEVICE void varlen_issue_outputs(float (&o)[O], uint32_t (&p)[P],
                                      const pipeline_state<Z::STAGES> &last, uint32_t v_low)
{
    mbar_wait(Z::V_FULL + 8 * last.stage, last.parity);
    wgmma_fence();
    forward_outputs<Z, F16>(o, p, v_low);
    wgmma_commit();
}

/* One unit. RULE: what happens to scores, if that is known here. */
template <int D, int DV, ordo_keep_source SOURCE, bool F16, ordo_forward_rule RULE,
          forward_kind KIND, class ARGS, class KEEP, class STATE>
ORDO_DEVICE void varlen_unit(const ARGS &args, char *smem, uint32_t drawn, int mine, KEEP &keep,
                             STATE &now, STATE &last, uint32_t &pieces)
{
    using Z = varlen_shape<D, DV, KIND>;
    constexpr bool ELEMENTS = KIND == FORWARD_ELEMENTS, LISTS = ELEMENTS || KIND == FORWARD_LISTS;
    constexpr bool BIAS = KIND == FORWARD_BIAS, PAGED = KIND == FORWARD_PAGES;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const uint32_t k_low0 = ordo_descriptor_low(Z::K, 16);
    const uint32_t v_low0 = ordo_descriptor_low(Z::V, Z::COLUMNS * ORDO_LINE_BYTES);
    const uint32_t q_stage = forward_q_stage<Z>(drawn);
    const uint32_t q_low =
        ordo_descriptor_low(Z::Q + mine * 64 * ORDO_LINE_BYTES, 16) + q_stage * (Z::Q_BYTES / 16);
    const forward_record &record = *Z::records::of(smem, drawn);
    float s[Z::COLUMNS / 2], o[DV / 2];
    uint32_t p[Z::COLUMNS / 4];

    auto issue_scores = [&] {
        varlen_issue_scores<Z, F16>(s, o, q_low, k_low0 + now.stage * (Z::K_BYTES / 16));
    };
    /* O += P V of the tile before. */
    auto issue_outputs = [&] {
        varlen_issue_outputs<Z, F16>(o, p, last, v_low0 + last.stage * (Z::V_BYTES / 16));
    };

    const forward_listed &more = *Z::listed::of(smem, drawn);   /* if LISTS */
    const forward_stored &stored = *Z::stored::of(smem, drawn); /* if PAGED */
    const int first = record.row + mine * 64, row = first + warp * 16 + lane / 4;
    const int column = 2 * (lane % 4);
    row_state state = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
    clear(o);

    int tile = record.last;
    int32_t listed = 0;                        /* what the stage says of the tile at hand */
    uint2 bits;                                /* of it, if ELEMENTS and they hide some of it */
    bias_words<F16, Z::COLUMNS / 2, 32> words; /* if BIAS: registers are few */
    auto look = [&] {                          /* waits for the keys of a tile */
                      mbar_wait(Z::K_FULL + 8 * now.stage, now.parity);
                      if constexpr (LISTS) {
                          listed = load_shared(Z::TILE + 4 * now.stage);
                          tile = listed & LISTED_TILE;
                      }
    };
    auto is = [&](int flag) { return (listed >> (flag + mine) & 1) != 0; };
    auto k_empty = [&] { /* after what its stage says was read */
                         const uint32_t bar = Z::K_EMPTY + 8 * now.stage;
                         return LISTS ? bar_after(bar, listed) : bar;
    };
    /* A key tile that only other warpgroups see: release it and let the next one issue. */
    auto pass_on = [&] {
        if (!LISTS)
            look();
        mbar_arrive_warp(k_empty(), lane);
        mbar_wait(Z::V_FULL + 8 * now.stage, now.parity);
        mbar_arrive_warp(Z::V_EMPTY + 8 * now.stage, lane);
        if constexpr (BIAS)
            varlen_pass_bias<Z>(args, mine, pieces);
        named_sync(PINGPONG + mine, 256);
        named_arrive(PINGPONG + (mine + 1) % Z::CONSUMERS, 256);
        now.advance();
    };
    const int own = first >= record.q_len ? 0 : min(record.kv_len, first + 64 + record.high);
    if constexpr (LISTS)
        for (look(); tile > record.first && !is(LISTED_SEEN); look())
            pass_on();
    else
        for (; tile > record.first && tile * Z::COLUMNS >= own; tile--)
            pass_on();
    /* It sees key tiles down to `stop`, those from `partial_from` on and before `partial_to` in
     * part; under a block mask the stages say so. */
    const int begun = tile;
    const int stop = max(record.first, min(tile, max(0, first + record.low) / Z::COLUMNS));
    const int partial_from = max(0, min(record.kv_len, first + record.high + 1)) / Z::COLUMNS;
    const int partial_to =
        PAGED ? varlen_stored_to<Z>(record, stored, first) : varlen_partial_to<Z>(record, first);

    auto away = [&] { return row + record.diagonal - tile * Z::COLUMNS - column; };
    auto all_see = [&] {
        if constexpr (LISTS)
            return is(LISTED_WHOLE);
        else
            return tile < partial_from && tile >= partial_to;
    };
    const bool has_rule = RULE == ORDO_RULE_ANY && args.has_rule;
    auto soften = [&](float slope, int distance, auto whole) {
        float top[2];
        if constexpr (RULE == ORDO_RULE_CAP)
            cap_scores<true>(s, args.rule);
        if constexpr (RULE == ORDO_RULE_DISTANCE)
            subtract_distance<-1>(s, slope, distance);
        if (whole.value || (!varlen_apart<D, SOURCE, LISTS> && !BIAS && !has_rule && all_see())) {
            row_tops(top, s, state); /* in both branches: the compiler waits for outputs after it */
        } else {
            auto place = [&](float &slope) {
                slope = record.slope;
                return away();
            };
            if constexpr (BIAS) {
                apply_rule<-1, true>(s, bias_rule(args.rule), place);
                varlen_add_bias<Z, 0>(s, words, args, record, mine, pieces, row,
                                      tile * Z::COLUMNS + column);
            } else if (has_rule) {
                apply_rule<-1, true>(s, args.rule, place);
            }
            if (RULE != ORDO_RULE_ANY || BIAS || !all_see()) {
                varlen_mask<Z, PAGED>(s, args, record, stored, now, tile, first, row, column, mine,
                                      LISTS || BIAS ? varlen_partial_to<Z>(record, first)
                                                    : partial_to);
                if (LISTS)
                    varlen_listed<KIND>(s, args, record, more, is(LISTED_SEEN), is(LISTED_PARTIAL),
                                        bits, Z::COLUMNS < ORDO_BLOCK ? tile % 2 * 4 : 0, row,
                                        tile * Z::COLUMNS + column);
            }
            row_tops(top, s, state);
        }
        row_softmax(s, top[0], args.scale_log2, state, 0);
        row_softmax(s, top[1], args.scale_log2, state, 1);
    };

    auto look_on = [&] { /* the same for one that is at hand next */
                         look();
                         if (ELEMENTS && is(LISTED_PARTIAL))
                             bits = listed_bits(args, record, more, first + warp * 16,
                                                tile / listed_tiles<Z>);
    };

    keep.begin(record, first + warp * 16, tile);
    look_on();
    issue_scores();
    wgmma_commit(); /* no outputs yet */
    auto step = [&](auto whole) {
        const int distance = away();
        const float slope = record.slope * args.rule.slope;
        keep.next(record, row, tile, tile == begun);
        if constexpr (BIAS)
            varlen_load_bias<Z, 0>(words, args, record, mine, pieces, row,
                                   tile * Z::COLUMNS + column);
        wgmma_wait<1>();
        wgmma_pin(s);
        mbar_arrive_warp(k_empty(), lane);
        soften(slope, distance, whole);
        wgmma_wait<0>();
        wgmma_pin(o);
        mbar_arrive_warp(Z::V_EMPTY + 8 * last.stage, tile != begun ? lane : 1);
        if (D == 64) /* P's registers are free now */
            keep.make(record, row, tile, tile == begun);
        pack_probabilities<SOURCE != ORDO_KEEP_NONE, F16>(p, s, keep.words_of(tile));
#pragma unroll
        for (int i = 0; i < DV / 2; i++)
            o[i] *= state.shrink[i / 2 % 2];
        last = now;
        now.advance();
    };
    auto issue = [&] {
        keep.take(record, tile);
        look_on();
        named_sync(PINGPONG + mine, 256);
        issue_scores();
        issue_outputs();
        named_arrive(PINGPONG + (mine + 1) % Z::CONSUMERS, 256);
    };
#pragma unroll 1
    for (;;) {
        if (varlen_apart<D, SOURCE, LISTS> && !BIAS && !has_rule && all_see()) {
            step(constant<true>());
            if constexpr (D <= 192)
#pragma unroll 1
                while (tile > max(stop, partial_to)) {
                    tile--;
                    issue();
                    step(constant<true>());
                }
        } else {
            step(constant<false>());
        }
        if (LISTS ? tile <= more.lowest[mine] : --tile < stop)
            break;
        issue();
    }
    if (!Z::O_IN_Q)
        mbar_arrive_warp(Z::Q_EMPTY + 8 * q_stage, lane);
    wgmma_pin(o);
    issue_outputs();
    const forward_end at = varlen_end(record, first, row, Z::O_IN_Q ? (int)q_stage : 0);
    /* The rows' sums are taken while the last product runs. */
    const forward_weights weights =
        forward_sums<SOURCE != ORDO_KEEP_NONE, true, F16>(args, state, at);
    wgmma_wait<0>();
    wgmma_pin(o);
    mbar_arrive_warp(Z::V_EMPTY + 8 * last.stage, lane);
    if constexpr (LISTS)
        while (tile > record.first) {
            look();
            pass_on();
        }
    else
        for (; tile >= record.first; tile--)
            pass_on();
    forward_epilogue<D, DV, true, F16, KIND>(args, smem, o, weights, at, mine);
    if (Z::O_IN_Q)
        forward_release_q<Z>(q_stage, mine);
}

/* With keys in pages the kernel for few queries may run beside this one. */
template <int D, int DV, ordo_keep_source SOURCE, bool F16, ordo_forward_rule RULE,
          forward_kind KIND>
__global__ void __launch_bounds__(varlen_shape<D, DV, KIND>::THREADS, 1)
    forward_varlen_kernel(const __grid_constant__ typename varlen_args<KIND>::type args)
{
    using Z = varlen_shape<D, DV, KIND>;
    constexpr bool LISTS = KIND == FORWARD_LISTS || KIND == FORWARD_ELEMENTS;
    constexpr bool PAGED = KIND == FORWARD_PAGES;
    extern __shared__ __align__(1024) char smem[];
    const int warpgroup = forward_begin<Z>(PAGED ? 2 : 1, PAGED ? 3 : 0);
    if (warpgroup == 0)
        return varlen_produce<D, DV, KIND>(args, smem);

    registers_up<Z::CONSUMER_REGISTERS>();
    pipeline_state<Z::STAGES> now, last;
    varlen_keep<Z, SOURCE, LISTS> keep(args);
    uint32_t pieces = 0; /* of biases */
    if (warpgroup == 1)
        named_arrive(PINGPONG, 256);
    for (uint32_t drawn = 0;; drawn++) {
        mbar_wait(Z::Q_FULL + 8 * forward_q_stage<Z>(drawn), forward_q_parity<Z>(drawn));
        if (Z::records::of(smem, drawn)->head < 0)
            break;
        varlen_unit<D, DV, SOURCE, F16, RULE, KIND>(args, smem, drawn, warpgroup - 1, keep, now,
                                                    last, pieces);
    }
    if (threadIdx.x % 128 == 0)
        bulk_wait();
    if (PAGED)
        grid_wait(); /* the repair waits for this kernel, and so for the one that ran beside it */
}

template <int D, int DV, ordo_keep_source SOURCE, bool F16, ordo_forward_rule RULE = ORDO_RULE_ANY,
          forward_kind KIND = FORWARD_BAND>
static ordo_forward_instance forward_varlen_instance(void)
{
    using Z = varlen_shape<D, DV, KIND>;
    return { (const void *)forward_varlen_kernel<D, DV, SOURCE, F16, RULE, KIND>, Z::ROWS,
             Z::COLUMNS, Z::THREADS, Z::BYTES };
}

#endif
