/* sm90/phases/softmax.h: the first phase of the forward pass: P of the query tiles of a panel to
 * the workspace, and lse.
 *
 * A unit is 128 queries of one query head. It walks the key tiles that the mask leaves it, upwards:
 * the scores of a tile in the pipeline's stages, then one step of the online softmax. P of a tile
 * is relative to the row's largest score so far. How much a row's sums shrink when a tile has a
 * larger one is stored beside it: the product of P and V applies it before it adds the tile. A tile
 * is stored whole, with zeros where the mask hides it. */
#ifndef CUDA_SM90_PHASES_SOFTMAX_H
#define CUDA_SM90_PHASES_SOFTMAX_H

#include <math.h>

#include "cuda/sm90/phases/tile.h"
#include "cuda/tile/softmax.h"

/* The record of a unit. */
struct softmax_unit {
    int32_t count; /* key tiles; -1: the end */
    int32_t first; /* the first of these tiles */
    int32_t tile, row, head, sequence;
};

ORDO_DEVICE void softmax_load(const ordo_phase_scores &args)
{
    phase_loader<PHASE_KEYS> load;
    phase_query_tiles<true>(args, 1, [&](const phase_query_tile &at) {
        const ordo_span keys = ordo_phase_keys(&at.s, at.i, PHASE_KEYS);
        load.tell(softmax_unit { ordo_span_count(keys), keys.first, at.tile, at.i * PHASE_ROWS,
                                 at.head, at.sequence });
        if (ordo_span_count(keys) == 0)
            load.pass();
        for (int32_t j = keys.first; j <= keys.last; j++)
            phase_load_scores(load, args, &args.map.q, &args.map.k, args.head_dim, at, j);
    });
    load.tell(softmax_unit { -1 });
    load.pass();
}

template <bool F16> struct softmax_math {
    const ordo_phase_scores &args;
    phase_consumer<PHASE_KEYS> pipe;

    /* What a thread knows of a unit. */
    struct unit_state {
        softmax_unit of;
        float slope;
        row_state rows;
    };

    /* P of key tile j from its scores: those that a row does not see become 0. */
    __device__ __forceinline__ void soften(float (&d)[PHASE_SCORES], unit_state &u, int j) const
    {
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, u.of.sequence);
        const int row = u.of.row + pipe.row(), column = j * PHASE_KEYS + 2 * (pipe.x % 4);
        const ordo_band band = ordo_sequence_band(&s, PHASE_ROWS, PHASE_KEYS);
        if (args.has_rule)
            apply_rule<-1, true>(d, args.rule, [&](float &slope) {
                slope = u.slope;
                return row + s.diagonal - column;
            });
        if (ordo_band_partial(&band, u.of.row / PHASE_ROWS, j))
            phase_window_of(s, row, column).hide(d, -INFINITY);
        softmax_step(d, args.scale_log2, u.rows);
        if (args.keep_bits)
            phase_drop(d, phase_load_keep(args, s, u.of.head, row, j * PHASE_KEYS, pipe.x));
    }

    __device__ __forceinline__ void store_tile(const float (&d)[PHASE_SCORES], const unit_state &u,
                                               int j) const
    {
        phase_store_tile<F16, true>(d,
                                    args.phase.p + phase_place(args, u.of.head, u.of.tile,
                                                               pipe.row(), j * PHASE_KEYS,
                                                               args.phase.columns, pipe.x),
                                    args.phase.columns, pipe.x);
        const int64_t slot =
            ordo_phase_slot(&args.panel, args.run.group_heads, u.of.head, u.of.tile);
        float *const to = args.phase.shrink + phase_shrink(slot, args.phase.columns, j, pipe.row());
        if (pipe.x % 4 == 0) {
            to[0] = u.rows.shrink[0];
            to[8] = u.rows.shrink[1];
        }
    }

    /* Adds the sums of the four threads of a row, and stores what follows from them. */
    __device__ __forceinline__ void store_rows(const unit_state &u) const
    {
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, u.of.sequence);
        const float sink = args.sink ? args.sink[u.of.head] : -INFINITY;
        const bool sunk = sink != -INFINITY; /* NaN is a sink */
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = u.rows.sum[r];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            const int row = pipe.row() + 8 * r;
            const float top = u.rows.max[r];
            /* A sum of 0 under another maximum: a score has overflowed f32. */
            const bool nothing = sum == 0.0f && top == -INFINITY;
            if (pipe.x % 4 != 0 || u.of.row + row >= s.q_len)
                continue;
            row_with_sink all_of = { sum, 1.0f, 0.0f };
            if (sunk)
                all_of = with_sink(top, sum, args.scale_log2, sink);
            const bool far = F16 && ordo_softmax_far(top, args.scale_log2); /* is repaired */
            args.delta[phase_stat(args, u.of.head, u.of.tile, row)] =
                nothing ? 0.0f : args.out_scale * all_of.shrink / (far ? NAN : all_of.sum);
            args.lse[s.lse + u.of.head * args.batch.lse_head + u.of.row + row] =
                nothing ? sink
                : sunk  ? fmaf(all_of.top, (float)ORDO_LN_2, logf(all_of.sum))
                        : fmaf(top, args.to_logit, logf(sum));
        }
    }

    __device__ __forceinline__ void run(void)
    {
        const int stages = (args.head_dim + PHASE_STEP - 1) / PHASE_STEP;
        for (;;) {
            unit_state u;
            u.of = pipe.template told<softmax_unit>();
            if (u.of.count < 0)
                break;
            u.slope = phase_slope(args, u.of.sequence, u.of.head);
            u.rows = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
            if (u.of.count == 0)
                pipe.pass();
#pragma unroll 1
            for (int j = u.of.first; j < u.of.first + u.of.count; j++) {
                float d[PHASE_SCORES];
                pipe.template multiply<F16, false, false>(d, stages, false, false);
                soften(d, u, j);
                store_tile(d, u, j);
            }
            store_rows(u);
        }
    }
};

template <bool F16>
__global__ void __launch_bounds__(PHASE_THREADS, 1)
    phase_softmax(const __grid_constant__ ordo_phase_scores args)
{
    phase_roles<PHASE_KEYS>([&] { softmax_load(args); },
                            [&](const phase_consumer<PHASE_KEYS> &pipe) {
                                softmax_math<F16> { args, pipe }.run();
                            });
}

#endif
