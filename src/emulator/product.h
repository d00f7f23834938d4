/* product.h: matrix products of tiles with the bits of Hopper's wgmma, and how tiles are stored.
 *
 * d[i][n] (+)= sum over k of A[row0 + i][a0 + k] B[b0 + k][column0 + n], in dependent steps of 16:
 * ordo_emulator_dot() with the arithmetic of Hopper. The fast path computes 32 outputs at once:
 *
 *   E      additions and maxima of exponents in int16; a zero has an exponent far below all
 *   t_k    (a_k b_k) 2^(25 - E): two products that are exact in f32; the conversion to int32
 *          truncates
 *   d      the sum of int32 as an f32, truncated, times 2^(E - 25), which is exact
 *
 * Outputs for which that does not hold (E outside -100 .. 120, a sum near 2^31, operands that are
 * not finite) are computed by ordo_emulator_dot(). All targets give the same bits. */
#ifndef EMULATOR_PRODUCT_H
#define EMULATOR_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ordo/problem.h"

enum {
    ORDO_EMULATOR_WIDTH = 32,     /* outputs at once: columns of tiles are padded to it */
    ORDO_EMULATOR_DEPTH = 16,     /* products of a step */
    ORDO_EMULATOR_ZERO = -2000,   /* exponent of a zero */
    ORDO_EMULATOR_SPECIAL = 8000, /* exponent of an infinity or NaN */
};

/* An operand: `lines` of `columns` elements, in blocks of 32 columns. */
typedef struct ordo_emulator_tile {
    int lines, columns;
    ordo_dtype dtype;  /* ORDO_BF16 or ORDO_F16 */
    float *value;      /* exact */
    int16_t *exponent; /* in the 16-bit format; a subnormal number has the smallest normal one */
} ordo_emulator_tile;

/* Where an element is in `value` and `exponent`: the lines of a block are 32 elements, one after
 * the other. */
static inline size_t ordo_emulator_place(const ordo_emulator_tile *tile, int line, int column)
{
    const size_t block = (size_t)(column / ORDO_EMULATOR_WIDTH) * (size_t)tile->lines;
    return (block + (size_t)line) * ORDO_EMULATOR_WIDTH + (size_t)(column % ORDO_EMULATOR_WIDTH);
}

/* Bytes of memory for a tile. */
size_t ordo_emulator_tile_bytes(int lines, int columns);

/* Make a tile of zeros in `memory`, which has that many bytes and is aligned to 64. */
void ordo_emulator_tile_make(ordo_emulator_tile *tile, int lines, int columns, ordo_dtype dtype,
                             void *memory);

/* Set the first n elements of a line; the others keep what they had. */
void ordo_emulator_tile_set(ordo_emulator_tile *tile, int line, const uint16_t *elements, int n);

/* d[i stride + n], i < rows and n < columns, = or += A B as above. `columns` and
 * column0 are multiples of ORDO_EMULATOR_WIDTH, `depth` and a0 of ORDO_EMULATOR_DEPTH; both
 * operands have the same type. */
void ordo_emulator_product(float *d, ptrdiff_t stride, int rows, const ordo_emulator_tile *a,
                           int row0, int a0, const ordo_emulator_tile *b, int b0, int column0,
                           int columns, int depth, bool add);

#endif
