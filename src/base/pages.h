/* pages.h: where the keys of a sequence are, if they are in pages (ordo/problem.h). */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H

#include "ordo/attention.h"

/* Whether the keys of a call are in pages. */
static inline bool ordo_paged(const ordo_problem *problem)
{
    return problem->paging.page_rows > 0;
}

/* A problem whose k and v, if they are dense, have the shape that they have in memory. */
static inline ordo_problem ordo_stored_keys(const ordo_problem *problem)
{
    ordo_problem p = *problem;
    if (ordo_paged(problem)) {
        p.layout = ORDO_DENSE;
        p.batch = p.paging.pages;
        p.kv_len = p.paging.page_rows;
    }
    return p;
}

/* The first column of sequence b that is stored. */
static inline int64_t ordo_kv_start(const ordo_call *call, int64_t b)
{
    return call->kv_starts ? call->kv_starts[b] : 0;
}

/* The columns of sequence b, stored or not, without rows that pad it. */
static inline int64_t ordo_kv_columns(const ordo_problem *problem, const ordo_call *call, int64_t b)
{
    if (call->kv_lens)
        return call->kv_lens[b];
    return problem->layout == ORDO_PACKED
               ? (int64_t)call->cu_kv[b + 1] - call->cu_kv[b] + ordo_kv_start(call, b)
               : problem->kv_len;
}

/* The entry of the table for a column, and the column's row in its page. */
typedef struct ordo_page_place {
    int64_t entry, row;
} ordo_page_place;

static inline ordo_page_place ordo_page_of(const ordo_problem *problem, const ordo_call *call,
                                           int64_t b, int64_t column)
{
    const ordo_paging *pages = &problem->paging;
    const int64_t stride = call->page_table_stride ? call->page_table_stride : pages->table_columns;
    return (ordo_page_place) { b * stride + column / pages->page_rows, column % pages->page_rows };
}

#endif
