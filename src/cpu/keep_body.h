/* keep_body.h: the generator of keep bits, written once over vectors of LANES words.
 *
 * Included by one file per target, which defines LANES, TOGETHER (vectors in flight), TARGET (an
 * attribute for every function), the type vec, and
 *
 *   wide(v, m, high, low)   v[i] * m, 64 bits, as upper and lower halves
 *
 * Keying ordo is bit-sliced: a draw gives 4 words, a word is 32 elements wide, so `bits` words
 * decide 32 elements. The 64 words of a block are the lanes, in storage order. Of the counter,
 * lanes differ in c1 only and blocks in c0 only:
 *
 *   round 1   c0' = hi(M1 bh) ^ c1 ^ k0      lane     c2' = hi(M0 c0) ^ site ^ k1   block
 *             c1' = lo(M1 bh)                         c3' = lo(M0 c0)               block
 *   round 2   c0" = hi(M1 c2') ^ c1' ^ k0    block    c2" = hi(M0 c0') ^ c3' ^ k1   lane, block
 *             c1" = lo(M1 c2')               block    c3" = lo(M0 c0')              lane
 *
 * So M0 c0' is computed once for a row of blocks, and a lane pays for one product of round 3 and
 * two of each later round: 9 of the 14 at 7 rounds. Keying fa2 has the same kind of saving. */
#include "cpu/keep.h"

#include <assert.h>
#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { MOST_ROUNDS = 10, MOST_DRAWS = 4 };

typedef struct round_keys {
    uint32_t k0[MOST_ROUNDS], k1[MOST_ROUNDS];
} round_keys;

typedef struct state {
    vec c0, c1, c2, c3;
} state;

INLINE round_keys keys_of(uint64_t seed)
{
    round_keys keys;
    for (uint32_t r = 0; r < MOST_ROUNDS; r++) {
        keys.k0[r] = (uint32_t)seed + r * ORDO_PHILOX_W0;
        keys.k1[r] = (uint32_t)(seed >> 32) + r * ORDO_PHILOX_W1;
    }
    return keys;
}

INLINE vec all(uint32_t x)
{
    const vec zero = { 0 };
    return zero + x;
}

INLINE uint32_t high_of(uint64_t x)
{
    return (uint32_t)(x >> 32);
}

/* One round on TOGETHER vectors of counters, so that they hide one another's latency. */
INLINE void round_of(state *s, const round_keys *keys, int r)
{
    const vec k0 = all(keys->k0[r]), k1 = all(keys->k1[r]);
    UNROLL
    for (int g = 0; g < TOGETHER; g++) {
        vec high0, low0, high1, low1;
        wide(s[g].c0, ORDO_PHILOX_M0, &high0, &low0);
        wide(s[g].c2, ORDO_PHILOX_M1, &high1, &low1);
        s[g].c0 = high1 ^ s[g].c1 ^ k0;
        s[g].c1 = low1;
        s[g].c2 = high0 ^ s[g].c3 ^ k1;
        s[g].c3 = low0;
    }
}

/* Rounds 3 and on, in pairs: fewer moves between registers. Whether one is left over is known when
 * this is compiled; how many there are is not, or all would be written out in a line and want more
 * registers than there are. */
INLINE void later_rounds(state *s, const round_keys *keys, int rounds, bool odd)
{
    for (int r = 3; r + 1 < rounds; r += 2) {
        round_of(s, keys, r);
        round_of(s, keys, r + 1);
    }
    if (odd)
        round_of(s, keys, rounds - 1);
}

/* ---- keying ordo ---- */

/* What the lanes of one draw for one block share; see above. */
typedef struct draw {
    uint32_t before; /* c2" = hi(M0 c0') ^ before */
    uint32_t c0, c2; /* after round 3: c0 = hi(M1 c2") ^ c0, c2 = lo(M0 c0') ^ c2 */
    uint32_t c3;
} draw;

INLINE draw draw_of(uint32_t c0, uint32_t bh, uint32_t site, const round_keys *keys)
{
    const uint64_t p0 = (uint64_t)ORDO_PHILOX_M0 * c0, p1 = (uint64_t)ORDO_PHILOX_M1 * bh;
    const uint64_t q1 = (uint64_t)ORDO_PHILOX_M1 * (high_of(p0) ^ site ^ keys->k1[0]);
    const uint64_t q0 = (uint64_t)ORDO_PHILOX_M0 * (high_of(q1) ^ (uint32_t)p1 ^ keys->k0[1]);
    return (draw) { (uint32_t)p0 ^ keys->k1[1], (uint32_t)q1 ^ keys->k0[2],
                    high_of(q0) ^ keys->k1[2], (uint32_t)q0 };
}

/* One word of the chain: OR where the threshold has a 1, AND where it has a 0. */
INLINE void chain(vec *kept, const state *s, int word, uint32_t one)
{
    UNROLL
    for (int g = 0; g < TOGETHER; g++) {
        const vec w = word == 0 ? s[g].c0 : word == 1 ? s[g].c1 : word == 2 ? s[g].c2 : s[g].c3;
        kept[g] = one ? kept[g] | w : kept[g] & w;
    }
}

INLINE void block_ordo(const ordo_keep *keep, const draw *draws, const vec *high, const vec *low,
                       const round_keys *keys, bool odd, uint32_t *words)
{
    const uint32_t t = keep->threshold;
    for (int v = 0; v < ORDO_KEEP_WORDS / LANES; v += TOGETHER) {
        vec kept[TOGETHER];
        state s[TOGETHER];
        memset(kept, 0, sizeof kept);
        for (int d = 0; 4 * d < keep->bits; d++) {
            UNROLL
            for (int g = 0; g < TOGETHER; g++) {
                vec up;
                wide(high[v + g] ^ all(draws[d].before), ORDO_PHILOX_M1, &up, &s[g].c1);
                s[g].c0 = up ^ all(draws[d].c0);
                s[g].c2 = low[v + g] ^ all(draws[d].c2);
                s[g].c3 = all(draws[d].c3);
            }
            later_rounds(s, keys, keep->rounds, odd);
            const int left = keep->bits - 4 * d;
            chain(kept, s, 0, t >> 4 * d & 1);
            if (left > 1)
                chain(kept, s, 1, t >> (4 * d + 1) & 1);
            if (left > 2)
                chain(kept, s, 2, t >> (4 * d + 2) & 1);
            if (left > 3)
                chain(kept, s, 3, t >> (4 * d + 3) & 1);
        }
        memcpy(words + v * LANES, kept, sizeof kept);
    }
}

INLINE void run_ordo(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block,
                     int64_t count, uint32_t *words, bool odd)
{
    const round_keys keys = keys_of(keep->seed);
    const uint32_t draws = (uint32_t)(keep->bits + 3) / 4;
    const uint32_t first = high_of((uint64_t)ORDO_PHILOX_M1 * bh) ^ keys.k0[0];
    vec high[ORDO_KEEP_WORDS / LANES], low[ORDO_KEEP_WORDS / LANES], c1 = { 0 };

    /* Word 2l of a block is of row l/4, quad l%4; word 2l + 1 of the row 8 further down. */
    for (uint32_t l = 0; l < LANES; l++)
        c1[l] = 4 * row + l / 2 + 32 * (l & 1);
    for (int v = 0; v < ORDO_KEEP_WORDS / LANES; v++, c1 += LANES / 2)
        wide(c1 ^ all(first), ORDO_PHILOX_M0, &high[v], &low[v]);

    for (int64_t n = 0; n < count; n++, block++, words += ORDO_KEEP_WORDS) {
        draw shared[MOST_DRAWS];
        for (uint32_t d = 0; d < draws; d++)
            shared[d] = draw_of(block * draws + d, bh, (uint32_t)keep->offset, &keys);
        block_ordo(keep, shared, high, low, &keys, odd, words);
    }
}

/* ---- keying fa2 ---- */

enum { FA2_LANES = ORDO_KEEP_WORDS / 2 }; /* a counter serves a row and the one 8 further down */

/* Products of the first three rounds that only the lane enters, for a row of blocks. */
typedef struct fa2_lanes {
    vec high1[FA2_LANES / LANES]; /* hi(M0 c0): enters c2' */
    vec low2[FA2_LANES / LANES];  /* lo(M0 c0') = c3" */
    vec high3[FA2_LANES / LANES]; /* hi(M1 c2"): enters c0 after round 3 */
    vec low3[FA2_LANES / LANES];  /* lo(M1 c2"): c1 after round 3 */
} fa2_lanes;

INLINE void lanes_fa2(fa2_lanes *t, uint64_t place, uint32_t row, const round_keys *keys)
{
    const uint32_t shared = high_of((uint64_t)ORDO_PHILOX_M1 * (row >> 4)) ^ keys->k0[0];
    vec lane = { 0 };
    for (uint32_t l = 0; l < LANES; l++)
        lane[l] = l;
    for (int v = 0; v < FA2_LANES / LANES; v++, lane += LANES) {
        const vec c0 = lane + (uint32_t)place;
        const vec c1 = all(high_of(place)) - (vec)(c0 < all((uint32_t)place)); /* the carry */
        vec low1, high2;
        wide(c0, ORDO_PHILOX_M0, &t->high1[v], &low1);
        wide(c1 ^ all(shared), ORDO_PHILOX_M0, &high2, &t->low2[v]);
        wide(high2 ^ low1 ^ all(keys->k1[1]), ORDO_PHILOX_M1, &t->high3[v], &t->low3[v]);
    }
}

/* Bit 7 of each byte: whether the byte is below the threshold, 1..255. */
INLINE vec below(vec w, uint32_t threshold)
{
    const vec at_least = (w | all(0x80808080)) - all((threshold & 127) * 0x01010101);
    return ~(threshold & 128 ? w & at_least : w | at_least) & all(0x80808080);
}

INLINE void block_fa2(const ordo_keep *keep, uint32_t row, uint32_t block, const fa2_lanes *t,
                      const round_keys *keys, uint32_t *words)
{
    const uint32_t shared = (uint32_t)((uint64_t)ORDO_PHILOX_M1 * (row >> 4)) ^ keys->k0[1];
    for (int v = 0; v < FA2_LANES / LANES; v += TOGETHER) {
        vec upper[TOGETHER], lower[TOGETHER]; /* words of row g and of row g + 8 */
        state s[TOGETHER];
        memset(upper, 0, sizeof upper);
        memset(lower, 0, sizeof lower);
        for (uint32_t part = 0; part < 4; part++) { /* 32 columns each */
            UNROLL
            for (int g = 0; g < TOGETHER; g++) {
                const vec c2 = t->high1[v + g] ^ all((block * 4 + part) ^ keys->k1[0]);
                vec up, c1, high0;
                wide(c2, ORDO_PHILOX_M1, &up, &c1);
                wide(up ^ all(shared), ORDO_PHILOX_M0, &high0, &s[g].c3);
                s[g].c0 = t->high3[v + g] ^ c1 ^ all(keys->k0[2]);
                s[g].c1 = t->low3[v + g];
                s[g].c2 = high0 ^ t->low2[v + g] ^ all(keys->k1[2]);
            }
            later_rounds(s, keys, keep->rounds, false);
            UNROLL
            for (int g = 0; g < TOGETHER; g++) {
                /* Columns of even j stay in bytes 0 and 1, those of odd j go to 2 and 3. */
                const vec a = below(s[g].c0, keep->threshold), b = below(s[g].c1, keep->threshold);
                const vec c = below(s[g].c2, keep->threshold), d = below(s[g].c3, keep->threshold);
                upper[g] |= ((a & 0xffff) | b << 16) >> 2 * part;
                lower[g] |= (a >> 16 | (b & 0xffff0000)) >> 2 * part;
                upper[g] |= ((c & 0xffff) | d << 16) >> (2 * part + 1);
                lower[g] |= (c >> 16 | (d & 0xffff0000)) >> (2 * part + 1);
            }
        }
        for (int g = 0; g < TOGETHER; g++)
            for (int l = 0; l < LANES; l++) {
                words[2 * ((v + g) * LANES + l)] = upper[g][l];
                words[2 * ((v + g) * LANES + l) + 1] = lower[g][l];
            }
    }
}

INLINE void run_fa2(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block, int64_t count,
                    uint32_t *words)
{
    const round_keys keys = keys_of(keep->seed);
    fa2_lanes lanes;
    lanes_fa2(&lanes, keep->offset + (uint64_t)bh * 32, row, &keys);
    for (int64_t n = 0; n < count; n++, block++, words += ORDO_KEEP_WORDS)
        block_fa2(keep, row, block, &lanes, &keys, words);
}

/* ---- */

TARGET static void fill(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block,
                        int64_t count, uint32_t *words)
{
    assert(row % ORDO_KEEP_ROWS == 0 && keep->rounds >= 3 && keep->rounds <= MOST_ROUNDS);
    if (keep->keying == ORDO_KEYING_FA2)
        run_fa2(keep, bh, row, block, count, words);
    else if ((keep->rounds - 3) % 2 == 0)
        run_ordo(keep, bh, row, block, count, words, false);
    else
        run_ordo(keep, bh, row, block, count, words, true);
}
