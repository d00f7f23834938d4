/* tile/mask.h: hides scores that rows do not see. A thread has rows r and r + 8 of a product's
 * accumulators (tile/fragment.h); where no other is said, columns are counted from its first. */
#ifndef CUDA_TILE_MASK_H
#define CUDA_TILE_MASK_H

#include <math.h>

#include "cuda/tile/fragment.h"
#include "cuda/tile/ptx.h"
#include "cuda/tile/score.h"

/* Hides columns at or beyond a limit of each row; the thread's first column is `column`. */
template <int N> ORDO_DEVICE void mask_from(float (&s)[N], const int (&limit)[2], int column)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (ordo_accumulator_column(0, i) >= limit[i / 2 % 2] - column)
            s[i] = -INFINITY;
}

/* Hides columns by a limit that is 8 columns further for the second row, so that one comparison
 * serves both: `hidden` says it of a column of the first row. */
template <int N, typename F> ORDO_DEVICE void mask_diagonal(float (&s)[N], F hidden)
{
#pragma unroll
    for (int j = -1; j < N / 4; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (hidden(8 * j + e)) {
                if (j >= 0)
                    s[4 * j + e] = -INFINITY;
                if (j + 1 < N / 4)
                    s[4 * j + 6 + e] = -INFINITY;
            }
}

/* Columns outside from[r] .. to[r] get a value. The comparisons are part of one statement per
 * element, so that the results of many are not kept in registers. */
template <int N>
ORDO_DEVICE void mask_window(float (&s)[N], const int (&from)[2], const int (&to)[2], float value)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("{.reg .pred p; setp.lt.s32 p, %1, %2; setp.gt.or.s32 p, %1, %3, p; "
                     "@p mov.b32 %0, %4;}"
                     : "+f"(s[i])
                     : "r"(ordo_accumulator_column(0, i)), "r"(from[i / 2 % 2]), "r"(to[i / 2 % 2]),
                       "f"(value));
}

/* Hides columns whose bit in seen[r] is 0; bit n is of the thread's n-th column of a row. */
template <int N> ORDO_DEVICE void mask_bits(float (&s)[N], const uint32_t (&seen)[2])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (!(seen[i / 2 % 2] >> (i / 4 * 2 + i % 2) & 1))
            s[i] = -INFINITY;
}

/* Hides a score if the bit is 0 in the word: two instructions. */
ORDO_DEVICE void mask_if_clear(float &s, uint32_t word, uint32_t bit)
{
    asm("{.reg .b32 y; .reg .pred clear; and.b32 y, %1, %2; setp.eq.u32 clear, y, 0; "
        "@clear mov.b32 %0, 0fff800000;}"
        : "+f"(s)
        : "r"(word), "r"(bit));
}

/* Hides columns whose bit in the word of their row is 0: words as of keep bits. */
template <int N> ORDO_DEVICE void mask_words(float (&s)[N], uint2 words)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        mask_if_clear(s[i], i / 2 % 2 ? words.y : words.x, 0x80000000u >> keep_shift(i / 4, i % 2));
}

#endif
