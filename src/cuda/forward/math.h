/* forward/math.h: from scores to the register operand of the second product. */
#ifndef CUDA_FORWARD_MATH_H
#define CUDA_FORWARD_MATH_H

#include <math.h>

#include "cuda/common/softmax.h"
#include "cuda/forward/roles.h"

/* Dropout clears the elements of P whose bit in `keep` (one word per row) is 0: the mask of packed
 * register i. Shifted left, a word has the bits of a pair of columns in the signs of two bytes. */
ORDO_DEVICE uint32_t keep_mask(uint2 keep, int i)
{
    const uint32_t word = (i % 2 ? keep.y : keep.x) << i / 4;
    return i / 2 % 2 ? byte_signs<0xbbaa>(word) : byte_signs<0x9988>(word);
}

/* Masks of the last AHEAD registers, made while the scores are computed; the optimizer would move
 * them to where they are used. */
template <int N, int AHEAD> struct keep_masks {
    uint32_t last[AHEAD ? AHEAD : 1];

    __device__ __forceinline__ void make(uint2 keep)
    {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            last[i] = keep_mask(keep, N - AHEAD + i);
            asm volatile("" : "+r"(last[i]));
        }
    }

    __device__ __forceinline__ uint32_t get(uint2 keep, int i) const
    {
        return i < N - AHEAD ? keep_mask(keep, i) : last[i - (N - AHEAD)];
    }
};

/* P as the register operand of the next product. */
template <bool DROP, bool F16, int N, int AHEAD>
ORDO_DEVICE void pack_probabilities(uint32_t (&p)[N / 2], const float (&s)[N], uint2 keep,
                                    const keep_masks<N / 2, AHEAD> &masks)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        p[i] = pack_pair<F16>(s[2 * i], s[2 * i + 1]);
        if (DROP)
            p[i] &= masks.get(keep, i);
    }
}

/* ---- the general kernel ---- */

/* Masks columns, counted from the thread's first one, that rows `row` and `row + 8` do not see:
 * those at or beyond a limit; those before another. Few tiles have both. */
template <int N> ORDO_DEVICE void mask_from(float (&s)[N], int limit, int limit8)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (ordo_accumulator_column(0, i) >= (i & 2 ? limit8 : limit))
            s[i] = -INFINITY;
}

template <int N> ORDO_DEVICE void mask_before(float (&s)[N], int limit, int limit8)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (ordo_accumulator_column(0, i) < (i & 2 ? limit8 : limit))
            s[i] = -INFINITY;
}

#endif
