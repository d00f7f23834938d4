/* tile/softmax.h: a step of the online softmax over the accumulators of a product. */
#ifndef CUDA_TILE_SOFTMAX_H
#define CUDA_TILE_SOFTMAX_H

#include <math.h>

#include "base/shrink.h"
#include "cuda/tile/fragment.h"
#include "cuda/tile/score.h"

/* A thread's part of a row pair: rows r and r + 8 of its warp's sixteen. */
struct row_state {
    float max[2], sum[2], shrink[2];
};

/* Four partial maxima and sums per row, to hide latency; each begins with its first element. */
ORDO_DEVICE bool begins_part(int i)
{
    return i < 16 && i % 2 == 0;
}

/* The largest of a thread's scores of row r (0 or 1) and of what the row had before. */
template <int N> ORDO_DEVICE float row_top(const float (&s)[N], const row_state &state, int r)
{
    float top[4] = { fmaxf(state.max[r], s[2 * r]), s[4 + 2 * r], s[8 + 2 * r], s[12 + 2 * r] };
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i / 2 % 2 == r && !begins_part(i))
            top[i / 4 % 4] = fmaxf(top[i / 4 % 4], s[i]);
    return fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
}

/* Scores of row r become probabilities relative to the largest score so far; maximum, sum and
 * rescaling factor are updated. `max` is the thread's row_top(). */
template <int N>
ORDO_DEVICE void row_softmax(float (&s)[N], float max, float scale_log2, row_state &state, int r)
{
    max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
    max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
    const float shift = ordo_softmax_shift(max, scale_log2);
    state.shrink[r] = exp2_approx(ordo_softmax_shrink(state.max[r], scale_log2, shift));
    state.max[r] = max;
    float partial[4];
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i / 2 % 2 == r) {
            s[i] = exp2_approx(fmaf(s[i], scale_log2, -shift));
            partial[i / 4 % 4] = begins_part(i) ? s[i] : partial[i / 4 % 4] + s[i];
        }
    const float sum = (partial[0] + partial[1]) + (partial[2] + partial[3]);
    state.sum[r] = fmaf(state.sum[r], state.shrink[r], sum);
}

/* One step of the online softmax over both rows of a thread. */
template <int N> ORDO_DEVICE void softmax_step(float (&s)[N], float scale_log2, row_state &state)
{
#pragma unroll
    for (int r = 0; r < 2; r++)
        row_softmax(s, row_top(s, state, r), scale_log2, state, r);
}

/* A row's sum with its sink, relative to 2^top, which may be the sink's; and the factor that makes
 * the row's outputs relative to that. `max` is that of the scores, `sum` relative to it. */
struct row_with_sink {
    float sum, shrink, top;
};

ORDO_DEVICE row_with_sink with_sink(float max, float sum, float scale_log2, float sink)
{
    const float shift = ordo_softmax_shift(max, scale_log2), sink2 = sink * (float)ORDO_LOG2_E;
    row_with_sink row;
    row.top = fmaxf(shift, sink2);
    row.shrink = exp2_approx(shift - row.top);
    row.sum = fmaf(sum, row.shrink, exp2_approx(sink2 - row.top));
    return row;
}

#endif
