/* pass/sequence.h: one sequence of a batch: where it lies, its lengths, its band, and how many
 * tiles come before it. Plain C, shared by kernels, host and tests.
 *
 * Sequences of a dense batch follow closed forms. Those of a packed or padded batch have
 * lengths that only the device knows: a table in the workspace, made by ordo_cuda_sequences()
 * before every pass, with one entry more than there are sequences, for the totals. */
#ifndef CUDA_PASS_SEQUENCE_H
#define CUDA_PASS_SEQUENCE_H

#include "plan/issue.h"

typedef struct ordo_cuda_sequence {
    int32_t q_len, kv_len; /* valid rows and columns */
    int32_t q_row, kv_row; /* its first ones in packed tensors, else 0 */
    int32_t batch;         /* its index in tensors; in packed ones 0 */
    int32_t low, high;     /* limits of its band */
    int32_t diagonal;      /* ALiBi: row i's own column is i + diagonal */
    uint32_t id;           /* for dropout */
    /* Numbers of tiles of all sequences before it, for one head: queries of the forward pass,
     * queries and keys of the backward pass. */
    int32_t forward_tile, query_tile, key_tile;
    int32_t keep_across; /* blocks of keep bits side by side */
    int64_t keep;        /* its first block of keep bits, of its first head */
    int64_t keep_head;   /* blocks of one head */
    int64_t lse;         /* place of (head 0, row 0) in lse and dlse */
} ordo_cuda_sequence;

typedef struct ordo_cuda_batch {
    ordo_cuda_sequence first;        /* the first one of a dense batch */
    ordo_cuda_sequence step;         /* from one to the next: what counts on, else 0 */
    const ordo_cuda_sequence *table; /* read instead, unless NULL */
    int32_t sequences;
    int32_t tiles;    /* backward query tiles of one head, of all sequences; at most these */
    int64_t lse_head; /* from a head to the next in lse and dlse */
} ordo_cuda_batch;

/* Sequence b; b == sequences: the totals of forward_tile, query_tile, key_tile and keep. */
ORDO_HD ordo_cuda_sequence ordo_batch_sequence(const ordo_cuda_batch *batch, int32_t b)
{
    if (batch->table)
        return batch->table[b];
    ordo_cuda_sequence s = batch->first;
    s.batch += b * batch->step.batch;
    s.id += (uint32_t)b * batch->step.id;
    s.forward_tile += b * batch->step.forward_tile;
    s.query_tile += b * batch->step.query_tile;
    s.key_tile += b * batch->step.key_tile;
    s.keep += b * batch->step.keep;
    s.lse += b * batch->step.lse;
    return s;
}

typedef enum ordo_before { ORDO_BEFORE_FORWARD, ORDO_BEFORE_QUERY, ORDO_BEFORE_KEY } ordo_before;

ORDO_HD int64_t ordo_batch_before(const ordo_cuda_batch *batch, ordo_before what, int32_t b)
{
    const ordo_cuda_sequence *from = batch->table ? batch->table + b : &batch->step;
    const int64_t times = batch->table ? 1 : b;
    return times * (what == ORDO_BEFORE_FORWARD ? from->forward_tile
                    : what == ORDO_BEFORE_QUERY ? from->query_tile
                                                : from->key_tile);
}

/* The sequence that tile number `tile` (of one head, over all sequences) belongs to: the last one
 * with at most `tile` tiles before it. */
ORDO_HD int32_t ordo_batch_find(const ordo_cuda_batch *batch, ordo_before what, int64_t tile)
{
    int32_t low = 0, high = batch->sequences; /* before(low) <= tile < before(high) */
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (ordo_batch_before(batch, what, middle) <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The band of a sequence in tiles of bq x bk. */
ORDO_HD ordo_band ordo_sequence_band(const ordo_cuda_sequence *s, int32_t bq, int32_t bk)
{
    ordo_band band;
    band.q_len = s->q_len;
    band.kv_len = s->kv_len;
    band.bq = bq;
    band.bk = bk;
    band.low = s->low;
    band.high = s->high;
    return band;
}

#endif
