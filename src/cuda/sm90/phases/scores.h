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

/* The record of a tile. */
struct scores_tile {
    int32_t key; /* its first; -1: the end */
    int32_t tile, row, head, sequence, partial;
};

ORDO_DEVICE void scores_load(const ordo_phase_scores &args)
{
    phase_loader<PHASE_KEYS> load;
    phase_query_tiles<false>(args, args.chunks, [&](const phase_query_tile &at) {
        const ordo_span keys = ordo_phase_keys(&at.s, at.i, PHASE_KEYS);
        const ordo_band band = ordo_sequence_band(&at.s, PHASE_ROWS, PHASE_KEYS);
        const int32_t end = ordo_min32(keys.last + 1, (at.part + 1) * PHASE_CHUNK);
        for (int32_t j = ordo_max32(keys.first, at.part * PHASE_CHUNK); j < end; j++) {
            load.tell(scores_tile { j * PHASE_KEYS, at.tile, at.i * PHASE_ROWS, at.head,
                                    at.sequence, ordo_band_partial(&band, at.i, j) });
            phase_load_scores(load, args, &args.map.q, &args.map.k, args.head_dim, at, j);
            phase_load_scores(load, args, &args.map.dout, &args.map.v, args.v_head_dim, at, j);
        }
    });
    load.tell(scores_tile { -1 });
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
        scores_tile of;
        int row, column;
        phase_window window; /* if it is partial */
        int64_t to;          /* the first element that its quad writes, in p and ds */
        float stat[2], delta[2];
        phase_keep keep;
    };

    __device__ __forceinline__ void begin(tile_state &t, const scores_tile &of) const
    {
        t.of = of;
        t.row = of.row + pipe.row();
        t.column = of.key + 2 * (pipe.x % 4);
        t.window = {};
        if (t.of.partial)
            t.window =
                phase_window_of(ordo_batch_sequence(&args.batch, t.of.sequence), t.row, t.column);
        t.to =
            phase_place(args, t.of.head, of.tile, pipe.row(), of.key, args.phase.columns, pipe.x);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t from = phase_stat(args, t.of.head, of.tile, pipe.row() + 8 * r);
            t.stat[r] = args.lse2[from];
            t.delta[r] = args.delta[from];
        }
        if (args.keep_bits)
            t.keep = phase_load_keep(args, ordo_batch_sequence(&args.batch, t.of.sequence),
                                     t.of.head, t.row, of.key, pipe.x);
    }

    /* i + diagonal - j of register 0. */
    __device__ __forceinline__ int away(const tile_state &t) const
    {
        return t.row + ordo_batch_sequence(&args.batch, t.of.sequence).diagonal - t.column;
    }

    static __device__ __forceinline__ float away_of(int first, int i)
    {
        return (float)(first + 8 * (i / 2 % 2) - ordo_accumulator_column(0, i));
    }

    __device__ __forceinline__ float slope(const tile_state &t) const
    {
        return phase_slope(args, t.of.sequence, t.of.head);
    }

    /* P of a tile from its S; the sign marks dropped elements. */
    __device__ __forceinline__ void probabilities(float (&d)[SCORES], const tile_state &t) const
    {
        relative_logits<-1, true>(
            d, args.rule, args.has_rule, [&](int i) { return t.stat[i / 2 % 2]; },
            [&](float &of) {
                of = slope(t);
                return away(t);
            });
        if (t.of.partial)
            t.window.hide(d, -INFINITY);
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
        if (t.of.partial)
            t.window.hide(d, 0.0f);
    }

    __device__ __forceinline__ void run(void)
    {
        const int stages = (args.head_dim + PHASE_STEP - 1) / PHASE_STEP;
        const int v_stages = (args.v_head_dim + PHASE_STEP - 1) / PHASE_STEP;
        for (;;) {
            float d[SCORES];
            tile_state t;
            const scores_tile of = pipe.template told<scores_tile>();
            if (of.key < 0)
                break;
            begin(t, of);
            pipe.template multiply<F16, false, false>(d, stages, false, false);
            probabilities(d, t);
            if (args.phase.p)
                phase_store_tile<F16, true>(d, args.phase.p + t.to, args.phase.columns, pipe.x);
            uint32_t p[PACKED];
            keep(d, p, t);
            pipe.template multiply<F16, false, false>(d, v_stages, false, false);
            gradients(d, p, t);
            phase_store_tile<F16, false>(d, args.phase.ds + t.to, args.phase.columns, pipe.x);
        }
    }
};

template <bool F16>
__global__ void __launch_bounds__(PHASE_THREADS, 1)
    phase_scores(const __grid_constant__ ordo_phase_scores args)
{
    phase_roles<PHASE_KEYS>([&] { scores_load(args); },
                            [&](const phase_consumer<PHASE_KEYS> &pipe) {
                                scores_math<F16> { args, pipe }.run();
                            });
}

#endif
