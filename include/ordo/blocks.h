/* ordo/blocks.h: block masks: which blocks of 128 x 128 elements the rows of a sequence see.
 *
 * A block mask narrows the mask of a problem. Row i sees column j if all of this holds:
 *
 *   mask      visible(i, j) of ordo/problem.h: lengths, causal, window
 *   block     block (i / 128, j / 128) is listed
 *   interval  where its entry is partial and the mask has intervals: first[i] <= j <= last[i]
 *
 * Documents in one sequence, chunks, prefixes and any pattern of whole blocks are block masks. Rows
 * and columns are counted from those that the call holds: a shard has the part of the mask that
 * belongs to its rows and columns.
 *
 * The problem says that its calls have a block mask, and how large (ordo_problem.blocks); the call
 * points to it (ordo_call.block_mask). Lists are data, like the lengths of a packed batch: one plan
 * serves all of them. The bits of a result are a function of the elements that are visible, the
 * tiles and the order, as with any mask. So a block mask that hides what a causal mask hides gives
 * the bits of the causal mask, and it changes no bit to list a block in which nothing is visible,
 * or to mark as partial a block that is whole.
 *
 *   runs      backends ref and cpu, and cuda up to head size 128; orders ascending, descending and
 *             spt; on the CPU tiles of 128 columns and of rows that divide 128
 *   refused   larger heads on backend cuda, other orders, other tiles and segments of dropout, when
 *             the plan is made (ORDO_ERR_UNSUPPORTED)
 *
 * The arrays of a mask lie where the tensors lie: on the device for backend cuda, where they are
 * read by the pass and cannot be checked. Invalid ones are clamped there: starts to 0 .. entries, a
 * row that ends before it begins is empty, and entries that name no block are ignored. Then nothing
 * outside the arrays is read, both passes end, and results are undefined.
 *
 * The functions that make a mask work on the host, check their arguments and allocate; they write
 * NULL if they fail. */
#ifndef ORDO_BLOCKS_H
#define ORDO_BLOCKS_H

#include "ordo/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ORDO_BLOCK = 128,                     /* rows and columns of a block */
    ORDO_BLOCK_WHOLE = 1 << 30,           /* in an entry: the interval of a row does not apply */
    ORDO_BLOCK_KEY = ORDO_BLOCK_WHOLE - 1 /* the other bits of an entry: the block of columns */
};

/* Masks in compressed rows: nq = ceil(q_len / 128) rows of blocks, nk = ceil(kv_len / 128) columns.
 * Mask (b, h) has number (b if sequences > 1, else 0) * heads + (h if heads > 1, else 0).
 *
 * Sequences that are shorter than q_len and kv_len, in a packed or padded batch, use the first rows
 * and columns of their mask. */
typedef struct ordo_block_mask {
    size_t size;           /* sizeof(ordo_block_mask) */
    int64_t q_len, kv_len; /* those of the problem */
    int64_t sequences;     /* 1: all have the same mask; else the batch of the problem */
    int64_t heads;         /* 1: all have the same mask; else the query heads of the problem */
    int64_t entries;       /* number of elements of key */
    const int32_t *start;  /* (masks, nq + 1): row i of a mask has entries start[i] up to, and not
                            * including, start[i + 1] of key; rows do not decrease */
    const int32_t *key;    /* (entries): a block of columns, with ORDO_BLOCK_WHOLE or without; the
                            * blocks of a row ascend */
    const int32_t *first;  /* (masks, q_len): the columns of partial blocks that a row sees; */
    const int32_t *last;   /* first > last: none of them. 0 <= first <= kv_len, -1 <= last < kv_len.
                            * Both NULL: all of them */
    const uint32_t *bits;  /* the elements of an element mask (ordo/seen.h); else NULL */
} ordo_block_mask;

#define ORDO_BLOCK_MASK_INIT ORDO_SIZED(ordo_block_mask)

/* Make a mask in which row i sees columns first[i] .. last[i]; first > last: none. */
ORDO_API ordo_status ordo_block_mask_from_intervals(ordo_block_mask **mask, int64_t q_len,
                                                    int64_t kv_len, const int32_t *first,
                                                    const int32_t *last);

/* Make a mask from a function, which is called once for each element. Blocks that are neither empty
 * nor whole are partial, and each row must see one interval of the columns in its partial blocks:
 * ORDO_ERR_UNSUPPORTED names the first element at which it does not. */
typedef bool ordo_block_rule(void *context, int64_t row, int64_t column);
ORDO_API ordo_status ordo_block_mask_from_function(ordo_block_mask **mask, int64_t q_len,
                                                   int64_t kv_len, ordo_block_rule *sees,
                                                   void *context);

/* Make a mask of documents that follow one another in a sequence of `length` rows and columns: a
 * row sees the columns with its own id. A negative id belongs to no document: such a row sees
 * nothing. ORDO_ERR_UNSUPPORTED if an id comes back after another one. */
ORDO_API ordo_status ordo_block_mask_from_documents(ordo_block_mask **mask, int64_t length,
                                                    const int64_t *ids);

/* Make a mask of chunks: with D = kv_len - q_len, row i sees column j if i + D and j lie in the
 * same chunk of `chunk` columns. Chunks are counted from column `offset`, 0 .. kv_len; columns
 * before it are one chunk. */
ORDO_API ordo_status ordo_block_mask_from_chunks(ordo_block_mask **mask, int64_t q_len,
                                                 int64_t kv_len, int64_t chunk, int64_t offset);

/* Make the block mask of an ordinary mask and window; `window` may be NULL. */
ORDO_API ordo_status ordo_block_mask_from_band(ordo_block_mask **mask, int64_t q_len,
                                               int64_t kv_len, ordo_mask kind,
                                               const ordo_window *window);

/* Make one mask of sequences x heads masks, sequence by sequence, each with lengths q_len x kv_len
 * and one mask in it. */
ORDO_API ordo_status ordo_block_mask_join(ordo_block_mask **mask,
                                          const ordo_block_mask *const *masks, int64_t sequences,
                                          int64_t heads);

/* Destroy a mask that one of these functions made. NULL is allowed. */
ORDO_API void ordo_block_mask_destroy(ordo_block_mask *mask);

/* Check a mask in host memory against the problem of a plan: sizes, lists and intervals, as each
 * pass on the host does before it writes anything (ORDO_ERR_ARGUMENT or ORDO_ERR_SHAPE, with the
 * place that is wrong). For lists that go to a device, where no pass can check them. Takes a few
 * nanoseconds per row and entry. */
ORDO_API ordo_status ordo_block_mask_check_lists(const ordo_plan *plan,
                                                 const ordo_block_mask *mask);

/* The same, then replay the backward pass tile by tile, as ordo_plan_check() does: every tile in
 * which something is visible is visited once, the turns of a query tile have no holes, and no chain
 * waits on a later one (ORDO_ERR_INTERNAL). Packed and padded problems are checked at their maximal
 * lengths. If `pairs` is not NULL it gets the number of visible tile pairs of all masks. */
ORDO_API ordo_status ordo_block_mask_check(const ordo_plan *plan, const ordo_block_mask *mask,
                                           uint64_t *pairs);

#ifdef __cplusplus
}
#endif
#endif
