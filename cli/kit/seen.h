/* seen.h: the element mask that --seen names, and questions about a mask of either kind. */
#ifndef CLI_SEEN_H
#define CLI_SEEN_H

#include "ordo/ordo.h"

/* An element mask and what it was made of. */
typedef struct cli_seen {
    ordo_block_mask mask; /* first, so that a pointer to it is one to this */
    void *memory;
    unsigned char elements[]; /* q_len x kv_len */
} cli_seen;

static inline const unsigned char *cli_seen_row(const ordo_block_mask *mask, int64_t row)
{
    return ((const cli_seen *)(const void *)mask)->elements + row * mask->kv_len;
}

/* Those that return int print their error and return an exit status. */

/* Make the element mask of `text`, for all sequences and heads:
 *
 *   P[:SEED]  each element is seen with probability P, by a function of SEED and its place
 *   FILE      a .npy file of bool, (rows, columns) */
int cli_seen_make(const char *text, int64_t q_len, int64_t kv_len, ordo_block_mask **mask);

/* Destroy a block mask, or an element mask that was made here. NULL is allowed. */
void cli_mask_destroy(ordo_block_mask *mask);

/* The same of masks that were made here or by cli_block_mask_make(): the mask of the first rows and
 * columns; XXH64 of what it shows. */
int cli_mask_part(const ordo_block_mask *mask, int64_t q_len, int64_t kv_len,
                  ordo_block_mask **part);
uint64_t cli_mask_digest(const ordo_block_mask *mask);

/* How many of columns first .. last a row sees. */
static inline double cli_mask_columns(const ordo_block_mask *mask, int64_t row, double first,
                                      double last)
{
    double count = 0;
    if (!mask->bits) {
        const double from = first > mask->first[row] ? first : mask->first[row];
        const double to = last < mask->last[row] ? last : mask->last[row];
        return to >= from ? to - from + 1 : 0;
    }
    for (int64_t j = first > 0 ? (int64_t)first : 0; j < mask->kv_len && (double)j <= last; j++)
        count += cli_seen_row(mask, row)[j] != 0;
    return count;
}

#endif
