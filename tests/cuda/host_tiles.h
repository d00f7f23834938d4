/* host_tiles.h: the rows and columns of bits that ordo_cuda_tiles() makes of a block mask, made by
 * the host one after the other from the same functions. */
#ifndef TESTS_CUDA_HOST_TILES_H
#define TESTS_CUDA_HOST_TILES_H

#include "cuda/pass/pass.h"

#include <string.h>

/* One query tile of a sequence; `words` are zeros. */
static inline void host_row(const ordo_cuda_block_mask *x, const ordo_band *band, int64_t mask,
                            int32_t i, ordo_tile_word *words)
{
    const ordo_span seen = ordo_band_keys(band, i), entries = ordo_blocks_entries(x, mask, i);
    for (int64_t at = entries.first; at <= entries.last; at++) {
        const int32_t entry = x->key[at], key = entry & ORDO_BLOCK_KEY;
        if (entry < 0 || key < seen.first || key > seen.last)
            continue;
        ordo_row_sees all = { true, true };
        if (ordo_blocks_partial(x, entry)) {
            all.some = false;
            for (int32_t r = i * x->rows; r < (i + 1) * x->rows && r < band->q_len; r++) {
                const ordo_row_sees row = ordo_blocks_row(x, mask, band, r, key);
                all.some |= row.some;
                all.all &= row.all;
            }
        }
        if (all.some)
            words[key / ORDO_TILE_BITS].seen |= 1u << key % ORDO_TILE_BITS;
        if (all.some && !all.all)
            words[key / ORDO_TILE_BITS].partial |= 1u << key % ORDO_TILE_BITS;
    }
}

static inline void host_count(const ordo_cuda_block_mask *x, ordo_tile_word *words, ordo_span *span)
{
    int32_t count = 0;
    ordo_span all = ordo_blocks_span(0, 0);
    for (int32_t w = 0; w < x->across; w++) {
        const ordo_span own = ordo_blocks_span(words[w].seen, w);
        words[w].before = count;
        count += ordo_bits_count(words[w].seen);
        all.first = ordo_min32(all.first, own.first);
        all.last = ordo_max32(all.last, own.last);
    }
    for (int32_t w = 0; w < x->across; w++)
        words[w].count = count;
    if (span)
        *span = all;
}

/* The column of key block j: its number of query tiles and their bits. A key tile of the backward
 * pass has `blocks` of them. */
static inline void host_column(const ordo_cuda_block_mask *x, const ordo_cuda_sequence *s,
                               int32_t list, int32_t blocks, int32_t j)
{
    uint32_t *const column = ordo_blocks_column(x, list, s->key_tile * blocks, j);
    memset(column, 0, (size_t)(x->down + 1) * sizeof *column);
    for (int32_t i = 0; i * x->rows < s->q_len; i++)
        if (ordo_bit(ordo_blocks_words(x, list, s->query_tile, i)[j / ORDO_TILE_BITS].seen, j)) {
            column[0]++;
            column[1 + i / ORDO_TILE_BITS] |= 1u << i % ORDO_TILE_BITS;
        }
}

/* All of a pass whose table, if it has one, has been made; nothing without a block mask. */
static inline void host_tiles(const ordo_cuda_pass *p)
{
    const ordo_cuda_block_mask *x = &p->blocks;
    for (int32_t b = 0; x->start && b < p->batch.sequences; b++) {
        const ordo_cuda_sequence s = ordo_batch_sequence(&p->batch, b);
        const ordo_band band = ordo_sequence_band(&s, x->rows, ORDO_BLOCK);
        const int32_t before = ordo_blocks_before(x, &s, p->run.band.bq);
        for (int32_t list = 0; list < x->lists; list++) {
            for (int32_t i = 0; i * x->rows < s.q_len; i++) {
                ordo_tile_word *const words = ordo_blocks_words(x, list, before, i);
                memset(words, 0, (size_t)x->across * sizeof *words);
                host_row(x, &band, ordo_blocks_mask(x, b, list), i, words);
                host_count(x, words,
                           x->spans ? x->spans + ordo_blocks_row_at(x, list, before, i) : NULL);
            }
            for (int32_t j = 0; x->columns && j * ORDO_BLOCK < s.kv_len; j++)
                host_column(x, &s, list, p->run.band.bk / ORDO_BLOCK, j);
        }
    }
}

#endif
