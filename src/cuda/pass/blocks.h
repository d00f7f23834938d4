/* pass/blocks.h: the tiles that a block mask leaves, as bits in the workspace. Plain C, shared by
 * kernels, host and tests.
 *
 * A pass with a block mask first makes one row of bits per query tile: the key tiles in which the
 * band, the lists and the intervals leave an element. They are those of plan/lists.h, so a key
 * tile's turn is the number of bits before its own, or behind it under spt. The backward pass also
 * makes the columns of that matrix: the query tiles that a chain visits.
 *
 * Lists on the device cannot be checked. Starts are clamped to the entries there are, and a row
 * that ends before it begins is empty. Entries that are negative or past the last block are
 * ignored. What remains only sets bits, so that no list can lead outside the tensors, or to turns
 * that never come: results are undefined then, and nothing else. */
#ifndef CUDA_PASS_BLOCKS_H
#define CUDA_PASS_BLOCKS_H

#include <stddef.h>

#include "base/keep.h"
#include "cuda/pass/sequence.h"
#include "ordo/blocks.h"

enum { ORDO_TILE_BITS = 32 }; /* key tiles of a word of a row, query tiles of a word of a column */

/* A word of a row. */
typedef struct ordo_tile_word {
    uint32_t seen;         /* bit n: something of key tile 32 w + n is visible */
    uint32_t partial;      /* bit n: seen, but intervals or bits hide some of it */
    int32_t before, count; /* visible key tiles of the row: in the words before this one; in all */
} ordo_tile_word;

typedef struct ordo_cuda_block_mask {
    /* The lists, as in ordo_block_mask. start NULL: there is no block mask. */
    const int32_t *start, *key, *first, *last;
    const uint32_t *bits; /* of an element mask, else NULL: as keep bits, in blocks of 16 x 128 */
    int64_t bits_mask;    /* blocks of one mask */
    int32_t bits_across;  /* blocks side by side */
    int32_t q_len, entries;
    int32_t mask_sequence,
        mask_head; /* from a mask to that of the next sequence, of the next head */
    /* The workspace. Rows are numbered (list, query tile of all sequences), columns (list, key tile
     * of all sequences); a list is a query head's, or all heads'. */
    int32_t lists;
    int32_t rows;   /* rows of a query tile: the backward pass's, or 64 in the forward pass */
    int32_t across; /* words of a row */
    int32_t down;   /* words of a column; its number of query tiles comes before them */
    int32_t tiles, key_tiles; /* query tiles and key tiles of one list, at most */
    ordo_tile_word *words;
    ordo_span *spans;  /* forward: the first and last key tile of each row */
    uint32_t *columns; /* backward */
} ordo_cuda_block_mask;

/* ---- lists and intervals ---- */

/* The mask of (sequence b, query head). */
ORDO_HD int64_t ordo_blocks_mask(const ordo_cuda_block_mask *x, int32_t b, int32_t head)
{
    return (int64_t)b * x->mask_sequence + (int64_t)head * x->mask_head;
}

/* Entries of the row of blocks that query tile i is part of: first .. last of `key`. */
ORDO_HD ordo_span ordo_blocks_entries(const ordo_cuda_block_mask *x, int64_t mask, int32_t i)
{
    const int64_t rows = ((int64_t)x->q_len + ORDO_BLOCK - 1) / ORDO_BLOCK;
    const int32_t *const start = x->start + mask * (rows + 1) + (int64_t)i * x->rows / ORDO_BLOCK;
    ordo_span span;
    span.first = ordo_max32(0, ordo_min32(start[0], x->entries));
    span.last = ordo_max32(0, ordo_min32(start[1], x->entries)) - 1;
    return span;
}

/* Whether intervals or bits narrow the block of an entry. */
ORDO_HD bool ordo_blocks_partial(const ordo_cuda_block_mask *x, int32_t entry)
{
    return (x->bits || (x->first && x->last)) && !(entry & ORDO_BLOCK_WHOLE);
}

/* The block of bits of row r, in which key tile j begins. */
ORDO_HD int64_t ordo_blocks_bits(const ordo_cuda_block_mask *x, int64_t mask, int32_t r, int32_t j)
{
    return mask * x->bits_mask + (int64_t)(r / ORDO_KEEP_ROWS) * x->bits_across + j;
}

/* The elements of row r in key tile j that bits leave, lowest first. */
ORDO_HD void ordo_blocks_columns(const ordo_cuda_block_mask *x, int64_t mask, int32_t r, int32_t j,
                                 uint32_t columns[4])
{
    const uint32_t *const from = x->bits + ordo_blocks_bits(x, mask, r, j) * ORDO_KEEP_WORDS;
    uint32_t quads[4];
    for (int32_t quad = 0; quad < 4; quad++)
        quads[quad] = from[ordo_keep_index(ORDO_KEEP_COLS, r % ORDO_KEEP_ROWS, 0, quad)];
    ordo_keep_columns(quads, columns);
}

/* What the interval or the bits of row r leave of key tile j: something that the band leaves, too;
 * and all that there is. */
typedef struct ordo_row_sees {
    bool some, all;
} ordo_row_sees;

ORDO_HD ordo_row_sees ordo_blocks_row(const ordo_cuda_block_mask *x, int64_t mask,
                                      const ordo_band *band, int32_t r, int32_t j)
{
    const int64_t at = mask * x->q_len + r;
    const int32_t left = j * ORDO_BLOCK;
    const int32_t right = ordo_min32(left + ORDO_BLOCK, band->kv_len) - 1;
    ordo_row_sees sees = { false, true };
    if (x->bits) {
        uint32_t columns[4], band_columns[4], all[4];
        ordo_blocks_columns(x, mask, r, j, columns);
        ordo_columns_between((int64_t)r + band->low - left,
                             (int64_t)ordo_min32(right, r + band->high) - left, band_columns);
        ordo_columns_between(0, right - left, all);
        for (int w = 0; w < 4; w++) {
            sees.some |= (columns[w] & band_columns[w]) != 0;
            sees.all &= (all[w] & ~columns[w]) == 0;
        }
        return sees;
    }
    const int32_t first = x->first[at], last = x->last[at];
    sees.some = ordo_max32(ordo_max32(left, first), r + band->low) <=
                ordo_min32(ordo_min32(right, last), r + band->high);
    sees.all = first <= left && last >= right;
    return sees;
}

/* ---- rows and columns of bits ---- */

ORDO_HD int32_t ordo_blocks_list(const ordo_cuda_block_mask *x, int32_t head)
{
    return x->lists > 1 ? head : 0;
}

/* The row of query tile i, of which the sequences before have `before`: its number, its words. */
ORDO_HD int64_t ordo_blocks_row_at(const ordo_cuda_block_mask *x, int32_t head, int32_t before,
                                   int32_t i)
{
    return (int64_t)ordo_blocks_list(x, head) * x->tiles + before + i;
}

ORDO_HD ordo_tile_word *ordo_blocks_words(const ordo_cuda_block_mask *x, int32_t head,
                                          int32_t before, int32_t i)
{
    return x->words + ordo_blocks_row_at(x, head, before, i) * x->across;
}

/* The column of key tile j, of which the sequences before have `before`: how many query tiles see
 * it, and their bits. */
ORDO_HD uint32_t *ordo_blocks_column(const ordo_cuda_block_mask *x, int32_t head, int32_t before,
                                     int32_t j)
{
    const int64_t column = (int64_t)ordo_blocks_list(x, head) * x->key_tiles + before + j;
    return x->columns + column * (x->down + 1);
}

/* Query tiles in `words` of the sequences before one: a forward pass has more than its table. */
ORDO_HD int32_t ordo_blocks_before(const ordo_cuda_block_mask *x, const ordo_cuda_sequence *s,
                                   int32_t backward_rows)
{
    return s->query_tile * (backward_rows / x->rows);
}

ORDO_HD int32_t ordo_bits_count(uint32_t bits)
{
#ifdef __CUDA_ARCH__
    return __popc(bits);
#else
    return __builtin_popcount(bits);
#endif
}

ORDO_HD int32_t ordo_bits_first(uint32_t bits) /* not 0 */
{
#ifdef __CUDA_ARCH__
    return __ffs((int)bits) - 1;
#else
    return __builtin_ctz(bits);
#endif
}

ORDO_HD int32_t ordo_bits_last(uint32_t bits) /* not 0 */
{
#ifdef __CUDA_ARCH__
    return 31 - __clz((int)bits);
#else
    return 31 - __builtin_clz(bits);
#endif
}

ORDO_HD bool ordo_bit(uint32_t bits, int32_t n)
{
    return bits >> (n % ORDO_TILE_BITS) & 1;
}

/* The turn of key tile j, which is visible, at the query tile whose word of j this is. */
ORDO_HD int32_t ordo_blocks_turn(const ordo_tile_word *word, int32_t j, bool spt)
{
    const uint32_t below = (1u << (j % ORDO_TILE_BITS)) - 1;
    const int32_t rank = word->before + ordo_bits_count(word->seen & below);
    return spt ? word->count - 1 - rank : rank;
}

/* The last key tile before `end` that one of `count` adjacent rows sees; -1: none. */
ORDO_HD int32_t ordo_blocks_below(const ordo_tile_word *words, int32_t across, int32_t count,
                                  int32_t end)
{
    uint32_t most = end % ORDO_TILE_BITS ? (1u << end % ORDO_TILE_BITS) - 1 : ~0u;
    for (int32_t w = (end + ORDO_TILE_BITS - 1) / ORDO_TILE_BITS - 1; w >= 0; w--) {
        uint32_t seen = 0;
        for (int32_t n = 0; n < count; n++)
            seen |= words[(int64_t)n * across + w].seen;
        if (seen & most)
            return w * ORDO_TILE_BITS + ordo_bits_last(seen & most);
        most = ~0u;
    }
    return -1;
}

/* The first and the last key tile of a word; INT32_MAX and -1: none. */
ORDO_HD ordo_span ordo_blocks_span(uint32_t seen, int32_t w)
{
    ordo_span span;
    span.first = seen ? w * ORDO_TILE_BITS + ordo_bits_first(seen) : INT32_MAX;
    span.last = seen ? w * ORDO_TILE_BITS + ordo_bits_last(seen) : -1;
    return span;
}

/* The query tile after (descending: before) tile i in the union of `count` columns, `stride` words
 * apart; -1: none. The walk begins at i = -1, or at the number of tiles. */
ORDO_HD int32_t ordo_blocks_visit(const uint32_t *column, int64_t stride, int32_t count,
                                  int32_t down, int32_t i, bool descending)
{
    int32_t next = descending ? i - 1 : i + 1;
    if (next < 0)
        return -1;
    for (int32_t w = next / ORDO_TILE_BITS; w >= 0 && w < down; w += descending ? -1 : 1) {
        uint32_t seen = 0;
        for (int32_t n = 0; n < count; n++)
            seen |= column[n * stride + 1 + w];
        if (w == next / ORDO_TILE_BITS)
            seen &= descending ? ~0u >> (31 - next % ORDO_TILE_BITS) : ~0u << next % ORDO_TILE_BITS;
        if (seen)
            return w * ORDO_TILE_BITS + (descending ? ordo_bits_last(seen) : ordo_bits_first(seen));
    }
    return -1;
}

/* Whether the block mask lets row r of a sequence see column c, by the bits that were made;
 * `before` as above. The band is not looked at. */
ORDO_HD bool ordo_blocks_sees(const ordo_cuda_block_mask *x, int32_t b, int32_t head,
                              int32_t before, int32_t r, int32_t c)
{
    const int32_t j = c / ORDO_BLOCK;
    const ordo_tile_word *const word =
        ordo_blocks_words(x, head, before, r / x->rows) + j / ORDO_TILE_BITS;
    if (!ordo_bit(word->seen, j))
        return false;
    if (!ordo_bit(word->partial, j))
        return true;
    const int64_t mask = ordo_blocks_mask(x, b, head), at = mask * x->q_len + r;
    if (x->bits)
        return ordo_keep_stored(x->bits + ordo_blocks_bits(x, mask, r, j) * ORDO_KEEP_WORDS,
                                ORDO_KEEP_COLS, r % ORDO_KEEP_ROWS, c % ORDO_KEEP_COLS);
    return x->first[at] <= c && c <= x->last[at];
}
#endif
