/* host_table.h: the table of sequences that ordo_cuda_sequences() makes, made by the host one after
 * the other: for a device's to be compared with, and for what stands for a device. */
#ifndef TESTS_CUDA_HOST_TABLE_H
#define TESTS_CUDA_HOST_TABLE_H

#include "cuda/support/sequences.h"

#include <string.h>

static inline ordo_rows host_rows(const ordo_cuda_pass *p, const int32_t *ends,
                                  const int32_t *lengths, int32_t b, int64_t rows, int32_t longest,
                                  int32_t *largest)
{
    if (p->layout != ORDO_PACKED || !ends)
        return ordo_padded_rows(lengths, b, longest);
    if (ordo_clamp(ends[b], rows) > *largest)
        *largest = ordo_clamp(ends[b], rows);
    return ordo_packed_rows(*largest, ends[b + 1], rows, longest);
}

/* Arrays of the pass are the host's; `table` has room for batch.sequences + 1. `few`: as in
 * ordo_sequence_counts(). */
static inline void host_table_apart(const ordo_cuda_pass *p, int32_t few, ordo_cuda_sequence *table)
{
    const ordo_cuda_ragged *r = &p->ragged;
    const int32_t count = p->batch.sequences;
    int32_t q_end = 0, kv_end = 0;
    ordo_counts sum = { 0, 0, 0, 0 };
    for (int32_t b = 0; b <= count; b++) {
        ordo_cuda_sequence s;
        memset(&s, 0, sizeof s);
        if (b < count) {
            const ordo_rows q =
                host_rows(p, r->cu_q, r->q_lens, b, p->q_rows, p->run.band.q_len, &q_end);
            const ordo_rows kv =
                host_rows(p, r->cu_kv, r->kv_lens, b, p->kv_rows, p->run.band.kv_len, &kv_end);
            s = ordo_sequence_of(p, b, q, kv);
        }
        const ordo_counts more = ordo_sequence_counts(p, few, &s);
        s.forward_tile = sum.forward_tile;
        s.query_tile = sum.query_tile;
        s.key_tile = sum.key_tile;
        s.keep = sum.keep;
        table[b] = s;
        sum.forward_tile += more.forward_tile;
        sum.query_tile += more.query_tile;
        sum.key_tile += more.key_tile;
        sum.keep += more.keep;
    }
}

static inline void host_table(const ordo_cuda_pass *p, ordo_cuda_sequence *table)
{
    host_table_apart(p, 0, table);
}

#endif
