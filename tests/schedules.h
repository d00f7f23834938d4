/* schedules.h: runs for tests, by tile counts. */
#ifndef TESTS_SCHEDULES_H
#define TESTS_SCHEDULES_H

#include "check.h"
#include "plan/issue.h"

/* nk x nq tiles of bk columns and bq rows, m heads on n workers; waves, head after head. */
static inline ordo_run run_of(bool causal, int nk, int bk, int nq, int bq, int m, int n,
                              ordo_order order, ordo_assign assign)
{
    return (ordo_run) {
        .band = { .q_len = nq * bq,
                  .kv_len = nk * bk,
                  .bq = bq,
                  .bk = bk,
                  .low = -ORDO_BAND_OPEN,
                  .high = causal ? nk * bk - nq * bq : ORDO_BAND_OPEN },
        .sequences = 1,
        .kv_heads = m,
        .group_heads = 1,
        .order = order,
        .group = 0,
        .issue = ORDO_ISSUE_HEAD,
        .section = 1,
        .assign = assign,
        .workers = n,
    };
}

/* The paper's square: n x n tiles on n workers, with the assignment its formulas speak of. */
static inline ordo_run square_run(bool causal, int n, int m, ordo_order order)
{
    const bool queue =
        order == ORDO_ORDER_DESCENDING || order == ORDO_ORDER_SPT || order == ORDO_ORDER_SPT_TAIL;
    return run_of(causal, n, 1, n, 1, m, n, order,
                  queue ? ORDO_ASSIGN_FIRST_FREE : ORDO_ASSIGN_PINNED);
}

/* Any legal run, up to `most` tiles a side: bands, ragged ends, GQA, groups, sections. */
static inline ordo_run random_run(uint64_t *seed, ordo_order order, int most)
{
    const int bq = (int)check_between(seed, 1, 6), bk = (int)check_between(seed, 1, 12);
    const int q_len = (int)check_between(seed, 1, most * bq);
    const int kv_len = check_between(seed, 0, 2) ? q_len : (int)check_between(seed, 1, most * bk);
    ordo_run run = {
        .band = { .q_len = q_len,
                  .kv_len = kv_len,
                  .bq = bq,
                  .bk = bk,
                  .low = -ORDO_BAND_OPEN,
                  .high = ORDO_BAND_OPEN },
        .sequences = (int)check_between(seed, 1, 3),
        .kv_heads = (int)check_between(seed, 1, 6),
        .head0 = (int)check_between(seed, 0, 5),
        .group_heads = (int)check_between(seed, 1, 2),
        .order = order,
        .group = (int)check_between(seed, 0, 5),
        .issue = (ordo_issue)check_between(seed, ORDO_ISSUE_HEAD, ORDO_ISSUE_KEY),
        .section = (int)check_between(seed, 1, 5),
        .assign = (ordo_assign)check_between(seed, ORDO_ASSIGN_PINNED, ORDO_ASSIGN_FIRST_FREE),
        .workers = (int)check_between(seed, 1, 14),
    };
    const int64_t mask = check_between(seed, 0, 3);
    if (mask >= 1) /* causal, bottom-right or top-left */
        run.band.high = check_between(seed, 0, 1) ? kv_len - q_len : 0;
    if (mask == 3) { /* and a window */
        run.band.low = run.band.high - (int)check_between(seed, 0, kv_len);
        run.band.high += (int)check_between(seed, 0, 3);
    }
    if (run.group == 0)
        run.issue = ORDO_ISSUE_HEAD; /* waves are issued head after head */
    if (run.section > run.sequences * run.kv_heads)
        run.section = run.sequences * run.kv_heads;
    const int together = ordo_run_coresident(&run);
    if (together > run.workers)
        run.workers = together;
    return run;
}

/* A line that reproduces a failing run. */
static inline void print_run(const ordo_run *run)
{
    printf(
        "    { .band = { %d, %d, %d, %d, %d, %d }, .sequences = %d, .kv_heads = %d, .head0 = %d, "
        ".group_heads = %d, .order = %d, .group = %d, .issue = %d, .section = %d, .assign = %d, "
        ".workers = %d }\n",
        run->band.q_len, run->band.kv_len, run->band.bq, run->band.bk, run->band.low,
        run->band.high, run->sequences, run->kv_heads, run->head0, run->group_heads, run->order,
        run->group, run->issue, run->section, run->assign, run->workers);
}

#endif
