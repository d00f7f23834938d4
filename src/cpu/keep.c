/* keep.c: which generator of keep bits serves this machine. */
#include "cpu/keep.h"

#include <string.h>

const ordo_keep_kernel *ordo_keep_kernel_at(size_t index)
{
    const ordo_keep_kernel *usable[4];
    size_t count = 0;
#if defined(__aarch64__)
    usable[count++] = &ordo_keep_neon;
#elif defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        usable[count++] = &ordo_keep_avx512;
    if (__builtin_cpu_supports("avx2"))
        usable[count++] = &ordo_keep_avx2;
#endif
    usable[count++] = &ordo_keep_generic;
    return index < count ? usable[index] : NULL;
}

void ordo_keep_fill(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block, int64_t count,
                    uint32_t *words)
{
    if (keep->threshold >> keep->bits) /* keep all */
        memset(words, 0xff, (size_t)count * ORDO_KEEP_WORDS * sizeof *words);
    else
        ordo_keep_kernel_at(0)->fill(keep, bh, row, block, count, words);
}
