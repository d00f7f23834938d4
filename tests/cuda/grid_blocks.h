/* grid_blocks.h: block masks of a grid_case, or element masks: a rule for each element, and what is
 * made from it.
 *
 * The rule counts rows and columns of the whole sequence, so that a part of a case has its part of
 * the mask: its sequences, heads, rows and columns begin where the rule says. */
#ifndef TESTS_CUDA_GRID_BLOCKS_H
#define TESTS_CUDA_GRID_BLOCKS_H

#include "check.h"
#include "ordo/ordo.h"

typedef enum grid_block_kind {
    GRID_NO_BLOCKS,
    GRID_CHUNKS,    /* chunks have `size` columns */
    GRID_DOCUMENTS, /* two in each `size` columns */
    GRID_PREFIX,    /* `size` columns, and those up to the row's own */
    GRID_INTERVALS, /* lengths up to 2 `size`, some of them 0 */
    GRID_SPARSE,    /* whole blocks, `size` of 256 */
    GRID_BAND,      /* columns row + low to row + high: what a mask or a window shows */
    GRID_ELEMENTS,  /* as elements only: squares of 64 that are empty, whole or drawn, `size` of 256
                     */
    GRID_BLOCK_KINDS
} grid_block_kind;

typedef struct grid_blocks {
    grid_block_kind kind;
    int64_t size, low, high;
    uint64_t seed;
    bool per_sequence, per_head;
    bool seen; /* an element mask */
    int64_t sequence0, head0, row0, col0;
} grid_blocks;

static const char *const grid_block_names[GRID_BLOCK_KINDS] = { "none",   "chunks",    "documents",
                                                                "prefix", "intervals", "sparse",
                                                                "band",   "elements" };

/* A random number that is a function of these. */
static inline uint64_t grid_hash(uint64_t seed, int64_t sequence, int64_t head, int64_t a,
                                 int64_t b)
{
    uint64_t state = seed + (uint64_t)(sequence * 1000 + head) * 0x9e3779b97f4a7c15u +
                     (uint64_t)a * 0xbf58476d1ce4e5b9u + (uint64_t)b * 0x94d049bb133111ebu;
    return check_random(&state);
}

/* A number of the mask of (sequence, head), by place. */
static inline uint64_t grid_block_hash(const grid_blocks *x, int64_t sequence, int64_t head,
                                       int64_t a, int64_t b)
{
    return grid_hash(x->seed, x->per_sequence ? x->sequence0 + sequence : 0,
                     x->per_head ? x->head0 + head : 0, a, b);
}

/* The columns that a row sees, of the whole sequence. */
static inline void grid_block_interval(const grid_blocks *x, int64_t sequence, int64_t head,
                                       int64_t row, int64_t *first, int64_t *last)
{
    const int64_t at = x->row0 + row;
    if (x->kind == GRID_BAND) {
        *first = at + x->low;
        *last = at + x->high;
        return;
    }
    const int64_t chunk = at / x->size * x->size;
    const uint64_t here = grid_block_hash(x, sequence, head, at, 0);
    const int64_t middle =
        chunk + (int64_t)(grid_block_hash(x, sequence, head, chunk, 1) % (uint64_t)x->size);
    *first = 0;
    *last = INT32_MAX;
    switch (x->kind) {
    case GRID_CHUNKS:
        *first = chunk;
        *last = chunk + x->size - 1;
        break;
    case GRID_DOCUMENTS:
        *first = at < middle ? chunk : middle;
        *last = (at < middle ? middle : chunk + x->size) - 1;
        break;
    case GRID_PREFIX: *last = at < x->size ? x->size - 1 : at; break;
    case GRID_INTERVALS:
        *first = at - (int64_t)(here % (uint64_t)x->size);
        *last = here >> 60 == 0 ? -1 : at + (int64_t)((here >> 32) % (uint64_t)x->size);
        break;
    default: break;
    }
}

/* Whether an element is seen of those that are drawn one by one. */
static inline bool grid_block_drawn(const grid_blocks *x, int64_t sequence, int64_t head,
                                    int64_t row, int64_t column)
{
    const int64_t r = x->row0 + row, c = x->col0 + column;
    const uint64_t square = grid_block_hash(x, sequence, head, r / 64, -1 - c / 64) >> 62;
    const uint64_t own = grid_block_hash(x, sequence, head, r, c) % 256;
    return square == 0 ? false : square == 1 || (int64_t)own < x->size;
}

static inline bool grid_block_listed(const grid_blocks *x, int64_t sequence, int64_t head,
                                     int64_t row, int64_t column)
{
    return x->kind != GRID_SPARSE ||
           (int64_t)(grid_block_hash(x, sequence, head, (x->row0 + row) / ORDO_BLOCK,
                                     (x->col0 + column) / ORDO_BLOCK) %
                     256) < x->size;
}

static inline bool grid_block_sees(const grid_blocks *x, int64_t sequence, int64_t head,
                                   int64_t row, int64_t column)
{
    int64_t first, last;
    if (x->kind == GRID_NO_BLOCKS)
        return true;
    grid_block_interval(x, sequence, head, row, &first, &last);
    return first <= x->col0 + column && x->col0 + column <= last &&
           (x->kind == GRID_ELEMENTS ? grid_block_drawn(x, sequence, head, row, column)
                                     : grid_block_listed(x, sequence, head, row, column));
}

/* Leave out the entries of blocks that are not listed. */
static inline void grid_block_thin(const grid_blocks *x, int64_t sequence, int64_t head,
                                   ordo_block_mask *mask)
{
    const int64_t rows = (mask->q_len + ORDO_BLOCK - 1) / ORDO_BLOCK;
    int32_t *start = (int32_t *)mask->start, *key = (int32_t *)mask->key, kept = 0, entry = 0;
    for (int64_t i = 0; i < rows; i++) {
        for (; entry < start[i + 1]; entry++)
            if (grid_block_listed(x, sequence, head, i * ORDO_BLOCK,
                                  (int64_t)(key[entry] & ORDO_BLOCK_KEY) * ORDO_BLOCK))
                key[kept++] = key[entry];
        start[i + 1] = kept;
    }
    mask->entries = kept;
}

static inline void grid_block_must(ordo_status status)
{
    if (status != ORDO_OK) {
        printf("FAIL block mask: %s\n", ordo_last_error());
        exit(1);
    }
}

static inline ordo_block_mask *grid_block_one(const grid_blocks *x, int64_t sequence, int64_t head,
                                              int64_t q_len, int64_t kv_len)
{
    int32_t *first = calloc((size_t)q_len + 1, 4), *last = calloc((size_t)q_len + 1, 4);
    ordo_block_mask *mask = NULL;
    if (!first || !last)
        abort();
    for (int64_t i = 0; i < q_len; i++) {
        int64_t low, high;
        grid_block_interval(x, sequence, head, i, &low, &high);
        low -= x->col0;
        high -= x->col0;
        first[i] = (int32_t)(low < 0 ? 0 : low > kv_len ? kv_len : low);
        last[i] = (int32_t)(high < -1 ? -1 : high >= kv_len ? kv_len - 1 : high);
    }
    grid_block_must(ordo_block_mask_from_intervals(&mask, q_len, kv_len, first, last));
    grid_block_thin(x, sequence, head, mask);
    free(first);
    free(last);
    return mask;
}

/* An element mask, which lies in one piece that begins with its bits. */
static inline ordo_block_mask *grid_seen_mask(const grid_blocks *x, ordo_problem *p)
{
    const int64_t sequences = x->per_sequence ? p->batch : 1, heads = x->per_head ? p->heads : 1;
    const int64_t head = p->q_len * p->kv_len;
    const int64_t strides[] = { heads * head, head, p->kv_len, 1 };
    size_t bytes = 0;
    p->seen = (ordo_seen_limits) { true, x->per_sequence, x->per_head };
    grid_block_must(ordo_seen_bytes(p, &bytes));
    unsigned char *elements = malloc((size_t)(sequences * heads * head) + 1), *to = elements;
    ordo_block_mask *mask = malloc(sizeof *mask);
    void *memory = aligned_alloc(16, (bytes + 31) / 16 * 16);
    if (!elements || !mask || !memory)
        abort();
    for (int64_t n = 0; n < sequences * heads; n++)
        for (int64_t i = 0; i < p->q_len; i++)
            for (int64_t j = 0; j < p->kv_len; j++)
                *to++ = grid_block_sees(x, n / heads, n % heads, i, j);
    *mask = (ordo_block_mask)ORDO_BLOCK_MASK_INIT;
    grid_block_must(ordo_seen_make(mask, p, elements, strides, memory, bytes));
    free(elements);
    return mask;
}

static inline void grid_block_destroy(ordo_block_mask *mask)
{
    if (!mask || !mask->bits) {
        ordo_block_mask_destroy(mask);
        return;
    }
    free((void *)mask->bits);
    free(mask);
}

/* The mask of a problem's calls, whose limits become those of the problem; NULL: none. */
static inline ordo_block_mask *grid_block_mask(const grid_blocks *x, ordo_problem *p)
{
    const int64_t sequences = x->per_sequence ? p->batch : 1, heads = x->per_head ? p->heads : 1;
    ordo_block_mask *all = NULL;
    p->blocks = (ordo_block_limits) { 0 };
    p->seen = (ordo_seen_limits) { .on = false };
    if (x->kind == GRID_NO_BLOCKS)
        return NULL;
    if (x->seen)
        return grid_seen_mask(x, p);
    const size_t count = (size_t)(sequences * heads);
    ordo_block_mask **masks = calloc(count, sizeof(ordo_block_mask *));
    if (!masks)
        abort();
    for (size_t n = 0; n < count; n++)
        masks[n] = grid_block_one(x, (int64_t)n / heads, (int64_t)n % heads, p->q_len, p->kv_len);
    grid_block_must(ordo_block_mask_join(&all, (const ordo_block_mask *const *)(const void *)masks,
                                         sequences, heads));
    for (size_t n = 0; n < count; n++)
        ordo_block_mask_destroy(masks[n]);
    free(masks);
    p->blocks = (ordo_block_limits) { all->entries + 1, sequences > 1, heads > 1 };
    return all;
}

#endif
