/* words.h: the words that each algorithm moves, in closed form, and the tiles that minimise them.
 *
 * Unmasked, every sum is a product of tile counts. Masked, the same costs per tile are summed over
 * live tiles. The simulation counts exactly these numbers. */
#ifndef IO_WORDS_H
#define IO_WORDS_H

#include "io/shape.h"

/* ---- any pass ---- */

/* Return the words that an algorithm moves. All fields of `tiles` that it has are set and no larger
 * than what they divide; the gradient has none. An algorithm with two or three kinds of tiles
 * leaves out the work of a kind that is 0. */
ordo_io_words ordo_io_words_of(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                               const ordo_io_tiles *tiles);

/* Write the tiles that move the fewest words. Returns false if not even the smallest fit fast
 * memory. */
bool ordo_io_best_tiles(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                        ordo_io_tiles *tiles);

/* Complete the tiles that a caller gave: clamp each to the size it divides and choose those that
 * are 0. Returns ORDO_ERR_ARGUMENT for a tile below 1 that cannot be chosen, ORDO_ERR_UNSUPPORTED
 * if the workspace does not hold one row of scores. */
ordo_status ordo_io_tiles_of(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                             const ordo_io_tiles *fixed, ordo_io_tiles *tiles);

/* ---- the forward and the backward pass ---- */

/* ordo_io_words_of() and ordo_io_best_tiles() of a shape whose pass is not the gradient. */
ordo_io_words ordo_io_attention_words(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                                      const ordo_io_tiles *tiles);
bool ordo_io_attention_tiles(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                             ordo_io_tiles *tiles);

/* Words of the kernel for dq with a row block of `height` outside; 0 rows cost nothing. */
ordo_io_words ordo_io_rows_words(const ordo_io_shape *shape, int64_t height, int64_t width);

/* ---- the gradient ---- */

/* A product (m x k)(k x p) with the result resident. */
typedef struct ordo_io_product {
    int64_t rows, inner, cols; /* m, k, p */
    int64_t tile_rows, tile_cols;
} ordo_io_product;

/* The gradient is a sequence of seven products. */
typedef struct ordo_io_gradient {
    ordo_io_product project; /* A1 X, and A3 Y */
    ordo_io_shape inner;     /* attention on them */
    ordo_io_tiles forward;
    int64_t rows, cols;    /* score tile of the backward part */
    ordo_io_product dq, g; /* p A2, then A1' of that */
} ordo_io_gradient;

/* Write the tiles of every stage. Returns false if one does not fit fast memory. */
bool ordo_io_gradient_tiles(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                            ordo_io_gradient *stages);

/* ---- arithmetic ---- */

/* The words of both, one after the other. */
static inline ordo_io_words ordo_io_words_add(ordo_io_words a, ordo_io_words b)
{
    return (ordo_io_words) { a.loads + b.loads, a.stores + b.stores, ordo_io_most(a.cache, b.cache),
                             ordo_io_most(a.workspace, b.workspace) };
}

static inline int64_t ordo_io_words_total(ordo_io_words w)
{
    return w.loads + w.stores;
}

/* The tiles of all scores. */
static inline ordo_io_grid ordo_io_grid_whole(const ordo_io_shape *s, int64_t height, int64_t width)
{
    return ordo_io_grid_of(s, 0, s->rows, height, width);
}

/* The smallest tile that divides `length` into as many tiles as `tile` does. */
static inline int64_t ordo_io_even_tile(int64_t tile, int64_t length)
{
    return ordo_io_count(length, ordo_io_count(length, tile));
}

#endif
