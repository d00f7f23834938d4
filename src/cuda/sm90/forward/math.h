/* sm90/forward/math.h: from scores to the register operand of the second product. */
#ifndef CUDA_SM90_FORWARD_MATH_H
#define CUDA_SM90_FORWARD_MATH_H

#include "cuda/sm90/forward/roles.h"
#include "cuda/tile/mask.h"
#include "cuda/tile/softmax.h"

/* P as the register operand of the next product. Dropout clears the elements whose bit in `keep`
 * (one word per row) is 0: shifted left, a word has the bits of a pair of columns in the signs of
 * two bytes. */
template <bool DROP, bool F16, int N>
ORDO_DEVICE void pack_probabilities(uint32_t (&p)[N / 2], const float (&s)[N], uint2 keep)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        p[i] = pack_pair<F16>(s[2 * i], s[2 * i + 1]);
        if (DROP) {
            const uint32_t word = (i % 2 ? keep.y : keep.x) << i / 4;
            p[i] &= i / 2 % 2 ? byte_signs<0xbbaa>(word) : byte_signs<0x9988>(word);
        }
    }
}

/* ---- the varlen kernel: columns of rows `row` and `row + 8` from a limit on, or before it ---- */

template <int N> ORDO_DEVICE void hide_from(float (&s)[N], int limit, int limit8)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (ordo_accumulator_column(0, i) >= (i & 2 ? limit8 : limit))
            s[i] = -INFINITY;
}

template <int N> ORDO_DEVICE void hide_before(float (&s)[N], int limit, int limit8)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (ordo_accumulator_column(0, i) < (i & 2 ? limit8 : limit))
            s[i] = -INFINITY;
}

#endif
