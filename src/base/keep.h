/* keep.h: which elements dropout keeps, and where their bits are stored.
 *
 * keep(seed, offset, bh, row, col) is a pure function: no tile, thread or traversal order
 * enters it, so every backend and both passes agree bit for bit.
 *
 *   bh    sequence id * heads of the whole model + query head of the whole model
 *   row   query position in the whole sequence;  col  key position
 *
 * One 32-bit word holds 32 columns of one row: of each aligned block of 128 columns, quad
 * q = 0..3 owns columns 8j + 2q + e (j = 0..15, e = 0..1), which is what one thread of a
 * tensor-core accumulator owns; so a kernel applies a word without moving bits between
 * threads. An element is kept with probability threshold / 2^bits exactly.
 *
 * Two keyings say which random bits an element gets; ordo_keep_word() answers for both. */
#ifndef BASE_KEEP_H
#define BASE_KEEP_H

#include "base/hd.h"
#include "base/philox.h"
#include "ordo/problem.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ordo_keep {
    uint64_t seed;
    uint64_t offset;    /* one id per dropout call; keying ordo: below 2^32 */
    int rounds;         /* Philox rounds */
    int bits;           /* random bits per element, 1..16; keying fa2: 8 */
    uint32_t threshold; /* 1..2^bits; 2^bits keeps all */
    ordo_keying keying;
} ordo_keep;

/* The threshold nearest to a probability p of dropping. 0 and, for p > 0, 2^bits are unusable. */
ORDO_HD uint32_t ordo_keep_threshold(double p, int bits)
{
    return (uint32_t)((1 - p) * (double)(1u << bits) + 0.5);
}

/* FlashAttention-2 keeps a byte <= floor((1 - p) * 255), with p and 1 - p in single precision. */
ORDO_HD uint32_t ordo_keep_threshold_fa2(double p)
{
    return 1 + (uint32_t)((double)(1.0f - (float)p) * 255.0);
}

/* The generator of a resolved problem's dropout; of p = 0: keep all. */
ORDO_HD ordo_keep ordo_keep_of(const ordo_dropout *dropout, uint64_t seed, uint64_t offset)
{
    const bool fa2 = dropout->keying == ORDO_KEYING_FA2;
    const ordo_keep keep = { seed,
                             offset,
                             dropout->rounds,
                             dropout->bits,
                             fa2 ? ordo_keep_threshold_fa2(dropout->p)
                                 : ordo_keep_threshold(dropout->p, dropout->bits),
                             dropout->keying };
    return keep;
}

/* What kept elements are multiplied by: exactly 2^bits / threshold, so that the expected value
 * is unchanged; under keying fa2 what FlashAttention-2 takes, 1 / (1 - p) in single precision. */
ORDO_HD double ordo_keep_scale(const ordo_dropout *dropout)
{
    if (dropout->keying == ORDO_KEYING_FA2)
        return (double)(1.0f / (1.0f - (float)dropout->p));
    return (double)(1u << dropout->bits) / (double)ordo_keep_threshold(dropout->p, dropout->bits);
}

/* Block of 128 columns, owner inside it, and bit of the owner's word. */
ORDO_HD uint32_t ordo_keep_block(uint32_t col)
{
    return col >> 7;
}

ORDO_HD uint32_t ordo_keep_quad(uint32_t col)
{
    return col >> 1 & 3;
}

/* Columns 8j and 8j+1 of even j fill bytes 0 and 1, of odd j bytes 2 and 3, from the top bit
 * of each byte down: shifting the word left brings each group's bits to the byte signs. */
#define ORDO_KEEP_BIT(col) (8 * (2 * ((col) >> 3 & 1) + ((col)&1)) + 7 - ((col) >> 4 & 7))
ORDO_HD uint32_t ordo_keep_bit(uint32_t col)
{
    return ORDO_KEEP_BIT(col);
}

/* Keying ordo. Bit i of the threshold, lowest first, ORs or ANDs one random word into all 32
 * lanes: each lane ends as 1 with probability threshold / 2^bits. */
ORDO_HD uint32_t ordo_keep_word_ordo(const ordo_keep *keep, uint32_t bh, uint32_t row,
                                     uint32_t block, uint32_t quad)
{
    const uint32_t draws = (uint32_t)(keep->bits + 3) / 4, site = (uint32_t)keep->offset;
    uint32_t kept = 0;
    for (uint32_t d = 0; d < draws; d++) {
        const ordo_philox_words counter = { { block * draws + d, row * 4 + quad, bh, site } };
        const ordo_philox_words random =
            ordo_philox(counter, (uint32_t)keep->seed, (uint32_t)(keep->seed >> 32), keep->rounds);
        for (int i = 0; i < 4 && 4 * (int)d + i < keep->bits; i++)
            kept = keep->threshold >> (4 * d + (uint32_t)i) & 1 ? kept | random.w[i]
                                                                : kept & random.w[i];
    }
    return kept;
}

/* Keying fa2. One draw serves 8 bytes of row g and 8 of row g + 8, in 32 columns; its counter
 * starts at the offset and gives every head 32 places, one per lane of a warp. */
ORDO_HD uint32_t ordo_keep_word_fa2(const ordo_keep *keep, uint32_t bh, uint32_t row,
                                    uint32_t block, uint32_t quad)
{
    const uint64_t place = keep->offset + (uint64_t)bh * 32 + (row & 7) * 4 + quad;
    const uint32_t shift = (row >> 3 & 1) * 16;
    uint32_t kept = 0;
    for (uint32_t part = 0; part < 4; part++) { /* 32 columns each: j = 4 part + i */
        const ordo_philox_words counter = { { (uint32_t)place, (uint32_t)(place >> 32), row >> 4,
                                              block * 4 + part } };
        const ordo_philox_words random =
            ordo_philox(counter, (uint32_t)keep->seed, (uint32_t)(keep->seed >> 32), keep->rounds);
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t e = 0; e < 2; e++) {
                const uint32_t byte = random.w[i] >> (shift + 8 * e) & 255;
                /* ordo_keep_bit(8 * (4 * part + i) + e), which nvcc 13.0 gets wrong here: it
                 * takes the bits of e = 1 to be the same for even and odd i */
                const uint32_t bit = 16 * (i & 1) + 8 * e + 7 - 2 * part - (i >> 1);
                kept |= (uint32_t)(byte < keep->threshold) << bit;
            }
    }
    return kept;
}

/* Keep bits of 32 columns. */
ORDO_HD uint32_t ordo_keep_word(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block,
                                uint32_t quad)
{
    if (keep->threshold >> keep->bits) /* 2^bits has no bit the chain could use */
        return 0xffffffff;
    return keep->keying == ORDO_KEYING_FA2 ? ordo_keep_word_fa2(keep, bh, row, block, quad)
                                           : ordo_keep_word_ordo(keep, bh, row, block, quad);
}

ORDO_HD bool ordo_keep_element(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t col)
{
    const uint32_t word = ordo_keep_word(keep, bh, row, ordo_keep_block(col), ordo_keep_quad(col));
    return word >> ordo_keep_bit(col) & 1;
}

/* Storage: 64 words per block of 16 rows x 128 columns, blocks of one head row by row, heads of
 * one sequence in order, sequences in order. A sequence of packed layout is stored at its own
 * lengths, of dense or padded layout at q_len x kv_len. Coordinates here are local: row 0 is
 * the first row held, whatever the shard's origin. */
enum { ORDO_KEEP_ROWS = 16, ORDO_KEEP_COLS = 128, ORDO_KEEP_WORDS = 64 };

ORDO_HD int64_t ordo_keep_blocks(int64_t rows, int64_t cols) /* per head */
{
    return (rows + ORDO_KEEP_ROWS - 1) / ORDO_KEEP_ROWS *
           ((cols + ORDO_KEEP_COLS - 1) / ORDO_KEEP_COLS);
}

/* Index of the word of (row, block, quad) counted from the first word of its head. */
ORDO_HD int64_t ordo_keep_index(int64_t cols, int64_t row, int64_t block, int64_t quad)
{
    const int64_t across = (cols + ORDO_KEEP_COLS - 1) / ORDO_KEEP_COLS;
    const int64_t place = row / ORDO_KEEP_ROWS * across + block;
    return place * ORDO_KEEP_WORDS + ((row & 7) * 4 + quad) * 2 + (row >> 3 & 1);
}

/* The same for stored bits; `words` starts at the head's first word. */
ORDO_HD bool ordo_keep_stored(const uint32_t *words, int64_t cols, int64_t row, int64_t col)
{
    const uint32_t c = (uint32_t)col;
    return words[ordo_keep_index(cols, row, ordo_keep_block(c), ordo_keep_quad(c))] >>
               ordo_keep_bit(c) &
           1;
}

/* Bit i of byte j becomes bit j of byte i. */
ORDO_HD uint64_t ordo_keep_transpose(uint64_t x)
{
    uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aa;
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & 0x0000cccc0000cccc;
    x ^= t ^ t << 14;
    t = (x ^ x >> 28) & 0x00000000f0f0f0f0;
    return x ^ t ^ t << 28;
}

/* The four words of one row of a block as 128 bits in the order of the columns, lowest first. */
ORDO_HD void ordo_keep_columns(const uint32_t quads[4], uint32_t columns[4])
{
    /* 8 of each 16 columns are in the low halves of the words and 8 in the high ones, by quads:
     * one bit in each of 8 bytes. */
    uint64_t low = 0, high = 0;
    for (int q = 0; q < 4; q++) {
        low |= (uint64_t)(quads[q] & 0xffff) << (16 * q);
        high |= (uint64_t)(quads[q] >> 16) << (16 * q);
    }
    low = ordo_keep_transpose(low);
    high = ordo_keep_transpose(high);
    for (int i = 0; i < 4; i++) { /* the top bit of a byte is the first column */
        const int first = 56 - 16 * i, second = first - 8;
        columns[i] = (uint32_t)(low >> first & 255) | (uint32_t)(high >> first & 255) << 8 |
                     (uint32_t)(low >> second & 255) << 16 | (uint32_t)(high >> second & 255) << 24;
    }
}

/* The bits of columns first .. last of a block; bits outside it are left out. */
ORDO_HD void ordo_columns_between(int64_t first, int64_t last, uint32_t columns[4])
{
    for (int64_t w = 0; w < 4; w++) {
        const int64_t low = first - 32 * w, high = last - 32 * w;
        const uint32_t from = low <= 0 ? UINT32_MAX : low > 31 ? 0 : UINT32_MAX << low;
        const uint32_t to = high < 0 ? 0 : high >= 31 ? UINT32_MAX : UINT32_MAX >> (31 - high);
        columns[w] = from & to;
    }
}

#endif
