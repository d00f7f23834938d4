/* keep.h: which elements dropout keeps, and where their bits are stored.
 *
 * keep(seed, site, bh, row, col) is a pure function: no tile, thread or traversal order
 * enters it, so every backend and both passes agree bit for bit.
 *
 *   site  one id a dropout call (the call's offset), never reused with one seed
 *   bh    sequence id * heads of the whole model + query head of the whole model
 *   row   query position in the whole sequence;  col  key position
 *
 * One 32-bit word holds 32 columns of one row: of each aligned block of 128 columns, quad
 * q = 0..3 owns columns 8j + 2q + e (j = 0..15, e = 0..1), which is what one thread of a
 * tensor-core accumulator owns; so a kernel applies a word without moving bits between
 * threads. An element is kept with probability threshold / 2^bits exactly. */
#ifndef BASE_KEEP_H
#define BASE_KEEP_H

#include "base/hd.h"
#include "base/philox.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ordo_keep {
    uint64_t seed;
    uint32_t site;
    int rounds;         /* of Philox */
    int bits;           /* random bits an element, 1..16 */
    uint32_t threshold; /* 1..2^bits; 2^bits keeps all */
} ordo_keep;

/* Of dropping probability p: the nearest threshold. 0 and, for p > 0, 2^bits are unusable. */
ORDO_HD uint32_t ordo_keep_threshold(double p, int bits)
{
    return (uint32_t)((1 - p) * (double)(1u << bits) + 0.5);
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
ORDO_HD uint32_t ordo_keep_bit(uint32_t col)
{
    const uint32_t j = (col & 127) >> 3, e = col & 1;
    return 8 * (2 * (j & 1) + e) + 7 - (j >> 1);
}

/* Keep bits of 32 columns. Bit i of the threshold, lowest first, ORs or ANDs one random word
 * into all 32 lanes: each lane ends as 1 with probability threshold / 2^bits. */
ORDO_HD uint32_t ordo_keep_word(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block,
                                uint32_t quad)
{
    if (keep->threshold >> keep->bits) /* 2^bits has no bit the chain could use */
        return 0xffffffff;

    const uint32_t draws = (uint32_t)(keep->bits + 3) / 4;
    uint32_t kept = 0;
    for (uint32_t d = 0; d < draws; d++) {
        const ordo_philox_words counter = { { block * draws + d, row * 4 + quad, bh, keep->site } };
        const ordo_philox_words random =
            ordo_philox(counter, (uint32_t)keep->seed, (uint32_t)(keep->seed >> 32), keep->rounds);
        for (int i = 0; i < 4 && 4 * (int)d + i < keep->bits; i++)
            kept = keep->threshold >> (4 * d + (uint32_t)i) & 1 ? kept | random.w[i]
                                                                : kept & random.w[i];
    }
    return kept;
}

ORDO_HD bool ordo_keep_element(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t col)
{
    const uint32_t word = ordo_keep_word(keep, bh, row, ordo_keep_block(col), ordo_keep_quad(col));
    return word >> ordo_keep_bit(col) & 1;
}

/* Storage: 64 words a block of 16 rows x 128 columns, blocks of one head row by row, heads of
 * one sequence in order, sequences in order. A sequence of packed layout is stored at its own
 * lengths, of dense or padded layout at q_len x kv_len. Coordinates here are local: row 0 is
 * the first row held, whatever the shard's origin. */
enum { ORDO_KEEP_ROWS = 16, ORDO_KEEP_COLS = 128, ORDO_KEEP_WORDS = 64 };

ORDO_HD int64_t ordo_keep_blocks(int64_t rows, int64_t cols) /* of one head */
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

/* The same question asked of stored bits; `words` starts at the head's first word. */
ORDO_HD bool ordo_keep_stored(const uint32_t *words, int64_t cols, int64_t row, int64_t col)
{
    const uint32_t c = (uint32_t)col;
    return words[ordo_keep_index(cols, row, ordo_keep_block(c), ordo_keep_quad(c))] >>
               ordo_keep_bit(c) &
           1;
}

#endif
