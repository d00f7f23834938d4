/* support/sequences.h: the table of sequences of a packed or padded batch, built on the device from
 * lengths that only it knows; and zeros for rows that belong to no sequence.
 *
 * Invalid contents cannot be reported from there. They are clamped, so that nothing outside the
 * tensors and the workspace is touched: ends that decrease give empty sequences, ends past the last
 * row and lengths past the longest one end there. Rows that this leaves to no sequence are written
 * as zeros, like padding. */
#ifndef CUDA_SUPPORT_SEQUENCES_H
#define CUDA_SUPPORT_SEQUENCES_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

/* ---- one entry, in plain C ---- */

/* Rows of one sequence in a tensor's second dimension. */
typedef struct ordo_rows {
    int32_t first, count;
} ordo_rows;

ORDO_HD int32_t ordo_clamp(int64_t x, int64_t most)
{
    return (int32_t)(x < 0 ? 0 : x > most ? most : x);
}

/* The rows of a packed sequence. `begin` is the largest end before it, clamped to the rows that
 * exist, so that sequences never overlap and together have no more than those rows. */
ORDO_HD ordo_rows ordo_packed_rows(int32_t begin, int32_t end, int64_t rows, int32_t longest)
{
    const int32_t stop = ordo_clamp(end, rows);
    ordo_rows r;
    r.first = begin;
    r.count = ordo_clamp((int64_t)stop - begin, longest);
    return r;
}

/* The rows of a padded sequence. If `lengths` is NULL, all are the longest. */
ORDO_HD ordo_rows ordo_padded_rows(const int32_t *lengths, int32_t b, int32_t longest)
{
    ordo_rows r;
    r.first = 0;
    r.count = lengths ? ordo_clamp(lengths[b], longest) : longest;
    return r;
}

ORDO_HD int32_t ordo_tiles_of(int32_t length, int32_t tile)
{
    return length / tile + (length % tile != 0);
}

/* Sequence b without the counts of those before it: forward_tile, query_tile, key_tile and, in a
 * packed batch, keep. */
ORDO_HD ordo_cuda_sequence ordo_sequence_of(const ordo_cuda_pass *pass, int32_t b, ordo_rows q,
                                            ordo_rows kv)
{
    const ordo_cuda_ragged *r = &pass->ragged;
    const bool packed = pass->layout == ORDO_PACKED;
    const ordo_band *longest = &pass->run.band;
    const int32_t heads = pass->run.kv_heads * pass->run.group_heads;
    const int32_t stored_rows = packed ? q.count : longest->q_len; /* as bits are stored */
    const int32_t stored_keys = packed ? kv.count : longest->kv_len;
    ordo_cuda_sequence s;
    s.q_len = q.count;
    s.kv_len = kv.count;
    s.q_row = q.first;
    s.kv_row = kv.first;
    s.batch = packed ? 0 : b;
    s.id = r->ids ? (uint32_t)r->ids[b] : r->batch0 + (uint32_t)b;
    s.forward_tile = s.query_tile = s.key_tile = 0;
    s.keep_across = ordo_tiles_of(stored_keys, ORDO_KEEP_COLS);
    s.keep_head = ordo_keep_blocks(stored_rows, stored_keys);
    s.keep = packed ? 0 : b * s.keep_head * heads;
    s.lse = packed ? q.first : (int64_t)b * heads * longest->q_len;
    const int64_t middle = ordo_band_diagonal(r->mask, s.q_len, s.kv_len) + r->shift;
    s.diagonal = (int32_t)middle; /* and the band, as ordo_plan_band() computes them */
    ordo_band_limit(r->mask, middle, r->left, r->right, &s.low, &s.high);
    return s;
}

/* What a sequence adds to the counts of the sequences after it. */
typedef struct ordo_counts {
    int32_t forward_tile, query_tile, key_tile;
    int64_t keep;
} ordo_counts;

/* `few`: of a forward pass in two kernels, sequences of at most so many queries are counted in
 * forward_tile, those of more in query_tile. 0: all are counted in both. */
ORDO_HD ordo_counts ordo_sequence_counts(const ordo_cuda_pass *pass, int32_t few,
                                         const ordo_cuda_sequence *s)
{
    const int32_t heads = pass->run.kv_heads * pass->run.group_heads;
    ordo_counts c;
    c.forward_tile =
        few > 0 && s->q_len > few ? 0 : ordo_tiles_of(s->q_len, pass->ragged.forward_rows);
    c.query_tile = s->q_len <= few ? 0 : ordo_tiles_of(s->q_len, pass->ragged.backward_rows);
    c.key_tile = ordo_tiles_of(s->kv_len, pass->ragged.backward_keys);
    c.keep = heads * s->keep_head;
    return c;
}

/* ---- rows that belong to no sequence ---- */

/* They are counted in slots. In a padded batch a slot is the padding of one sequence; in a packed
 * one the rows before the first sequence, between two sequences, or after the last. */
ORDO_HD int32_t ordo_left_slots(const ordo_cuda_pass *pass)
{
    return pass->batch.sequences + (pass->layout == ORDO_PACKED);
}

/* Rows of one slot in the second dimension of tensors of queries or of keys, from the table. */
ORDO_HD ordo_rows ordo_left_rows(const ordo_cuda_pass *pass, int32_t slot, bool keys)
{
    const ordo_cuda_sequence *table = pass->batch.table;
    const int64_t rows = keys ? pass->kv_rows : pass->q_rows;
    const bool packed = pass->layout == ORDO_PACKED;
    int32_t first = 0, end = (int32_t)rows;
    if (!packed)
        first = keys ? table[slot].kv_len : table[slot].q_len;
    if (packed && slot > 0)
        first = keys ? table[slot - 1].kv_row + table[slot - 1].kv_len
                     : table[slot - 1].q_row + table[slot - 1].q_len;
    if (packed && slot < pass->batch.sequences)
        end = keys ? table[slot].kv_row : table[slot].q_row;
    ordo_rows left;
    left.first = first;
    left.count = end - first;
    return left;
}

/* The sequence of a slot in tensors. */
ORDO_HD int32_t ordo_left_sequence(const ordo_cuda_pass *pass, int32_t slot)
{
    return pass->layout == ORDO_PACKED ? 0 : slot;
}

/* ---- launches, on the pass's stream ---- */

/* Build pass->table with one block, and clear the ticket and its flag, and with `few` (above) the
 * second ticket; nothing if the table is NULL. Every pass calls this first. */
ordo_status ordo_cuda_sequences(const ordo_cuda_pass *pass, int32_t few);

/* Packed and padded batches (others: nothing): o = 0 and lse = -inf, or dq = dk = dv = 0, in rows
 * that belong to no sequence. Of the backward pass those that it writes; sums that are carried out
 * but not in become 0, too. Run after the table; they write no row that a pass writes, so their
 * order with it does not matter. */
ordo_status ordo_cuda_clear_forward(const ordo_cuda_pass *pass);
ordo_status ordo_cuda_clear_backward(const ordo_cuda_pass *pass);

#endif
