/* phase/stats.h: the first phase of the forward pass: lse of every row, the shift of its exponents
 * and the factor of its outputs.
 *
 * A unit is 128 queries of one query head. It walks the key tiles that the mask leaves it, upwards:
 * the scores of a tile in the pipeline's stages, then one step of the online softmax. */
#ifndef CUDA_PHASE_STATS_H
#define CUDA_PHASE_STATS_H

#include <math.h>

#include "cuda/common/softmax.h"
#include "cuda/phase/load.h"

/* Words of a record. COUNT: key tiles; -1: the end. */
enum { STATS_COUNT, STATS_FIRST, STATS_TILE, STATS_ROW, STATS_HEAD, STATS_SEQUENCE };

ORDO_DEVICE void stats_load(const ordo_phase_stats &args)
{
    const ordo_phase_common &all = args.all;
    const int32_t tiles = ordo_phase_tiles(&all.batch, &all.panel);
    const int32_t heads = all.panel.heads * all.group_heads;
    const int64_t total = (int64_t)tiles * heads;
    phase_loader<PHASE_KEYS> load = phase_loader<PHASE_KEYS>::make();
    for (int64_t ticket = atomicAdd(all.ticket, 1); ticket < total;) {
        const int64_t next = atomicAdd(all.ticket, 1);
        const ordo_phase_unit unit = ordo_phase_issue(tiles, heads, all.together, 1, ticket);
        const int32_t tile = tiles - 1 - unit.tile; /* the longest first, if the mask is causal */
        const int32_t sequence = ordo_batch_find(&all.batch, ORDO_BEFORE_QUERY, tile);
        const ordo_cuda_sequence s = ordo_batch_sequence(&all.batch, sequence);
        const int32_t i = tile - s.query_tile;
        const ordo_span keys = ordo_phase_keys(&s, i, PHASE_KEYS);
        load.take();
        load.tell(STATS_COUNT, ordo_span_count(keys));
        load.tell(STATS_FIRST, keys.first);
        load.tell(STATS_TILE, tile);
        load.tell(STATS_ROW, i * PHASE_ROWS);
        load.tell(STATS_HEAD, unit.head);
        load.tell(STATS_SEQUENCE, sequence);
        load.records++;
        if (ordo_span_count(keys) == 0)
            load.pass();
        for (int32_t j = keys.first; j <= keys.last; j++)
            phase_load_scores(load, &args.q, &args.k, args.head_dim, s, i, j, unit.head,
                              unit.head / all.group_heads);
        ticket = next;
    }
    load.take();
    load.tell(STATS_COUNT, -1);
    load.pass();
}

template <bool F16> struct stats_math {
    const ordo_phase_stats &args;
    phase_consumer<PHASE_KEYS> pipe;

    /* Scores of key tile j that a row does not see become -inf. */
    __device__ __forceinline__ void soften(float (&d)[PHASE_KEYS / 2], row_state &state,
                                           const ordo_cuda_sequence &s, int first, int j,
                                           float slope2) const
    {
        const int unused[2] = { 0, 0 };
        const int row = first + pipe.row(), column = j * PHASE_KEYS + 2 * (pipe.x % 4);
        const ordo_band band = ordo_sequence_band(&s, PHASE_ROWS, PHASE_KEYS);
        if (args.ruled)
            apply_rule(d, args.rule, slope2, row + s.diagonal - column);
        if (ordo_band_cuts(&band, first / PHASE_ROWS, j))
            phase_hide(d, phase_window_of(s, row, column), -INFINITY);
        softmax_step<false>(d, unused, 0, args.scale_log2, state);
    }

    /* Adds the sums of the four threads of a row, and stores what follows from them. */
    __device__ __forceinline__ void store(const row_state &state, const ordo_cuda_sequence &s,
                                          int first, int head, int tile) const
    {
        const ordo_phase_common &all = args.all;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = state.sum[r];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            const int row = pipe.row() + 8 * r;
            const bool exists = first + row < s.q_len;
            const bool nothing = !exists || (sum == 0.0f && state.max[r] == -INFINITY);
            if (pipe.x % 4 != 0)
                continue;
            const int64_t to = phase_stat(all, head, tile, row);
            all.stat[to] = nothing ? INFINITY : ordo_softmax_shift(state.max[r], args.scale_log2);
            all.weight[to] = nothing ? 0.0f : args.keep_scale / sum;
            if (exists)
                args.lse[s.lse + head * all.batch.lse_head + first + row] =
                    nothing ? -INFINITY : fmaf(state.max[r], args.scale, logf(sum));
        }
    }

    __device__ __forceinline__ void run(void)
    {
        const int stages = (args.head_dim + PHASE_STEP - 1) / PHASE_STEP;
        pipe.fall_behind();
        for (;; pipe.records++) {
            pipe.wait();
            const int count = pipe.told(STATS_COUNT), from = pipe.told(STATS_FIRST);
            if (count < 0)
                break;
            const int head = pipe.told(STATS_HEAD), sequence = pipe.told(STATS_SEQUENCE);
            const int first = pipe.told(STATS_ROW), tile = pipe.told(STATS_TILE);
            const ordo_cuda_sequence s = ordo_batch_sequence(&args.all.batch, sequence);
            const float slope2 = phase_slope(args.slopes, args.slopes_sequence, sequence, head);
            row_state state = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
            if (count == 0)
                pipe.pass();
#pragma unroll 1
            for (int j = from; j < from + count; j++) {
                float d[PHASE_KEYS / 2];
                pipe.template multiply<F16, false, false>(d, stages, false, false);
                soften(d, state, s, first, j, slope2);
            }
            store(state, s, first, head, tile);
        }
    }
};

template <bool F16>
__global__ void __launch_bounds__(PHASE_THREADS, 1)
    phase_stats(const __grid_constant__ ordo_phase_stats args)
{
    phase_begin<PHASE_KEYS>();
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == 0) {
        registers_down<PHASE_PRODUCER_REGISTERS>();
        if (threadIdx.x < 32 && elect_one())
            stats_load(args);
        return;
    }
    registers_up<PHASE_CONSUMER_REGISTERS>();
    stats_math<F16> { args, { warpgroup - 1, (int)threadIdx.x % 128, { 0, 0 }, 0 } }.run();
}

#endif
