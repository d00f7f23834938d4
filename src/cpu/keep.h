/* keep.h: keep bits in storage order, many at a time.
 *
 * Every kernel makes the words of ordo_keep_word(). Integers only. */
#ifndef CPU_KEEP_H
#define CPU_KEEP_H

#include "base/keep.h"

#include <stddef.h>

/* Write the words of `count` adjacent blocks: rows row .. row + 15 (row % 16 == 0), column blocks
 * block .. block + count - 1, in coordinates of the whole sequence; 64 words per block. */
typedef void ordo_keep_function(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block,
                                int64_t count, uint32_t *words);

typedef struct ordo_keep_kernel {
    const char *name; /* name of the target */
    ordo_keep_function *fill;
} ordo_keep_kernel;

/* One kernel per target; only those of the architecture of this build exist. */
extern const ordo_keep_kernel ordo_keep_generic, ordo_keep_neon, ordo_keep_avx2, ordo_keep_avx512;

/* The kernels that this machine can run, fastest first; NULL past the end. */
const ordo_keep_kernel *ordo_keep_kernel_at(size_t index);

/* Write words with the fastest kernel. */
void ordo_keep_fill(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block, int64_t count,
                    uint32_t *words);

#endif
