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

/* Words of a record. COUNT: key tiles; -1: the end. */
enum { SOFTMAX_COUNT, SOFTMAX_FIRST, SOFTMAX_TILE, SOFTMAX_ROW, SOFTMAX_HEAD, SOFTMAX_SEQUENCE };

ORDO_DEVICE void softmax_load(const ordo_phase_softmax &args)
{
    const ordo_phase_common &all = args.all;
    const int32_t tiles = ordo_phase_tiles(&all.batch, &all.panel);
    const int32_t heads = all.panel.heads * all.group_heads;
    const int64_t total = (int64_t)tiles * heads;
    phase_loader<PHASE_KEYS> load = phase_loader<PHASE_KEYS>::make();
    for (int64_t ticket = phase_draw(all); ticket < total; ticket = phase_draw(all)) {
        const ordo_phase_unit unit = ordo_phase_issue(tiles, heads, all.together, 1, ticket);
        /* The last first: the longest, if the mask is causal. */
        const int32_t tile = all.panel.tile + tiles - 1 - unit.tile;
        const int32_t head = all.panel.head * all.group_heads + unit.head;
        const int32_t sequence = ordo_batch_find(&all.batch, ORDO_BEFORE_QUERY, tile);
        const ordo_cuda_sequence s = ordo_batch_sequence(&all.batch, sequence);
        const int32_t i = tile - s.query_tile;
        const ordo_span keys = ordo_phase_keys(&s, i, PHASE_KEYS);
        load.take();
        load.tell(SOFTMAX_COUNT, ordo_span_count(keys));
        load.tell(SOFTMAX_FIRST, keys.first);
        load.tell(SOFTMAX_TILE, tile);
        load.tell(SOFTMAX_ROW, i * PHASE_ROWS);
        load.tell(SOFTMAX_HEAD, head);
        load.tell(SOFTMAX_SEQUENCE, sequence);
        load.records++;
        if (ordo_span_count(keys) == 0)
            load.pass();
        for (int32_t j = keys.first; j <= keys.last; j++)
            phase_load_scores(load, &args.q, &args.k, args.head_dim, s, i, j, head,
                              head / all.group_heads);
    }
    load.take();
    load.tell(SOFTMAX_COUNT, -1);
    load.pass();
}

template <bool F16> struct softmax_math {
    const ordo_phase_softmax &args;
    phase_consumer<PHASE_KEYS> pipe;

    /* What a thread knows of a unit. */
    struct unit_state {
        int first, head, tile, sequence; /* first: row of the sequence */
        float slope;
        row_state rows;
    };

    /* P of key tile j from its scores: those that a row does not see become 0. */
    __device__ __forceinline__ void soften(float (&d)[PHASE_SCORES], unit_state &u, int j) const
    {
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.all.batch, u.sequence);
        const int row = u.first + pipe.row(), column = j * PHASE_KEYS + 2 * (pipe.x % 4);
        const ordo_band band = ordo_sequence_band(&s, PHASE_ROWS, PHASE_KEYS);
        if (args.ruled)
            apply_rule<-1, true>(d, args.rule, [&](float &slope) {
                slope = u.slope;
                return row + s.diagonal - column;
            });
        if (ordo_band_partial(&band, u.first / PHASE_ROWS, j))
            phase_hide(d, phase_window_of(s, row, column), -INFINITY);
        softmax_step(d, args.scale_log2, u.rows);
        if (args.keep_bits)
            phase_drop(d, phase_load_keep(args.keep_bits, s, u.head, row, j * PHASE_KEYS, pipe.x));
    }

    __device__ __forceinline__ void store_tile(const float (&d)[PHASE_SCORES], const unit_state &u,
                                               int j) const
    {
        const ordo_phase_common &all = args.all;
        phase_store_tile<F16, true>(d,
                                    args.p + phase_place(all, u.head, u.tile, pipe.row(),
                                                         j * PHASE_KEYS, args.columns, pipe.x),
                                    args.columns, pipe.x);
        const int64_t slot = ordo_phase_slot(&all.panel, all.group_heads, u.head, u.tile);
        float *const to = args.shrink + phase_shrink(slot, args.columns, j, pipe.row());
        if (pipe.x % 4 == 0) {
            to[0] = u.rows.shrink[0];
            to[8] = u.rows.shrink[1];
        }
    }

    /* Adds the sums of the four threads of a row, and stores what follows from them. */
    __device__ __forceinline__ void store_rows(const unit_state &u) const
    {
        const ordo_phase_common &all = args.all;
        const ordo_cuda_sequence s = ordo_batch_sequence(&all.batch, u.sequence);
        const float sink = args.sink ? args.sink[u.head] : -INFINITY;
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
            if (pipe.x % 4 != 0 || u.first + row >= s.q_len)
                continue;
            row_with_sink all_of = { sum, 1.0f, 0.0f };
            if (sunk)
                all_of = with_sink(top, sum, args.scale_log2, sink);
            const bool far = F16 && ordo_softmax_far(top, args.scale_log2); /* is repaired */
            all.weight[phase_stat(all, u.head, u.tile, row)] =
                nothing ? 0.0f : args.keep_scale * all_of.shrink / (far ? NAN : all_of.sum);
            args.lse[s.lse + u.head * all.batch.lse_head + u.first + row] =
                nothing ? sink
                : sunk  ? fmaf(all_of.top, (float)ORDO_LN_2, logf(all_of.sum))
                        : fmaf(top, args.scale, logf(sum));
        }
    }

    __device__ __forceinline__ void run(void)
    {
        const int stages = (args.head_dim + PHASE_STEP - 1) / PHASE_STEP;
        for (;; pipe.records++) {
            unit_state u;
            pipe.wait();
            const int count = pipe.told(SOFTMAX_COUNT), from = pipe.told(SOFTMAX_FIRST);
            if (count < 0)
                break;
            u.first = pipe.told(SOFTMAX_ROW);
            u.head = pipe.told(SOFTMAX_HEAD);
            u.tile = pipe.told(SOFTMAX_TILE);
            u.sequence = pipe.told(SOFTMAX_SEQUENCE);
            u.slope = phase_slope(args.slopes, args.slopes_sequence, u.sequence, u.head);
            u.rows = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
            if (count == 0)
                pipe.pass();
#pragma unroll 1
            for (int j = from; j < from + count; j++) {
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
    phase_softmax(const __grid_constant__ ordo_phase_softmax args)
{
    phase_begin<PHASE_KEYS>();
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == 0) {
        registers_down<PHASE_PRODUCER_REGISTERS>();
        if (threadIdx.x < 32 && elect_one())
            softmax_load(args);
        return;
    }
    registers_up<PHASE_CONSUMER_REGISTERS>();
    softmax_math<F16> { args, { warpgroup - 1, (int)threadIdx.x % 128, { 0, 0 }, 0 } }.run();
}

#endif
