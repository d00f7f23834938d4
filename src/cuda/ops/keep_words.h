/* ops/keep_words.h: keep words of keying ordo, one pass over the bits of the threshold combining
 * Philox words into the keep bits of 32 columns at once. Integers only; base/keep.h is the
 * definition.
 *
 * Philox's first two rounds mix one half of the counter at a time, so that all words of a head
 * share what KEYS has, all blocks of a row its row_product, both rows of a block `first` and
 * `second` below.
 *
 *   KEYS   key[2 r], key[2 r + 1]   of round r
 *          row                      what a row's number is mixed with in round 0
 *          site, head               of the counter, with the keys that they meet
 *          product<M>(x)            the 64 bits of M x */
#ifndef CUDA_OPS_KEEP_WORDS_H
#define CUDA_OPS_KEEP_WORDS_H

#include "base/keep.h"
#include "cuda/tile/ptx.h"

enum { ORDO_SLICED_WORDS = 8 }; /* drawn for a keep word, at most */

typedef struct ordo_sliced {
    uint32_t draws, first_draw;         /* draws per block; the first that counts */
    uint32_t select[ORDO_SLICED_WORDS]; /* all ones where the threshold has a bit; the last is its
                                           highest */
} ordo_sliced;

/* Round 1's product of a row and quad, with the keys that its halves meet. */
struct row_product {
    uint32_t low, high;
};

template <class KEYS>
ORDO_DEVICE row_product product_of(const KEYS &keys, uint32_t row, uint32_t quad)
{
    const uint64_t product = keys.template product<ORDO_PHILOX_M0>(keys.row ^ (row * 4 + quad));
    row_product own = { (uint32_t)product ^ keys.key[5], (uint32_t)(product >> 32) ^ keys.key[3] };
    asm volatile("" : "+r"(own.low), "+r"(own.high));
    return own;
}

/* ordo_philox() of the counter { place, row * 4 + quad, bh, offset }. */
template <int ROUNDS, class KEYS>
ORDO_DEVICE ordo_philox_words philox(const KEYS &keys, row_product own, uint32_t place)
{
    const uint64_t first = (uint64_t)ORDO_PHILOX_M0 * place;
    const uint64_t second = (uint64_t)ORDO_PHILOX_M1 * ((uint32_t)(first >> 32) ^ keys.site);
    ordo_philox_words c = { { (uint32_t)(second >> 32) ^ keys.head, (uint32_t)second,
                              own.high ^ (uint32_t)first, own.low } };
#pragma unroll
    for (int r = 2; r < ROUNDS; r++) {
        const uint64_t p0 = keys.template product<ORDO_PHILOX_M0>(c.w[0]);
        const uint64_t p1 = keys.template product<ORDO_PHILOX_M1>(c.w[2]);
        c.w[0] = (uint32_t)(p1 >> 32) ^ c.w[1] ^ keys.key[2 * r];
        c.w[1] = (uint32_t)p1;
        c.w[2] = (uint32_t)(p0 >> 32) ^ c.w[3] ^ (r == 2 ? 0 : keys.key[2 * r + 1]);
        c.w[3] = (uint32_t)p0;
    }
    return c;
}

/* The place of a block's first draw that counts; `draws` further is that of the next block. */
ORDO_DEVICE uint32_t sliced_place(const ordo_sliced &sliced, uint32_t block)
{
    return block * sliced.draws + sliced.first_draw;
}

/* The last WORDS words of the draws from `place` on, one per bit of the threshold from the first
 * that counts. THRESHOLD, if not 0, has these bits. */
template <int ROUNDS, int WORDS, uint32_t THRESHOLD, class KEYS>
ORDO_DEVICE uint32_t sliced_word_at(const ordo_sliced &sliced, const KEYS &keys, row_product own,
                                    uint32_t place)
{
    enum { DRAWS = (WORDS + 3) / 4, SKIPPED = 4 * DRAWS - WORDS };
    uint32_t kept = 0;
#pragma unroll
    for (int draw = 0; draw < DRAWS; draw++) {
        const ordo_philox_words random = philox<ROUNDS>(keys, own, place + (uint32_t)draw);
#pragma unroll
        for (int i = draw ? 0 : SKIPPED; i < 4; i++) {
            const int bit = 4 * draw + i - SKIPPED;
            const uint32_t w = random.w[i];
            if (THRESHOLD)
                kept = THRESHOLD >> bit & 1 ? kept | w : kept & w;
            else /* the majority of three: kept | w or kept & w */
                kept = (kept & w) | ((kept | w) & sliced.select[ORDO_SLICED_WORDS - WORDS + bit]);
        }
    }
    return kept;
}

#endif
