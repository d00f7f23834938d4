/* blocks.h: read a block mask or an element mask: which elements it leaves. */
#ifndef BASE_BLOCKS_H
#define BASE_BLOCKS_H

#include "base/keep.h"
#include "ordo/blocks.h"

/* Whether the calls of a problem have lists of blocks, and whether each query head has its own. */
static inline bool ordo_has_blocks(const ordo_problem *p)
{
    return p->blocks.entries > 0 || p->seen.on;
}
static inline bool ordo_blocks_per_head(const ordo_problem *p)
{
    return p->blocks.per_head || p->seen.per_head;
}

/* One of the masks of an ordo_block_mask. With neither intervals nor bits partial blocks are as
 * good as whole ones. */
typedef struct ordo_block_view {
    const int32_t *start, *key;
    const int32_t *first, *last;
    const uint32_t *bits;
    int64_t columns; /* that the bits are laid out for */
} ordo_block_view;

static inline int64_t ordo_blocks_of(int64_t length)
{
    return (length + ORDO_BLOCK - 1) / ORDO_BLOCK;
}

/* The mask of (sequence b, query head). */
static inline ordo_block_view ordo_block_view_of(const ordo_block_mask *m, int64_t b, int64_t head)
{
    const int64_t number = (m->sequences > 1 ? b : 0) * m->heads + (m->heads > 1 ? head : 0);
    return (ordo_block_view) {
        .start = m->start + number * (ordo_blocks_of(m->q_len) + 1),
        .key = m->key,
        .first = m->first ? m->first + number * m->q_len : NULL,
        .last = m->last ? m->last + number * m->q_len : NULL,
        .bits = m->bits ? m->bits + number * ordo_keep_blocks(m->q_len, m->kv_len) * ORDO_KEEP_WORDS
                        : NULL,
        .columns = m->kv_len,
    };
}

/* The entry of a block, or -1 if it is not listed. */
static inline int32_t ordo_block_entry(const ordo_block_view *view, int64_t row, int64_t column)
{
    int32_t low = view->start[row], high = view->start[row + 1];
    while (low < high) {
        const int32_t middle = low + (high - low) / 2, key = view->key[middle] & ORDO_BLOCK_KEY;
        if (key == column)
            return view->key[middle];
        if (key < column)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* Whether intervals of rows, or bits, narrow a block with this entry. */
static inline bool ordo_block_partial(const ordo_block_view *view, int32_t entry)
{
    return (view->bits || (view->first && view->last)) && !(entry & ORDO_BLOCK_WHOLE);
}

/* The columns of a partial block that a row sees, as 128 bits, lowest first. */
static inline void ordo_block_columns(const ordo_block_view *view, int64_t row, int64_t key,
                                      uint32_t columns[4])
{
    const int64_t left = key * ORDO_BLOCK;
    uint32_t quads[4];
    if (!view->bits) {
        ordo_columns_between(view->first[row] - left, view->last[row] - left, columns);
        return;
    }
    for (int64_t quad = 0; quad < 4; quad++)
        quads[quad] = view->bits[ordo_keep_index(view->columns, row, key, quad)];
    ordo_keep_columns(quads, columns);
}

/* Whether the mask lets row i see column j. */
static inline bool ordo_block_sees(const ordo_block_view *view, int64_t i, int64_t j)
{
    const int32_t entry = ordo_block_entry(view, i / ORDO_BLOCK, j / ORDO_BLOCK);
    if (entry < 0)
        return false;
    if (!ordo_block_partial(view, entry))
        return true;
    if (view->bits)
        return ordo_keep_stored(view->bits, view->columns, i, j);
    return view->first[i] <= j && j <= view->last[i];
}

#endif
