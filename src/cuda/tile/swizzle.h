/* tile/swizzle.h: where each element of a 16-bit tile in shared memory lies. Plain C, shared by
 * kernels, host and tests.
 *
 * A tile of R rows is a row of panels of 64 columns; a panel is R lines of 128 bytes whose eight
 * 16-byte chunks are swapped by the line's number (the 128-byte swizzle that the copy engine
 * writes). One tile serves the matrix products both ways: its columns as their k ("by columns"), or
 * its rows ("by rows"). A tile starts at a multiple of 1024 bytes. */
#ifndef CUDA_TILE_SWIZZLE_H
#define CUDA_TILE_SWIZZLE_H

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

#endif
