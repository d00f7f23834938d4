/* sm90/phases/scores.h: the first phase of the backward pass: P and dS of the query tiles of a
 * panel, to the workspace.
 *
 * A unit is a few tiles of 128 queries x 256 keys of one query head. Of each tile S = Q K^T is
 * summed over the columns in the pipeline's stages, P = exp2(S - lse) is stored if a product reads
 * it, and kept in 16 bits; then dP = dO V^T takes the registers of S, and dS = P (dP - delta) is
 * stored. A tile is stored whole, with zeros where the mask hides it. */
#ifndef CUDA_SM90_PHASES_SCORES_H
#define CUDA_SM90_PHASES_SCORES_H

#include <math.h>

#include "cuda/sm90/phases/tile.h"
#include "cuda/tile/softmax.h"

/* Words of a record, of one tile. KEY: its first key; -1: the end. */
enum { SCORES_KEY, SCORES_TILE, SCORES_ROW, SCORES_HEAD, SCORES_SEQUENCE, SCORES_CUT };

ORDO_DEVICE void scores_load(const ordo_phase_scores &args)
{
    const ordo_phase_common &all = args.all;
    const int32_t tiles = ordo_phase_tiles(&all.batch, &all.panel);
    const int32_t heads = all.panel.heads * all.group_heads;
    const int64_t total = (int64_t)tiles * heads * args.chunks;
    phase_loader<PHASE_KEYS> load = phase_loader<PHASE_KEYS>::make();
    for (int64_t ticket = phase_draw(all); ticket < total; ticket = phase_draw(all)) {
        const ordo_phase_unit unit =
            ordo_phase_issue(tiles, heads, all.together, args.chunks, ticket);
        const int32_t tile = all.panel.tile + unit.tile;
        const int32_t head = all.panel.head * all.group_heads + unit.head;
        const int32_t sequence = ordo_batch_find(&all.batch, ORDO_BEFORE_QUERY, tile);
        const ordo_cuda_sequence s = ordo_batch_sequence(&all.batch, sequence);
        const int32_t i = tile - s.query_tile;
        const ordo_span keys = ordo_phase_keys(&s, i, PHASE_KEYS);
        const ordo_band band = ordo_sequence_band(&s, PHASE_ROWS, PHASE_KEYS);
        const int32_t end = ordo_min32(keys.last + 1, (unit.part + 1) * PHASE_CHUNK);
        for (int32_t j = ordo_max32(keys.first, unit.part * PHASE_CHUNK); j < end; j++) {
            load.take();
            load.tell(SCORES_KEY, j * PHASE_KEYS);
            load.tell(SCORES_TILE, tile);
            load.tell(SCORES_ROW, i * PHASE_ROWS);
            load.tell(SCORES_HEAD, head);
            load.tell(SCORES_SEQUENCE, sequence);
            load.tell(SCORES_CUT, ordo_band_partial(&band, i, j));
            load.records++;
            phase_load_scores(load, &args.q, &args.k, args.head_dim, s, i, j, head,
                              head / all.group_heads);
            phase_load_scores(load, &args.dout, &args.v, args.v_head_dim, s, i, j, head,
                              head / all.group_heads);
        }
    }
    load.take();
    load.tell(SCORES_KEY, -1);
    load.pass();
}

/* dS = |P| (dP - delta) of a pair, in place. One statement, as zero_if(). */
template <bool F16> ORDO_DEVICE void pair_gradient(float &a, float &b, uint32_t p, float delta)
{
    if constexpr (F16)
        asm volatile("{.reg .b32 w; .reg .b16 l, h; .reg .f32 x; sub.rn.f32 %0, %0, %3; "
                     "sub.rn.f32 %1, %1, %3; and.b32 w, %2, 0x7fff7fff; mov.b32 {l, h}, w; "
                     "cvt.f32.f16 x, l; mul.rn.f32 %0, %0, x; cvt.f32.f16 x, h; "
                     "mul.rn.f32 %1, %1, x;}"
                     : "+f"(a), "+f"(b)
                     : "r"(p), "f"(delta));
    else
        asm volatile("{.reg .b32 w; .reg .f32 x; sub.rn.f32 %0, %0, %3; sub.rn.f32 %1, %1, %3; "
                     "shl.b32 w, %2, 16; mov.b32 x, w; abs.f32 x, x; mul.rn.f32 %0, %0, x; "
                     "and.b32 w, %2, 0x7fff0000; mov.b32 x, w; mul.rn.f32 %1, %1, x;}"
                     : "+f"(a), "+f"(b)
                     : "r"(p), "f"(delta));
}

template <bool F16> struct scores_math {
    enum { SCORES = PHASE_SCORES, PACKED = SCORES / 2 };
    const ordo_phase_scores &args;
    phase_consumer<PHASE_KEYS> pipe;

    /* What a thread knows of a tile; its rows are `row` and row + 8 of the sequence. */
    struct tile_state {
        int row, column, head, sequence;
        bool cut;
        phase_window window; /* if so */
        int64_t to;          /* the first element that its quad writes, in p and ds */
        float stat[2], delta[2];
        phase_keep keep;
    };

    __device__ __forceinline__ void begin(tile_state &t) const
    {
        const ordo_phase_common &all = args.all;
        const int key = pipe.told(SCORES_KEY), tile = pipe.told(SCORES_TILE);
        t.row = pipe.told(SCORES_ROW) + pipe.row();
        t.column = key + 2 * (pipe.x % 4);
        t.head = pipe.told(SCORES_HEAD);
        t.sequence = pipe.told(SCORES_SEQUENCE);
        t.cut = pipe.told(SCORES_CUT);
        t.window = {};
        if (t.cut)
            t.window =
                phase_window_of(ordo_batch_sequence(&all.batch, t.sequence), t.row, t.column);
        t.to = phase_place(all, t.head, tile, pipe.row(), key, args.columns, pipe.x);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t from = phase_stat(all, t.head, tile, pipe.row() + 8 * r);
            t.stat[r] = all.stat[from];
            t.delta[r] = all.weight[from];
        }
        if (args.keep_bits)
            t.keep = phase_load_keep(args.keep_bits, ordo_batch_sequence(&all.batch, t.sequence),
                                     t.head, t.row, key, pipe.x);
    }

    /* i + diagonal - j of register 0. */
    __device__ __forceinline__ int away(const tile_state &t) const
    {
        return t.row + ordo_batch_sequence(&args.all.batch, t.sequence).diagonal - t.column;
    }

    static __device__ __forceinline__ float away_of(int first, int i)
    {
        return (float)(first + 8 * (i / 2 % 2) - ordo_accumulator_column(0, i));
    }

    __device__ __forceinline__ float slope(const tile_state &t) const
    {
        return phase_slope(args.slopes, args.slopes_sequence, t.sequence, t.head);
    }

    /* P of a tile from its S; the sign marks dropped elements. */
    __device__ __forceinline__ void probabilities(float (&d)[SCORES], const tile_state &t) const
    {
        relative_logits<-1, true>(
            d, args.rule, args.ruled, [&](int i) { return t.stat[i / 2 % 2]; },
            [&](float &of) {
                of = slope(t);
                return away(t);
            });
        if (t.cut)
            phase_hide(d, t.window, -INFINITY);
#pragma unroll
        for (int i = 0; i < SCORES; i++)
            d[i] = exp2_approx(d[i]);
        if (args.keep_bits)
            phase_drop(d, t.keep);
    }

    /* P in 16 bits for dS, with the derivative of softcap in it. */
    __device__ __forceinline__ void keep(float (&d)[SCORES], uint32_t (&p)[PACKED],
                                         const tile_state &t) const
    {
        if (args.rule.cap > 0.0f) {
            const float slope2 = slope(t) * args.rule.slope;
            const int first = away(t);
#pragma unroll
            for (int i = 0; i < SCORES; i++)
                d[i] *= cap_gradient(fabsf(d[i]), t.stat[i / 2 % 2], args.rule, slope2,
                                     away_of(first, i));
        }
#pragma unroll
        for (int i = 0; i < PACKED; i++)
            p[i] = pack_pair<F16>(d[2 * i], d[2 * i + 1]);
    }

    /* dS of a tile from its dP. */
    __device__ __forceinline__ void gradients(float (&d)[SCORES], const uint32_t (&p)[PACKED],
                                              const tile_state &t) const
    {
        if (args.keep_bits) { /* dropped: dP is 0, or NaN */
#pragma unroll
            for (int i = 0; i < PACKED; i++) {
                zero_if(d[2 * i], p[i], 0x8000u);
                zero_if(d[2 * i + 1], p[i], 0x80000000u);
            }
        }
#pragma unroll
        for (int i = 0; i < PACKED; i++)
            pair_gradient<F16>(d[2 * i], d[2 * i + 1], p[i], t.delta[i % 2]);
        if (t.cut)
            phase_hide(d, t.window, 0.0f);
    }

    __device__ __forceinline__ void run(void)
    {
        const int stages = (args.head_dim + PHASE_STEP - 1) / PHASE_STEP;
        const int v_stages = (args.v_head_dim + PHASE_STEP - 1) / PHASE_STEP;
        for (;; pipe.records++) {
            float d[SCORES];
            tile_state t;
            pipe.wait();
            if (pipe.told(SCORES_KEY) < 0)
                break;
            begin(t);
            pipe.template multiply<F16, false, false>(d, stages, false, false);
            probabilities(d, t);
            if (args.p)
                phase_store_tile<F16, true>(d, args.p + t.to, args.columns, pipe.x);
            uint32_t p[PACKED];
            keep(d, p, t);
            pipe.template multiply<F16, false, false>(d, v_stages, false, false);
            gradients(d, p, t);
            phase_store_tile<F16, false>(d, args.ds + t.to, args.columns, pipe.x);
        }
    }
};

template <bool F16>
__global__ void __launch_bounds__(PHASE_THREADS, 1)
    phase_scores(const __grid_constant__ ordo_phase_scores args)
{
    phase_begin<PHASE_KEYS>();
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == 0) {
        registers_down<PHASE_PRODUCER_REGISTERS>();
        if (threadIdx.x < 32 && elect_one())
            scores_load(args);
        return;
    }
    registers_up<PHASE_CONSUMER_REGISTERS>();
    scores_math<F16> { args, { warpgroup - 1, (int)threadIdx.x % 128, { 0, 0 }, 0 } }.run();
}

#endif
