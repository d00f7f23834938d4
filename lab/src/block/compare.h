/* compare.h: keep bits of generator compare: 32 random bits per element, drawn from a linear
 * counter and compared one by one. Plain C; the kernels make the same words. */
#ifndef BLOCK_COMPARE_H
#define BLOCK_COMPARE_H

#include "base/philox.h"

/* A draw below it keeps. */
static inline uint32_t block_compare_limit(double dropout)
{
    return (uint32_t)((1 - dropout) * 0x1p32);
}

/* Word number `w` in storage (base/keep.h). */
static inline uint32_t block_compare_word(uint64_t seed, uint64_t offset, int rounds,
                                          uint32_t limit, uint64_t w)
{
    uint32_t kept = 0;
    for (uint32_t d = 0; d < 8; d++) {
        const uint64_t draw = w * 8 + d;
        const ordo_philox_words counter = { { (uint32_t)draw, (uint32_t)(draw >> 32),
                                              (uint32_t)offset, 0 } };
        const ordo_philox_words words =
            ordo_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32), rounds);
        for (uint32_t i = 0; i < 4; i++)
            kept |= (uint32_t)(words.w[i] < limit) << (4 * d + i);
    }
    return kept;
}

#endif
