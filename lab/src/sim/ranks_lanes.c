/* ranks_lanes.c: lanes of ranks, and what is counted: pairs, products, bytes. */
#include <stdlib.h>

#include "base/status.h"
#include "sim/ranks.h"

enum { SPANS_MAX = 1 << 22 };

/* ---- what is counted ---- */

double ordo_ranks_triangle(double first, double end)
{
    return (end * (end + 1) - first * (first + 1)) / 2;
}

double ordo_ranks_row_pairs(const ordo_rank_problem *p, int64_t first, int64_t end)
{
    const double rows = (double)(end - first);
    return p->mask == ORDO_MASK_FULL ? rows * (double)p->rows
                                     : ordo_ranks_triangle((double)first, (double)end);
}

double ordo_ranks_product_ns(const ordo_rank_problem *p, double pairs, double heads, int products)
{
    return 2.0 * products * pairs * heads * (double)p->head_dim / p->flop_per_s * 1e9;
}

int64_t ordo_ranks_segments(const ordo_rank_problem *p, int64_t rank, ordo_rank_rows rows[2])
{
    const int64_t n = p->zigzag ? 2 * p->ranks : p->ranks;
    const int64_t chunk[2] = { rank, n - 1 - rank };
    const int64_t count = p->zigzag ? 2 : 1;
    for (int64_t i = 0; i < count; i++) {
        rows[i].first = p->rows * chunk[i] / n;
        rows[i].end = p->rows * (chunk[i] + 1) / n;
    }
    return count;
}

ordo_rank_bytes ordo_ranks_bytes(const ordo_rank_problem *p)
{
    const double rows = (double)(p->rows * p->batch), dim = (double)p->head_dim;
    return (ordo_rank_bytes) { .q = rows * (double)p->heads * dim * (double)p->element_bytes,
                               .kv =
                                   2 * rows * (double)p->kv_heads * dim * (double)p->element_bytes,
                               .lse = 4 * rows * (double)p->heads };
}

/* ---- lanes ---- */

ordo_status ordo_ranks_record(ordo_rank_timeline *t, int64_t rank, int64_t item,
                              ordo_rank_work work, double begin, double end)
{
    if (work != ORDO_WORK_EXCHANGE)
        t->busy += end - begin;
    if (!t->problem.record || end <= begin)
        return ORDO_OK;
    if (t->count == t->room) {
        const uint64_t room = t->room ? 2 * t->room : 1024;
        ordo_rank_span *spans = room <= SPANS_MAX ? realloc(t->spans, room * sizeof *spans) : NULL;
        if (!spans)
            return ordo_fail(ORDO_ERR_UNSUPPORTED, "record: more than %d spans", SPANS_MAX);
        t->spans = spans;
        t->room = room;
    }
    t->spans[t->count++] = (ordo_rank_span) { rank, item, work, begin, end };
    return ORDO_OK;
}

ordo_status ordo_ranks_compute(ordo_rank_timeline *t, int64_t rank, ordo_rank_work work,
                               double ready, double ns)
{
    ordo_rank_lanes *lanes = &t->lanes[rank];
    const double begin = ready > lanes->compute ? ready : lanes->compute;
    lanes->compute = begin + ns;
    return ordo_ranks_record(t, rank, -1, work, begin, begin + ns);
}

ordo_status ordo_ranks_collective(ordo_rank_timeline *t, double ready, double bytes,
                                  double messages, double *end)
{
    const int64_t n = t->problem.ranks;
    double begin = ready;
    for (int64_t r = 0; r < n; r++)
        begin = t->lanes[r].send > begin ? t->lanes[r].send : begin;
    *end = n == 1
               ? begin
               : begin + messages * t->problem.link_ns + bytes / t->problem.link_bytes_per_s * 1e9;
    for (int64_t r = 0; r < n; r++) {
        t->lanes[r].send = t->lanes[r].receive = *end;
        t->lanes[r].sent += n == 1 ? 0 : bytes;
        ORDO_TRY(ordo_ranks_record(t, r, -1, ORDO_WORK_EXCHANGE, begin, *end));
    }
    return ORDO_OK;
}

double ordo_ranks_time(const ordo_rank_timeline *t)
{
    double end = 0;
    for (int64_t r = 0; r < t->problem.ranks; r++) {
        const ordo_rank_lanes *x = &t->lanes[r];
        end = x->compute > end ? x->compute : end;
        end = x->send > end ? x->send : end;
        end = x->receive > end ? x->receive : end;
    }
    return end;
}
