/* schedule.c: turns an ordo_schedule into a run of the simulator, and chooses an order. */
#include "sim/schedule.h"

#include <stdio.h>

#include "base/mask.h"
#include "base/status.h"
#include "plan/check.h"
#include "plan/plan.h"
#include "sim/live.h"
#include "sim/makespan.h"
#include "sim/replay.h"

enum {
    TILES_MAX = 1 << 20,
    COST_MAX = 1 << 30,
    CHECK_MAX = 1 << 22,  /* effort up to which the validator checks a schedule too */
    AUTO_BUDGET = 1 << 19 /* tasks simulated per candidate of `auto` */
};

static ordo_status check_fields(const ordo_schedule *s)
{
    ORDO_TRY(ordo_check_mask("mask", s->mask));
    ORDO_TRY(ordo_check_range("order", s->order, 1, ORDO_ORDER_COUNT));
    ORDO_TRY(ordo_check_range("key_tiles", s->key_tiles, 1, TILES_MAX));
    ORDO_TRY(ordo_check_range("query_tiles", s->query_tiles, 0, TILES_MAX));
    ORDO_TRY(ordo_check_range("heads", s->heads, 1, TILES_MAX));
    ORDO_TRY(ordo_check_range("kv_heads", s->kv_heads, 0, s->heads));
    if (s->kv_heads > 0 && s->heads % s->kv_heads != 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "kv_heads %lld: expected a divisor of heads %lld",
                         (long long)s->kv_heads, (long long)s->heads);
    if (s->window.on) {
        ORDO_TRY(ordo_check_range("window.left", s->window.left, -1, TILES_MAX));
        ORDO_TRY(ordo_check_range("window.right", s->window.right, -1, TILES_MAX));
    }
    ORDO_TRY(ordo_check_range("workers", s->workers, 1, ORDO_WORKERS_MAX));
    ORDO_TRY(ordo_check_range("group", s->group, ORDO_GROUP_WAVES, TILES_MAX));
    ORDO_TRY(ordo_check_range("accumulators", s->accumulators, 0, ORDO_ACCUMULATORS_MAX));
    ORDO_TRY(ordo_check_range("issue", s->issue, ORDO_ISSUE_DEFAULT, ORDO_ISSUE_KEY));
    ORDO_TRY(ordo_check_range("section", s->section, 0, TILES_MAX));
    ORDO_TRY(ordo_check_range("assign", s->assign, ORDO_ASSIGN_DEFAULT, ORDO_ASSIGN_FIRST_FREE));
    ORDO_TRY(ordo_check_range("compute", s->compute, 1, COST_MAX));
    ORDO_TRY(ordo_check_range("compute_partial", s->compute_partial, 0, COST_MAX));
    ORDO_TRY(ordo_check_range("reduce", s->reduce, 1, COST_MAX));
    ORDO_TRY(ordo_check_range("latency", s->latency, 0, COST_MAX));
    ORDO_TRY(ordo_check_range("overlap", s->overlap, 0, ORDO_OVERLAP_MAX));
    if ((s->ratio_num == 0) != (s->ratio_den == 0))
        return ordo_fail(ORDO_ERR_ARGUMENT, "ratio %lld/%lld: expected both zero or both positive",
                         (long long)s->ratio_num, (long long)s->ratio_den);
    ORDO_TRY(ordo_check_range("ratio_num", s->ratio_num, 0, ORDO_TILE_MAX));
    return ordo_check_range("ratio_den", s->ratio_den, 0, ORDO_TILE_MAX);
}

static int64_t divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Turn tile counts and their ratio into a band of rows and columns. Without a ratio both lengths
 * are equal, and the ratio of tile sizes is that of their counts. */
static ordo_status make_band(const ordo_schedule *s, ordo_band *band)
{
    int64_t bk = s->ratio_num, bq = s->ratio_den;
    if (bk == 0) {
        bk = s->query_tiles ? s->query_tiles : 1;
        bq = s->query_tiles ? s->key_tiles : 1;
    }
    const int64_t common = divisor(bk, bq);
    bk /= common;
    bq /= common;
    const int64_t kv_len = s->key_tiles * bk;
    const int64_t q_len = s->query_tiles ? s->query_tiles * bq : kv_len;
    if (q_len / bq > TILES_MAX) /* q_len = kv_len, in smaller tiles */
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "query_tiles 0: %lld key tiles in ratio %lld/%lld give "
                         "%lld, expected at most %d",
                         (long long)s->key_tiles, (long long)bk, (long long)bq,
                         (long long)(q_len / bq), TILES_MAX);
    if (kv_len > ORDO_LENGTH_MAX || q_len > ORDO_LENGTH_MAX || bk > ORDO_LENGTH_MAX / 4 ||
        bq > ORDO_LENGTH_MAX / 4)
        return ordo_fail(
            ORDO_ERR_OVERFLOW, "tiles %lldx%lld in ratio %lld/%lld: more than 2^30 rows",
            (long long)s->key_tiles, (long long)s->query_tiles, (long long)bk, (long long)bq);
    *band = (ordo_band) {
        .q_len = (int32_t)q_len, .kv_len = (int32_t)kv_len, .bq = (int32_t)bq, .bk = (int32_t)bk
    };
    const int64_t left = s->window.on ? s->window.left : -1;
    const int64_t right = s->window.on ? s->window.right : -1;
    ordo_band_limit(s->mask, ordo_band_diagonal(s->mask, q_len, kv_len), left < 0 ? -1 : left * bk,
                    right < 0 ? -1 : right * bk, &band->low, &band->high);
    return ORDO_OK;
}

/* Replace an order that the shape does not allow by the order that its walk falls back to. */
static void replace_order(ordo_run *run, ordo_timeline_info *info)
{
    info->order_asked = run->order;
    if (run->order == ORDO_ORDER_SYMMETRIC) {
        const ordo_walk_kind kind = ordo_order_walk(run->order, &run->band, 0);
        if (kind == ORDO_WALK_SHIFT)
            run->order = ORDO_ORDER_SHIFT;
        else if (kind == ORDO_WALK_SPT)
            run->order = ORDO_ORDER_SPT;
    }
    info->order = run->order;
    if (run->order != info->order_asked)
        snprintf(
            info->note, sizeof info->note,
            "symmetric folds causal triangles with a whole number of query tiles per key tile; "
            "replaced by %s",
            ordo_order_name(run->order));
}

/* The assignment for which closed forms are known. */
static ordo_assign usual_assign(ordo_order order)
{
    switch (order) {
    case ORDO_ORDER_DESCENDING:
    case ORDO_ORDER_SPT:
    case ORDO_ORDER_SPT_TAIL: return ORDO_ASSIGN_FIRST_FREE;
    default: return ORDO_ASSIGN_PINNED;
    }
}

static ordo_status check_residency(const ordo_run *run)
{
    const int32_t together = ordo_run_coresident(run);
    if (together > run->workers)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "order %s, group %d: %d chains must be resident together, workers %d; "
                         "expected a smaller group, or an order that waits only on earlier work",
                         ordo_order_name(run->order), run->group, together, run->workers);
    return ORDO_OK;
}

ordo_status ordo_schedule_prepare(const ordo_schedule *s, ordo_run *run, ordo_costs *costs,
                                  ordo_timeline_info *info)
{
    *info = (ordo_timeline_info) { .closed_form = -1 };
    ORDO_TRY(check_fields(s));
    ordo_band band;
    ORDO_TRY(make_band(s, &band));
    const int64_t kv_heads = s->kv_heads ? s->kv_heads : s->heads;
    *run = (ordo_run) {
        .band = band,
        .sequences = 1,
        .kv_heads = (int32_t)kv_heads,
        .group_heads = (int32_t)(s->heads / kv_heads),
        .order = s->order,
        .group = s->group > 0 ? (int32_t)s->group : 0,
        .issue = s->issue ? s->issue : ORDO_ISSUE_HEAD,
        .section = (int32_t)(s->section ? s->section : kv_heads),
        .workers = (int32_t)s->workers,
    };
    replace_order(run, info);
    run->assign = s->assign ? s->assign : usual_assign(run->order);
    const bool grouped = ordo_order_cyclic(run->order);
    if (grouped && run->group == 0 && run->issue == ORDO_ISSUE_KEY)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "order %s in waves, issue key: waves are issued head after head; expected "
                         "a group size",
                         ordo_order_name(run->order));
    if (!grouped)
        run->group = 1;
    ORDO_TRY(check_residency(run));
    if (s->blocks && grouped)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "order %s: block masks have no cyclic orders; expected ascending, "
                         "descending, spt, twin or spt+tail",
                         ordo_order_name(run->order));
    *costs = (ordo_costs) { .compute = s->compute,
                            .compute_partial = s->compute_partial ? s->compute_partial : s->compute,
                            .reduce = s->reduce,
                            .latency = s->latency,
                            .overlap = (int32_t)s->overlap,
                            .accumulators = s->accumulators ? (int32_t)s->accumulators : 1 };
    info->assign = run->assign;
    info->issue = run->issue;
    info->group = !grouped ? 0 : run->group == 0 ? ORDO_GROUP_WAVES : run->group;
    info->accumulators = costs->accumulators;
    info->key_tiles = ordo_band_key_tiles(&band);
    info->query_tiles = ordo_band_query_tiles(&band);
    info->heads = s->heads;
    info->workers = s->workers;
    info->coresident = ordo_run_coresident(run);
    ordo_order_key(run->order, info->group, s->workers, costs->accumulators, info->numeric_key,
                   sizeof info->numeric_key);
    ordo_live *live = NULL;
    if (s->blocks)
        ORDO_TRY(ordo_live_create(&live, &band, s->blocks));
    costs->live = live;
    return ORDO_OK;
}

void ordo_schedule_release(ordo_costs *costs)
{
    ordo_live_destroy((ordo_live *)costs->live);
    costs->live = NULL;
}

ordo_status ordo_schedule_simulate(const ordo_run *run, const ordo_costs *costs, uint64_t budget,
                                   ordo_timeline_info *info, ordo_record *record)
{
    ordo_bounds bounds;
    ORDO_TRY(ordo_makespan_bounds(run, 1, costs, &bounds));
    ordo_times times;
    info->exact = true;
    if (record)
        ORDO_TRY(ordo_timeline_simulate(run, 1, costs, &times, record));
    else
        ORDO_TRY(ordo_replay(run, costs, &bounds, budget, &times, &info->exact));
    info->valid = times.tasks == bounds.tasks; /* all tasks ran: no deadlock, no missing turn */
    if (info->valid && !costs->live && ordo_run_check_cost(run, bounds.tasks) <= CHECK_MAX) {
        uint64_t pairs = 0;
        info->valid = ordo_run_check(run, &pairs) == ORDO_OK && pairs == bounds.tasks;
    }
    info->tasks = bounds.tasks;
    info->makespan = times.makespan;
    info->bound_work = bounds.work;
    info->bound_chain = bounds.chain;
    info->bound_turns = bounds.turns;
    info->lower_bound = ordo_bounds_most(&bounds);
    info->closed_form = ordo_makespan_closed(run, costs);
    info->busy = times.busy;
    info->stall = times.stall;
    info->startup = times.startup;
    info->tail = times.tail;
    info->utilization =
        times.makespan > 0 ? (double)times.busy / (double)run->workers / (double)times.makespan : 0;
    return ORDO_OK;
}

/* Makespan of one candidate: by a closed form if there is one, else estimated. */
static ordo_status price(const ordo_schedule *s, ordo_timeline_info *info)
{
    ordo_run run;
    ordo_costs costs;
    ORDO_TRY(ordo_schedule_prepare(s, &run, &costs, info));
    ordo_status status = ORDO_OK;
    info->makespan = ordo_makespan_closed(&run, &costs);
    if (info->makespan < 0)
        status = ordo_replay_estimate(&run, &costs, AUTO_BUDGET, &info->makespan);
    ordo_schedule_release(&costs);
    return status;
}

ordo_status ordo_schedule_best(const ordo_schedule *schedule, ordo_order *order)
{
    ordo_schedule s = *schedule;
    ordo_timeline_info best = { .makespan = -1 };
    ordo_status status = ORDO_OK;
    char said[512];
    snprintf(said, sizeof said, "%s", ordo_last_error());
    for (int candidate = 1; candidate <= ORDO_ORDER_COUNT; candidate++) {
        ordo_timeline_info info;
        s.order = (ordo_order)candidate;
        status = price(&s, &info);
        if (status == ORDO_ERR_UNSUPPORTED)
            continue; /* this order cannot run on these workers; others may */
        if (status != ORDO_OK)
            return status;
        if (info.order != info.order_asked)
            continue; /* the order that replaces it is a candidate itself */
        const bool simpler = info.coresident == 0 && best.coresident > 0;
        if (best.makespan < 0 || info.makespan < best.makespan ||
            (info.makespan == best.makespan && simpler))
            best = info;
    }
    if (best.makespan < 0)
        return status;
    ordo_set_error("%s", said); /* a candidate that cannot run is no failure */
    *order = best.order;
    return ORDO_OK;
}
