/* random.h: seeded numbers for inputs and weights, the same on host and device. */
#ifndef BLOCK_RANDOM_H
#define BLOCK_RANDOM_H

#include "base/hd.h"
#include "base/philox.h"

/* Four numbers of variance one: uniform in [-sqrt(3), sqrt(3)). Group g of tensor t has elements
 * 4g .. 4g + 3. */
typedef struct block_numbers {
    float at[4];
} block_numbers;

ORDO_HD block_numbers block_random(uint64_t seed, uint32_t tensor, uint64_t group)
{
    const ordo_philox_words counter = { { (uint32_t)group, (uint32_t)(group >> 32), tensor,
                                          0x626c6f63u } }; /* no counter of keep bits' first site */
    const ordo_philox_words words =
        ordo_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32), 10);
    block_numbers numbers;
    for (int i = 0; i < 4; i++)
        numbers.at[i] = (float)((int32_t)words.w[i] >> 8) * 0x1.bb67aep-23f; /* sqrt(3) / 2^23 */
    return numbers;
}

#endif
