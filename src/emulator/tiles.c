/* tiles.c: copies rows of tensors into the operands of products. */
#include "emulator/tiles.h"

enum { MOST = 576 }; /* columns of a row */

void ordo_emulator_tile_take(ordo_emulator_arena *arena, ordo_emulator_tile *tile, int lines,
                             int columns, ordo_dtype dtype)
{
    void *memory = ordo_emulator_take(arena, ordo_emulator_tile_bytes(lines, columns));
    if (memory)
        ordo_emulator_tile_make(tile, lines, columns, dtype, memory);
}

void ordo_emulator_load(const ordo_emulator_pass *pass, ordo_emulator_tile *tile,
                        const ordo_tensor *tensor, ordo_emulator_side side, int dim, int64_t b,
                        int64_t head, int32_t row, int count)
{
    static const uint16_t zeros[MOST];
    for (int i = 0; i < count; i++) {
        const uint16_t *from = ordo_emulator_row(pass, tensor, side, dim, b, head, row + i);
        ordo_emulator_tile_set(tile, i, from ? from : zeros, dim);
    }
}

void ordo_emulator_load_transposed(const ordo_emulator_pass *pass, ordo_emulator_tile *tile,
                                   const ordo_tensor *tensor, ordo_emulator_side side, int dim,
                                   int64_t b, int64_t head, int32_t row, int count,
                                   uint16_t *transposed)
{
    for (int i = 0; i < count; i++) {
        const uint16_t *from = ordo_emulator_row(pass, tensor, side, dim, b, head, row + i);
        for (int c = 0; c < dim; c++)
            transposed[c * count + i] = from ? from[c] : 0;
    }
    for (int c = 0; c < dim; c++)
        ordo_emulator_tile_set(tile, c, transposed + (ptrdiff_t)c * count, count);
}

void ordo_emulator_transpose(uint16_t *to, const uint16_t *from, int rows, int columns)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            to[c * rows + r] = from[r * columns + c];
}
