/* plan_extremes_test.c: the largest legal problems. Nothing overflows (the undefined sanitizer
 * watches), nothing takes long. */
#include "plan_requests.h"

#include "timing.h"

enum { EXTREMES = 16 }; /* even: on the host, odd: on an H200 */

static ordo_tile extreme_tile(int x)
{
    switch (x / 2) {
    case 1: return (ordo_tile) { 1, 1 };
    case 2: return (ordo_tile) { 1, 4096 };
    case 6: return (ordo_tile) { 4096, 4096 };
    default: return (ordo_tile) { 64, 128 };
    }
}

static request extreme(int x)
{
    const int64_t most = INT64_C(1) << 30;
    request r = x % 2 ? on_h200() : on_host();
    ordo_problem *p = &r.problem;
    p->batch = p->heads = 1;
    p->head_dim = 1;
    switch (x / 2) {
    case 0: p->q_len = p->kv_len = most; break;
    case 1:
        p->q_len = 1;
        p->kv_len = most;
        break;
    case 2:
        p->q_len = most;
        p->kv_len = 1;
        break;
    case 3:
        p->batch = 1 << 10;
        p->heads = 1 << 20;
        p->q_len = 1;
        break;
    case 4: /* the last row of the longest sequence, and columns that it does not reach */
        p->q_len = p->kv_len = 1 << 20;
        p->mask = ORDO_MASK_CAUSAL_TOP_LEFT;
        p->shard = (ordo_shard) { .q_total = most, .kv_total = most, .col0 = most - (1 << 20) };
        break;
    case 5: /* the other way round, in a window */
        p->q_len = p->kv_len = 1 << 20;
        p->window = (ordo_window) { true, most - 1, 0 };
        p->shard = (ordo_shard) { .q_total = most, .kv_total = most, .row0 = most - (1 << 20) };
        break;
    case 6:
        p->q_len = p->kv_len = most;
        p->window = (ordo_window) { true, most - 1, most - 1 };
        p->mask = ORDO_MASK_FULL;
        break;
    default:
        p->heads = 1 << 20;
        p->kv_heads = 1;
        p->q_len = p->kv_len = 1 << 20;
        p->mask = ORDO_MASK_CAUSAL_TOP_LEFT;
        p->shard = (ordo_shard) { .heads_total = most, .head0 = most - (1 << 20) };
        break;
    }
    if (x % 2 == 0)
        r.options.backward_tile = extreme_tile(x);
    return r;
}

TEST(plans_of_extreme_problems_are_made_at_once)
{
    for (int x = 0; x < EXTREMES + 8; x++) {
        request r = x < EXTREMES ? extreme(x) : on_h200();
        if (x >= EXTREMES)
            r.problem.q_len = INT64_C(1) << (16 + x - EXTREMES);
        const clock_t begin = clock();
        const ordo_plan_info info = info_of(&r);
        const double ms = 1e3 * seconds_since(begin);
        CHECK(info.key_tiles >= 1 && info.query_tiles >= 1);
        if (release_build() && ms > 500) /* 50 on a core of its own, 130 on one that others share */
            CHECK_FAIL("extreme %d: %.0f ms", x, ms);
    }
}

static void check_walk(const ordo_walk *walk, int32_t j)
{
    const int32_t steps = ordo_walk_steps(walk, j), at[] = { 0, steps / 2, steps - 1 };
    for (int x = 0; x < 3 && steps > 0; x++) {
        const int32_t i = ordo_walk_visit(walk, j, at[x]);
        CHECK(i >= 0 && i < walk->nq);
        const int32_t turn = ordo_walk_turn(walk, i, j);
        CHECK(turn >= 0 && turn < ordo_span_count(ordo_band_keys(&walk->band, i)));
    }
}

static void check_last_ticket(const ordo_run *run, int cls)
{
    const int64_t tickets = ordo_run_tickets(run, cls);
    if (tickets == 0)
        return;
    const ordo_unit unit = ordo_run_issue(run, cls, tickets - 1);
    CHECK(unit.head >= 0 && unit.head < run->sequences * run->kv_heads);
    CHECK(unit.key[0] >= 0 && unit.key[0] < ordo_band_key_tiles(&run->band));
    const int32_t worker = ordo_run_worker(run, &unit, tickets - 1);
    CHECK(worker >= 0 && worker < run->workers);
}

TEST(walks_of_extreme_problems_do_not_overflow)
{
    for (int x = 1; x < EXTREMES; x += 2)
        for (int order = 1; order <= ORDO_ORDER_COUNT; order++) {
            const request r = extreme(x);
            ordo_plan *plan = make_study(&r, (ordo_order)order, extreme_tile(x));
            const ordo_problem *p = &plan->problem;
            const ordo_run run = ordo_plan_run(plan, p->batch, p->q_len, p->kv_len);
            const ordo_walk walk = ordo_run_walk(&run, run.sequences * run.kv_heads - 1);
            check_walk(&walk, 0);
            check_walk(&walk, walk.nk / 2);
            check_walk(&walk, walk.nk - 1);
            check_last_ticket(&run, 0);
            check_last_ticket(&run, 1);
            ordo_plan_destroy(plan);
        }
}

TEST(checks_of_extreme_problems_are_refused_or_short)
{
    for (int x = 0; x <= EXTREMES; x += 2) { /* the host's, and the oracle */
        request r = x < EXTREMES ? extreme(x) : on_ref();
        if (x == EXTREMES)
            r.problem.q_len = 1 << 30;
        ordo_plan *plan = make(&r);
        const clock_t begin = clock();
        const ordo_status status = ordo_plan_check(plan, NULL);
        const double seconds = seconds_since(begin);
        if (status != ORDO_OK && status != ORDO_ERR_UNSUPPORTED)
            CHECK_FAIL("extreme %d: %s", x, ordo_last_error());
        if (status == ORDO_ERR_UNSUPPORTED)
            CHECK_HAS(ordo_last_error(), "expected at most");
        if (release_build() && seconds > 10)
            CHECK_FAIL("extreme %d: %.0f s", x, seconds);
        ordo_plan_destroy(plan);
    }
}

/* Few live tiles, but every head has a walk of its own over a large grid. */
TEST(a_check_of_sparse_waves_is_refused)
{
    request r = on_h200();
    r.problem.heads = 256;
    r.problem.q_len = 1 << 19;
    r.problem.window = (ordo_window) { true, 128, 0 };
    r.options.order = ORDO_ORDER_SHIFT;
    r.options.group = ORDO_GROUP_WAVES;
    ordo_plan *plan = make(&r);
    CHECK_REFUSED(ordo_plan_check(plan, NULL), ORDO_ERR_UNSUPPORTED, "plan check:");
    ordo_plan_destroy(plan);
}

CHECK_MAIN()
