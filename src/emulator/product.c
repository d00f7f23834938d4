/* product.c: tiles, and their products by the kernels of this machine. */
#include "emulator/product.h"

#include <assert.h>
#include <string.h>

#include "emulator/kernels.h"

static int padded(int columns)
{
    return (columns + ORDO_EMULATOR_WIDTH - 1) / ORDO_EMULATOR_WIDTH * ORDO_EMULATOR_WIDTH;
}

size_t ordo_emulator_tile_bytes(int lines, int columns)
{
    return (size_t)lines * (size_t)padded(columns) * (sizeof(float) + sizeof(int16_t));
}

void ordo_emulator_tile_make(ordo_emulator_tile *tile, int lines, int columns, ordo_dtype dtype,
                             void *memory)
{
    const size_t count = (size_t)lines * (size_t)padded(columns);
    float *value = memory;
    *tile = (ordo_emulator_tile) { lines, columns, dtype, value, (void *)(value + count) };
    memset(value, 0, count * sizeof *value);
    for (size_t x = 0; x < count; x++)
        tile->exponent[x] = ORDO_EMULATOR_ZERO;
}

void ordo_emulator_tile_set(ordo_emulator_tile *tile, int line, const uint16_t *elements, int n)
{
    const ordo_emulator_kernels *kernels = ordo_emulator_kernels_here();
    assert(line < tile->lines && n <= tile->columns);
    for (int x = 0; x < n; x += ORDO_EMULATOR_WIDTH) {
        const size_t at = ordo_emulator_place(tile, line, x);
        kernels->set(tile->value + at, tile->exponent + at, elements + x,
                     n - x < ORDO_EMULATOR_WIDTH ? n - x : ORDO_EMULATOR_WIDTH, tile->dtype);
    }
}

void ordo_emulator_product(float *d, ptrdiff_t stride, int rows, const ordo_emulator_tile *a,
                           int row0, int a0, const ordo_emulator_tile *b, int b0, int column0,
                           int columns, int depth, bool add)
{
    assert(a->dtype == b->dtype && columns % ORDO_EMULATOR_WIDTH == 0 &&
           depth % ORDO_EMULATOR_DEPTH == 0);
    assert(column0 % ORDO_EMULATOR_WIDTH == 0 && a0 % ORDO_EMULATOR_DEPTH == 0);
    assert(row0 + rows <= a->lines && a0 + depth <= padded(a->columns));
    assert(b0 + depth <= b->lines && column0 + columns <= padded(b->columns));
    ordo_emulator_kernels_here()->product(d, stride, rows, a, row0, a0, b, b0, column0, columns,
                                          depth, add);
}
