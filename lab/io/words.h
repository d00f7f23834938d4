/* words.h: what each algorithm moves, in closed form, and the tiles that make it least.
 *
 * Unmasked, every sum is a product of tile counts. Masked, the same per-tile costs are summed over
 * live tiles. The simulation meets these numbers to the word. */
#ifndef IO_WORDS_H
#define IO_WORDS_H

#include "io/shape.h"

/* Words of an algorithm; `tiles` are all set and no larger than what they cut. Of the algorithms
 * with two or three kinds of tiles, a kind that is 0 leaves out what it does. */
ordo_io_words ordo_io_words_of(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                               const ordo_io_tiles *tiles);

/* Tiles given by a caller: clipped to the sizes they cut, the unset ones chosen. */
ordo_status ordo_io_tiles_of(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                             const ordo_io_tiles *given, ordo_io_tiles *tiles);

/* The tiles that move least; false if not even the smallest fit fast memory. */
bool ordo_io_best_tiles(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                        ordo_io_tiles *tiles);

/* A product (m x k)(k x p) with the result resident: words, and the best tile; false if none fits.
 */
typedef struct ordo_io_product {
    int64_t rows, inner, cols; /* m, k, p */
    int64_t tile_rows, tile_cols;
} ordo_io_product;
ordo_io_words ordo_io_product_words(const ordo_io_product *product, int64_t strip);
bool ordo_io_product_tiles(ordo_io_product *product, int64_t cache, int64_t strip);

/* The gradient is seven products in a row: tiles of each stage; false if one does not fit. */
typedef struct ordo_io_gradient {
    ordo_io_product project; /* A1 X, and A3 Y */
    ordo_io_shape inner;     /* attention on them */
    ordo_io_tiles forward;
    int64_t rows, cols;    /* score tile of the backward part */
    ordo_io_product dq, g; /* p A2, then A1' of that */
} ordo_io_gradient;
bool ordo_io_gradient_tiles(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                            ordo_io_gradient *stages);

#endif
