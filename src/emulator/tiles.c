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

/* Rows of the sequence on this side. */
static int32_t length(const ordo_emulator_pass *pass, ordo_emulator_side side, int64_t b)
{
    const ordo_emulator_sequence *s = &pass->sequences[b];
    return side == ORDO_EMULATOR_QUERIES ? s->q_len : s->kv_len;
}

void ordo_emulator_load(const ordo_emulator_pass *pass, ordo_emulator_tile *tile,
                        const ordo_tensor *tensor, ordo_emulator_side side, int dim, int64_t b,
                        int64_t head, int32_t row, int count)
{
    static const uint16_t zeros[MOST];
    const ordo_emulator_rows rows = ordo_emulator_rows_of(pass, tensor, side, dim, b, head);
    const int32_t end = length(pass, side, b);
    for (int i = 0; i < count; i++)
        ordo_emulator_tile_set(tile, i, row + i < end ? rows.data + (row + i) * rows.stride : zeros,
                               dim);
}

void ordo_emulator_load_transposed(const ordo_emulator_pass *pass, ordo_emulator_tile *tile,
                                   const ordo_tensor *tensor, ordo_emulator_side side, int dim,
                                   int64_t b, int64_t head, int32_t row, int count,
                                   uint16_t *transposed)
{
    const ordo_emulator_rows rows = ordo_emulator_rows_of(pass, tensor, side, dim, b, head);
    const int32_t end = length(pass, side, b);
    for (int i = 0; i < count; i++) {
        const uint16_t *from = rows.data + (row + i) * rows.stride;
        for (int c = 0; c < dim; c++)
            transposed[c * count + i] = row + i < end ? from[c] : 0;
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
