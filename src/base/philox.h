/* philox.h: Philox4x32, the counter-based generator of Salmon et al. (SC 2011).
 *
 * Four counter words and two key words give four random words; no state. Ten rounds are
 * the authors' default, seven the fewest that passed their tests. */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include "base/hd.h"

#include <stdint.h>

#define ORDO_PHILOX_M0 0xd2511f53u /* multipliers */
#define ORDO_PHILOX_M1 0xcd9e8d57u
#define ORDO_PHILOX_W0 0x9e3779b9u /* steps of the key: golden ratio and sqrt(3) - 1, as */
#define ORDO_PHILOX_W1 0xbb67ae85u /* fractions of 2^32 */

typedef struct ordo_philox_words {
    uint32_t w[4];
} ordo_philox_words;

ORDO_HD ordo_philox_words ordo_philox(ordo_philox_words counter, uint32_t key0, uint32_t key1,
                                      int rounds)
{
    ordo_philox_words c = counter;
    for (int r = 0; r < rounds; r++) {
        const uint64_t p0 = (uint64_t)ORDO_PHILOX_M0 * c.w[0];
        const uint64_t p1 = (uint64_t)ORDO_PHILOX_M1 * c.w[2];
        c.w[0] = (uint32_t)(p1 >> 32) ^ c.w[1] ^ key0;
        c.w[1] = (uint32_t)p1;
        c.w[2] = (uint32_t)(p0 >> 32) ^ c.w[3] ^ key1;
        c.w[3] = (uint32_t)p0;
        key0 += ORDO_PHILOX_W0;
        key1 += ORDO_PHILOX_W1;
    }
    return c;
}

#endif
