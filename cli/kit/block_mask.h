/* block_mask.h: the block mask that --block-mask names. */
#ifndef CLI_BLOCK_MASK_H
#define CLI_BLOCK_MASK_H

#include "ordo/ordo.h"

/* Each prints its error and returns an exit status; ordo_block_mask_destroy() releases the mask. */

/* Make the mask of `text` for sequences of these lengths. Every row sees one interval of columns:
 *
 *   chunk:N          those of its own chunk of N columns, counted from column 0
 *   documents:N,N..  those of its own document; N are the lengths of documents in a row
 *   FILE             one line per row: the first and the last column, 0 -1 = none */
int cli_block_mask_make(const char *text, int64_t q_len, int64_t kv_len, ordo_block_mask **mask);

/* Make the mask of the first rows and columns of a mask of intervals, as a sequence that is shorter
 * than its batch has it. */
int cli_block_mask_part(const ordo_block_mask *mask, int64_t q_len, int64_t kv_len,
                        ordo_block_mask **part);

/* XXH64 of what the mask shows. */
uint64_t cli_block_mask_digest(const ordo_block_mask *mask);

#endif
