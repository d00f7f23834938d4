/* mask.h: keep bits in storage order, many at a time.
 *
 * The words are those of ordo_keep_word(), whichever kernel makes them; integers only. */
#ifndef CPU_MASK_H
#define CPU_MASK_H

#include "base/keep.h"

#include <stddef.h>

/* The words of `count` blocks side by side: rows row .. row + 15 (row % 16 == 0), column blocks
 * block .. block + count - 1, all in coordinates of the whole sequence; 64 words a block. */
typedef void ordo_mask_function(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block,
                                int64_t count, uint32_t *words);

typedef struct ordo_mask_kernel {
    const char *name; /* of the target */
    ordo_mask_function *fill;
} ordo_mask_kernel;

/* One a target; only those of the architecture at hand exist. */
extern const ordo_mask_kernel ordo_mask_generic, ordo_mask_neon, ordo_mask_avx2, ordo_mask_avx512;

/* Kernels that this machine can run, the fastest first; NULL past the end. */
const ordo_mask_kernel *ordo_mask_kernel_at(size_t index);

/* Fill with the fastest. */
void ordo_mask_fill(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block, int64_t count,
                    uint32_t *words);

#endif
