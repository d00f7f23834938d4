/* pass/keep_tile.h: the keep words of a thread over many key tiles, seven rounds and eight bits.
 * Plain C: tests/cuda/keep_tile_test.c compares them with base/keep.h, the definition.
 *
 * The first three of Philox's rounds mix one half of the counter at a time, so that most of their
 * products are common to words:
 *
 *   round   product by M0                      product by M1
 *   0       of the block and draw              of the head
 *   1       of the row, quad and head: LINE    of the block and draw
 *   2       of the block, draw and head        of every word
 *   3..6    of every word                      of every word
 *
 * ordo_keep_line() is made once per row, ordo_keep_draw_of() twice per block for all rows of a
 * head. A draw of a word then takes 9 of 14 products. */
#ifndef CUDA_PASS_KEEP_TILE_H
#define CUDA_PASS_KEEP_TILE_H

#include "base/hd.h"
#include "base/keep.h"
#include "base/philox.h"

#include <stdbool.h>
#include <stdint.h>

enum { ORDO_KEEP_TILE_ROUNDS = 7, ORDO_KEEP_TILE_BITS = 8 };

ORDO_HD bool ordo_keep_tile_makes(const ordo_keep *keep)
{
    return keep->rounds == ORDO_KEEP_TILE_ROUNDS && keep->bits == ORDO_KEEP_TILE_BITS &&
           keep->keying == ORDO_KEYING_ORDO;
}

/* The two halves of a product. */
typedef struct ordo_keep_product {
    uint32_t low, high;
} ordo_keep_product;

ORDO_HD ordo_keep_product ordo_keep_multiply(uint32_t multiplier, uint32_t x)
{
    const uint64_t product = (uint64_t)multiplier * x;
    const ordo_keep_product halves = { (uint32_t)product, (uint32_t)(product >> 32) };
    return halves;
}

/* The keys of all rounds. */
typedef struct ordo_keep_keys {
    uint32_t key0[ORDO_KEEP_TILE_ROUNDS], key1[ORDO_KEEP_TILE_ROUNDS];
} ordo_keep_keys;

ORDO_HD ordo_keep_keys ordo_keep_keys_of(uint64_t seed)
{
    ordo_keep_keys keys;
    for (uint32_t r = 0; r < ORDO_KEEP_TILE_ROUNDS; r++) {
        keys.key0[r] = (uint32_t)seed + r * ORDO_PHILOX_W0;
        keys.key1[r] = (uint32_t)(seed >> 32) + r * ORDO_PHILOX_W1;
    }
    return keys;
}

/* Round 1's product of a row, quad and head, with the keys that its halves meet next. */
ORDO_HD ordo_keep_product ordo_keep_line(const ordo_keep_keys *keys, uint32_t bh, uint32_t row,
                                         uint32_t quad)
{
    const uint32_t head = ordo_keep_multiply(ORDO_PHILOX_M1, bh).high;
    ordo_keep_product line =
        ordo_keep_multiply(ORDO_PHILOX_M0, head ^ (row * 4 + quad) ^ keys->key0[0]);
    line.high ^= keys->key1[1];
    line.low ^= keys->key1[2];
    return line;
}

/* What every word of a block and head takes from the products of rounds 0 to 2. */
typedef struct ordo_keep_draw {
    uint32_t first, second; /* lower halves of rounds 0 and 1 */
    ordo_keep_product third;
} ordo_keep_draw;

ORDO_HD ordo_keep_draw ordo_keep_draw_of(const ordo_keep_keys *keys, uint32_t offset, uint32_t bh,
                                         uint32_t block, uint32_t number)
{
    const uint32_t head = ordo_keep_multiply(ORDO_PHILOX_M1, bh).low;
    const ordo_keep_product first = ordo_keep_multiply(ORDO_PHILOX_M0, 2 * block + number);
    const ordo_keep_product second =
        ordo_keep_multiply(ORDO_PHILOX_M1, first.high ^ offset ^ keys->key1[0]);
    const ordo_keep_product third =
        ordo_keep_multiply(ORDO_PHILOX_M0, second.high ^ head ^ keys->key0[1]);
    const ordo_keep_draw draw = { first.low, second.low, third };
    return draw;
}

/* The four random words of a draw, after 3 to ORDO_KEEP_TILE_ROUNDS rounds. */
ORDO_HD ordo_philox_words ordo_keep_random(ordo_keep_product line, const ordo_keep_draw *draw,
                                           const ordo_keep_keys *keys, int rounds)
{
    const ordo_keep_product one = ordo_keep_multiply(ORDO_PHILOX_M1, line.high ^ draw->first);
    ordo_philox_words c = { { one.high ^ draw->second ^ keys->key0[2], one.low,
                              line.low ^ draw->third.high, draw->third.low } };
    for (int r = 3; r < rounds; r++) {
        const ordo_keep_product p0 = ordo_keep_multiply(ORDO_PHILOX_M0, c.w[0]);
        const ordo_keep_product p1 = ordo_keep_multiply(ORDO_PHILOX_M1, c.w[2]);
        c.w[0] = p1.high ^ c.w[1] ^ keys->key0[r];
        c.w[1] = p1.low;
        c.w[2] = p0.high ^ c.w[3] ^ keys->key1[r];
        c.w[3] = p0.low;
    }
    return c;
}

/* All ones or 0 for each bit of a threshold: OR or AND. */
typedef struct ordo_keep_select {
    uint32_t bit[ORDO_KEEP_TILE_BITS];
} ordo_keep_select;

ORDO_HD ordo_keep_select ordo_keep_select_of(uint32_t threshold)
{
    ordo_keep_select select;
    for (int i = 0; i < ORDO_KEEP_TILE_BITS; i++)
        select.bit[i] = 0u - (threshold >> i & 1);
    return select;
}

/* One draw of the bit-sliced comparison: draw `number` has bits 4 * number and up. */
ORDO_HD uint32_t ordo_keep_compare(uint32_t kept, ordo_philox_words random,
                                   const ordo_keep_select *select, int number)
{
    for (int i = 0; i < 4; i++) {
        const uint32_t w = random.w[i];
        kept = (kept & w) | ((kept | w) & select->bit[4 * number + i]);
    }
    return kept;
}

#endif
