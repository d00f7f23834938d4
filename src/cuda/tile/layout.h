/* tile/layout.h: where each element of a tile lies. Plain C, shared by kernels, host and tests.
 *
 * A bf16 tile of R rows in shared memory is a row of panels of 64 columns; a panel is R lines of
 * 128 bytes whose eight 16-byte chunks are swapped by the line's number (the 128-byte swizzle that
 * the copy engine writes). One tile serves the matrix products both ways: its columns as their k
 * ("by columns"), or its rows ("by rows"). A tile starts at a multiple of 1024 bytes. */
#ifndef CUDA_TILE_LAYOUT_H
#define CUDA_TILE_LAYOUT_H

#include <stdint.h>

#include "base/hd.h"

enum { ORDO_PANEL_COLUMNS = 64, ORDO_LINE_BYTES = 128 };

/* Bytes from a tile's start to (row, column). */
ORDO_HD uint32_t ordo_tile_offset(int rows, int row, int column)
{
    const uint32_t r = (uint32_t)row, c = (uint32_t)column; /* division becomes a shift */
    const uint32_t panel = c / ORDO_PANEL_COLUMNS, chunk = c % ORDO_PANEL_COLUMNS / 8;
    return panel * (uint32_t)rows * ORDO_LINE_BYTES + r * ORDO_LINE_BYTES + ((chunk ^ r % 8) * 16) +
           c % 8 * 2;
}

/* ---- descriptors of tiles for the matrix products, in units of 16 bytes ---- */

/* Swizzle of 128 bytes; groups of eight lines 1024 bytes apart. */
enum { ORDO_DESCRIPTOR_HIGH = 0x40000040 };

/* Low word: start, and the distance of panels (read only by rows, where N > 64). */
ORDO_HD uint32_t ordo_descriptor_low(uint32_t address, uint32_t panel_bytes)
{
    return address >> 4 | panel_bytes >> 4 << 16;
}

/* Added to the low word for slice k of 16: by columns, by rows. */
ORDO_HD uint32_t ordo_slice_by_columns(int rows, int k)
{
    return (uint32_t)(k / 4 * rows * 8 + k % 4 * 2);
}

ORDO_HD uint32_t ordo_slice_by_rows(int k)
{
    return (uint32_t)k * 128;
}

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

/* ---- a packed accumulator to a tile, by stores of four 8 x 8 matrices: slice k of 16 columns,
 * the registers of a register operand. Bytes from the tile's start to the line that a lane of a
 * warp of the block's accumulators names ---- */

ORDO_HD uint32_t ordo_store_offset(int rows, int warp, int lane, int k)
{
    return ordo_tile_offset(rows, warp * 16 + lane % 16, k * 16 + lane / 16 * 8);
}

/* The same line's address in slice k, from its address in slice 0 of a tile at a multiple of 128
 * bytes: at most two instructions instead of ten. */
ORDO_HD uint32_t ordo_store_slice(uint32_t address, int rows, int k)
{
    return (address ^ (uint32_t)(k % 4 * 32)) + (uint32_t)(k / 4 * rows * ORDO_LINE_BYTES);
}

/* Transposed: accumulator columns become the tile's rows. The same place as by ordo_tile_offset(),
 * in fewer instructions. */
ORDO_HD uint32_t ordo_store_transposed_offset(int rows, int warp, int lane, int k)
{
    const int line = k * 16 + lane / 16 * 8 + lane % 8, chunk = warp % 4 * 2 + lane / 8 % 2;
    return (uint32_t)(warp / 4 * rows * ORDO_LINE_BYTES + line * ORDO_LINE_BYTES +
                      ((chunk ^ line % 8) << 4));
}

/* The same line's address in slice k, from its address in slice 0. */
ORDO_HD uint32_t ordo_store_transposed_slice(uint32_t address, int k)
{
    return address + (uint32_t)(k * 16 * ORDO_LINE_BYTES);
}

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
