/* tile/fragment.h: which element of a tile each register of a warp holds, and data that are stored
 * in that order: keep bits, row statistics and partial sums of dQ. A warp has 16 rows of an
 * accumulator, in the order of mma.sync and of wgmma. Plain C, shared by kernels, host and tests.
 */
#ifndef CUDA_TILE_FRAGMENT_H
#define CUDA_TILE_FRAGMENT_H

#include <stdint.h>

#include "base/hd.h"

/* ---- accumulators: register i of thread t of a warpgroup ---- */

ORDO_HD int ordo_accumulator_row(int t, int i)
{
    return t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8;
}

ORDO_HD int ordo_accumulator_column(int t, int i)
{
    return i / 4 * 8 + t % 4 * 2 + i % 2;
}

/* Packed two by two, an accumulator's columns are the k of a register operand: of slice k the
 * registers packed from 8k, 8k + 2, 8k + 4 and 8k + 6. */

/* ---- masks: a thread of an accumulator has, of each row, columns 0, 1, 8, 9, 16 .. from its first
 * one on. How many of the first `most` of them lie before column x ---- */

ORDO_HD int ordo_columns_before(int x, int most)
{
    const int rest = x & 7, before = (x >> 3) * 2 + (rest < 2 ? rest : 2);
    return before < 0 ? 0 : before > most ? most : before;
}

/* ---- dQ partials: a 64 x 64 half tile of f32 in the order of the registers ---- */

/* Floats from the half tile's start to register i of thread t: 16-byte stores without conflicts. */
ORDO_HD int ordo_partial_offset(int t, int i)
{
    return i / 4 * 512 + t * 4 + i % 4;
}

/* ---- keep bits: of each 16 rows x 128 columns 64 words, in the order of the registers ---- */

/* The block of (row, column) of head number `head`, of all heads and sequences. */
ORDO_HD int64_t ordo_keep_at(int32_t head, int32_t row, int32_t column, int32_t q_len,
                             int32_t kv_len)
{
    const int64_t down = (q_len + 15) / 16, across = (kv_len + 127) / 128;
    return (head * down + row / 16) * across + column / 128;
}

/* Accumulators whose rows are keys and whose columns are queries. A stored word holds 32 keys of
 * one query; lane l of a warp with keys 16 * slice .. 16 * slice + 15 of a block of 128 has two
 * bits of it, sixteen apart.
 *
 * Bytes from a block's start to the words of its queries 0 and 8; 32 bytes on, of queries 1 and 9.
 */
ORDO_HD uint32_t ordo_keep_key_offset(uint32_t lane)
{
    return lane % 4 * 64 + lane / 8 * 8;
}

/* Shifted left by this, a word has the bit of the lane's first key in its sign; by 16 less, that of
 * the key 8 further. */
ORDO_HD uint32_t ordo_keep_key_shift(uint32_t slice, uint32_t lane)
{
    return 24 - lane / 4 % 2 * 8 + slice;
}

/* ---- row statistics: permuted in sixteens, so that a thread's four are one 16-byte load ---- */

ORDO_HD int ordo_stat_place(int row)
{
    const int r = row % 16;
    return row - r + r / 2 % 4 * 4 + r / 8 * 2 + r % 2;
}

#endif
