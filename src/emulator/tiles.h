/* tiles.h: rows of tensors as operands of products. */
#ifndef EMULATOR_TILES_H
#define EMULATOR_TILES_H

#include "emulator/pass.h"
#include "emulator/product.h"

/* A tile of zeros in an arena; if that only counts, no tile. */
void ordo_emulator_tile_take(ordo_emulator_arena *arena, ordo_emulator_tile *tile, int lines,
                             int columns, ordo_dtype dtype);

/* Rows `row` .. row + count - 1 of a head as the lines of a tile; rows past the end of the sequence
 * are zeros. */
void ordo_emulator_load(const ordo_emulator_pass *pass, ordo_emulator_tile *tile,
                        const ordo_tensor *tensor, ordo_emulator_side side, int dim, int64_t b,
                        int64_t head, int32_t row, int count);

/* The same rows as columns. `transposed` has room for dim x count elements. */
void ordo_emulator_load_transposed(const ordo_emulator_pass *pass, ordo_emulator_tile *tile,
                                   const ordo_tensor *tensor, ordo_emulator_side side, int dim,
                                   int64_t b, int64_t head, int32_t row, int count,
                                   uint16_t *transposed);

/* to[c][r] = from[r][c] */
void ordo_emulator_transpose(uint16_t *to, const uint16_t *from, int rows, int columns);

#endif
