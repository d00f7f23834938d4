/* sm90/forward/math.h: what the consumer warpgroups of the forward kernels compute: the products of
 * a tile, and the register operand of the second one. */
#ifndef CUDA_SM90_FORWARD_MATH_H
#define CUDA_SM90_FORWARD_MATH_H

#include "cuda/sm90/forward/roles.h"
#include "cuda/sm90/wgmma.h"
#include "cuda/tile/mask.h"
#include "cuda/tile/softmax.h"

/* S = Q K^T of a tile of keys, O += P V of a tile of values: descriptors' low words of the tiles.
 */
template <class Z, bool F16, int N>
ORDO_DEVICE void forward_scores(float (&s)[N], uint32_t q_low, uint32_t k_low)
{
#pragma unroll
    for (int k = 0; k < Z::PANELS * ORDO_PANEL_COLUMNS / 16; k++)
        wgmma_ss<F16, 0, 0>(s, wgmma_by_columns(q_low, Z::ROWS, k),
                            wgmma_by_columns(k_low, Z::COLUMNS, k), k > 0);
}

template <class Z, bool F16, int N>
ORDO_DEVICE void forward_outputs(float (&o)[N], const uint32_t (&p)[Z::COLUMNS / 4], uint32_t v_low)
{
#pragma unroll
    for (int k = 0; k < Z::COLUMNS / 16; k++)
        wgmma_rs<F16, 1>(o, p + 4 * k, wgmma_by_rows(v_low, k), 1);
}

/* Tiles that rows see in part have a copy of the code of their own. */
template <bool X> struct constant {
    static const bool value = X;
};

template <int N>
ORDO_DEVICE void row_tops(float (&top)[2], const float (&s)[N], const row_state &state)
{
    top[0] = row_top(s, state, 0);
    top[1] = row_top(s, state, 1);
}

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

#endif
