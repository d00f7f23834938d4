/* plan.c: what follows from a plan: masks, runs, residency, promise, numeric key. */
#include "plan/plan.h"

#include <stdio.h>

int64_t ordo_plan_diagonal(const ordo_plan *plan, int64_t q_len, int64_t kv_len)
{
    const ordo_problem *p = &plan->problem;
    const bool whole = p->layout != ORDO_DENSE; /* whose sequences are never cut */
    const int64_t delta = ordo_band_diagonal(p->mask, whole ? q_len : p->shard.q_total,
                                             whole ? kv_len : p->shard.kv_total);
    return delta + p->shard.row0 - p->shard.col0;
}

ordo_band ordo_plan_band(const ordo_plan *plan, int64_t q_len, int64_t kv_len)
{
    const ordo_problem *p = &plan->problem;
    ordo_band band = { .q_len = (int32_t)q_len,
                       .kv_len = (int32_t)kv_len,
                       .bq = (int32_t)plan->backward_tile.q,
                       .bk = (int32_t)plan->backward_tile.k };
    ordo_band_limit(p->mask, ordo_plan_diagonal(plan, q_len, kv_len),
                    p->window.on ? p->window.left : -1, p->window.on ? p->window.right : -1,
                    &band.low, &band.high);
    return band;
}

ordo_run ordo_plan_run(const ordo_plan *plan, int64_t sequences, int64_t q_len, int64_t kv_len)
{
    const ordo_problem *p = &plan->problem;
    const int64_t queries = p->heads / p->kv_heads;
    return (ordo_run) {
        .band = ordo_plan_band(plan, q_len, kv_len),
        .sequences = (int32_t)sequences,
        .kv_heads = (int32_t)p->kv_heads,
        .head0 = (int32_t)(p->shard.head0 / queries),
        .group_heads = (int32_t)queries,
        .order = plan->order,
        .group = plan->group == ORDO_GROUP_WAVES ? 0
                 : plan->group > 0               ? (int32_t)plan->group
                                                 : 1,
        .issue = plan->issue,
        .section = (int32_t)plan->section,
        .assign = plan->assign,
        .workers = (int32_t)plan->workers,
    };
}

int32_t ordo_plan_coresident(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    int64_t q_len = p->q_len, kv_len = p->kv_len;
    /* In a packed or padded batch lengths below the largest can need more: symmetric folds where
     * they are equal, and twin pins a head in pairs only where the workers hold it. */
    if (p->layout != ORDO_DENSE && plan->order == ORDO_ORDER_SYMMETRIC)
        q_len = kv_len = ordo_min32((int32_t)q_len, (int32_t)kv_len);
    if (p->layout != ORDO_DENSE && plan->order == ORDO_ORDER_TWIN &&
        kv_len > plan->workers * plan->backward_tile.k)
        kv_len = plan->workers * plan->backward_tile.k;
    const ordo_run run = ordo_plan_run(plan, 1, q_len, kv_len);
    return ordo_run_coresident(&run);
}

unsigned ordo_plan_promise(const ordo_plan *plan)
{
    /* Waves end within a head, where the workers end: the order of its sums then depends on how
     * many there are and on how many heads come before it. */
    if (plan->group == ORDO_GROUP_WAVES)
        return ORDO_PROMISE_REPEAT | ORDO_PROMISE_KEEP_BITS;
    return ORDO_PROMISE_ALL & ~(ordo_plan_carries(plan) ? 0u : (unsigned)ORDO_PROMISE_CUT);
}

bool ordo_plan_carries(const ordo_plan *plan)
{
    const ordo_order order = plan->order_asked;
    return plan->backend != ORDO_BACKEND_REF &&
           (order == ORDO_ORDER_ASCENDING || order == ORDO_ORDER_DESCENDING ||
            order == ORDO_ORDER_SPT);
}

void ordo_order_key(ordo_order order, int64_t group, int64_t workers, int64_t accumulators,
                    char *text, size_t capacity)
{
    const char *name = ordo_order_name(order);
    if (!ordo_order_cyclic(order))
        snprintf(text, capacity, "%s/k%lld", name, (long long)accumulators);
    else if (group == ORDO_GROUP_WAVES)
        snprintf(text, capacity, "%s.w%lld/k%lld", name, (long long)workers,
                 (long long)accumulators);
    else
        snprintf(text, capacity, "%s.g%lld/k%lld", name, (long long)group, (long long)accumulators);
}

/* "philox7x8": how random bits are made; "plain" without dropout. */
static void random_key(const ordo_dropout *d, char *text, size_t capacity)
{
    if (d->keying == ORDO_KEYING_FA2)
        snprintf(text, capacity, "fa2"); /* which has one layout */
    else if (d->rounds > 0)
        snprintf(text, capacity, "philox%dx%d", d->rounds, d->bits);
    else
        snprintf(text, capacity, "plain");
}

void ordo_plan_key(const ordo_plan *plan, char *text, size_t capacity)
{
    char order[64], random[32];
    ordo_order_key(plan->order, plan->group, plan->workers, plan->accumulators, order,
                   sizeof order);
    random_key(&plan->problem.dropout, random, sizeof random);
    snprintf(text, capacity, "%s.r%d/f%lldx%lld/b%lldx%lld/%s/%s", plan->family, plan->revision,
             (long long)plan->forward_tile.q, (long long)plan->forward_tile.k,
             (long long)plan->backward_tile.q, (long long)plan->backward_tile.k, order, random);
}

void ordo_plan_forward_key(const ordo_plan *plan, char *text, size_t capacity)
{
    const bool last_first = ordo_plan_of_kernels(plan) && plan->forward_form == ORDO_FORM_FLASH;
    char random[32];
    random_key(&plan->problem.dropout, random, sizeof random);
    snprintf(text, capacity, "%s.r%d/keys%lld/%s%s%s", plan->family, plan->revision,
             (long long)plan->forward_tile.k, last_first ? "last-first" : "first-last",
             plan->problem.dropout.p > 0 ? "/" : "", plan->problem.dropout.p > 0 ? random : "");
}
