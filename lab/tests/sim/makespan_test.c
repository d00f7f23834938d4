/* makespan_test.c: closed forms equal the simulation wherever they speak; bounds equal a count
 * by hand and are never above it. */
#include "sim/makespan.h"

#include "schedules.h"
#include "sim/simulate.h"
#include "tests/sim/random_costs.h"

enum { SQUARES = 5000 };

static int64_t simulated(const ordo_run *run, const ordo_costs *costs)
{
    ordo_times times = { 0 };
    CHECK(ordo_timeline_simulate(run, 1, costs, &times, NULL) == ORDO_OK);
    return times.makespan;
}

static ordo_costs costs_of(int64_t c, int64_t r, int64_t latency, int32_t overlap)
{
    return (ordo_costs) { c, c, r, latency, overlap, 1 };
}

/* ---- closed forms ---- */

/* Until SQUARES random squares had a closed form; at least one in twenty must. */
static void compare(ordo_order order, bool causal, bool latency, bool overlap)
{
    uint64_t seed = 1000 + (uint64_t)order;
    int given = 0, asked = 0;
    for (; given < SQUARES && asked < 20 * SQUARES; asked++) {
        const int n = (int)check_between(&seed, 1, 12), m = (int)check_between(&seed, 1, 7);
        const ordo_run run = square_run(causal, n, m, order);
        const ordo_costs costs = costs_of(check_between(&seed, 1, 12), check_between(&seed, 1, 12),
                                          latency ? check_between(&seed, 0, 12) : 0,
                                          overlap ? (int32_t)check_between(&seed, 0, 2) : 0);
        const int64_t closed = ordo_makespan_closed(&run, &costs);
        if (closed < 0)
            continue;
        given++;
        const int64_t expected = simulated(&run, &costs);
        if (closed != expected) {
            CHECK_FAIL("%s%s n %d m %d c %d r %d L %d overlap %d: %" PRId64 ", simulated %" PRId64,
                       causal ? "causal " : "", ordo_order_name(order), n, m, (int)costs.compute,
                       (int)costs.reduce, (int)costs.latency, costs.overlap, closed, expected);
            return;
        }
    }
    CHECK_INT(given, SQUARES);
}

TEST(ascending)
{
    compare(ORDO_ORDER_ASCENDING, false, false, false);
    compare(ORDO_ORDER_ASCENDING, true, false, false);
    compare(ORDO_ORDER_ASCENDING, false, true, true);
    compare(ORDO_ORDER_ASCENDING, true, true, true);
}

TEST(descending)
{
    compare(ORDO_ORDER_DESCENDING, true, false, false);
}

TEST(shift)
{
    compare(ORDO_ORDER_SHIFT, false, false, false);
    compare(ORDO_ORDER_SHIFT, false, true, true);
}

TEST(symmetric)
{
    compare(ORDO_ORDER_SYMMETRIC, true, false, false);
}

TEST(spt)
{
    compare(ORDO_ORDER_SPT, true, false, false);
}

TEST(twin)
{
    compare(ORDO_ORDER_TWIN, true, false, false);
}

/* What a form does not speak of has none: a wrong number would be worse. */
TEST(no_form_for_other_schedules)
{
    const ordo_costs costs = costs_of(3, 1, 0, 0);
    const ordo_run square = square_run(false, 4, 2, ORDO_ORDER_SHIFT);
    CHECK_INT(ordo_makespan_closed(&square, &costs), 32);
    ordo_run run = square;
    run.workers = 5;
    CHECK_INT(ordo_makespan_closed(&run, &costs), -1);
    run = square;
    run.group = 2;
    CHECK_INT(ordo_makespan_closed(&run, &costs), -1);
    run = square;
    run.group_heads = 2;
    CHECK_INT(ordo_makespan_closed(&run, &costs), -1);
    run = square;
    run.assign = ORDO_ASSIGN_FIRST_FREE;
    CHECK_INT(ordo_makespan_closed(&run, &costs), -1);
    run = square;
    run.issue = ORDO_ISSUE_KEY;
    CHECK_INT(ordo_makespan_closed(&run, &costs), -1);
    run = square;
    run.band.low = -2; /* a window */
    CHECK_INT(ordo_makespan_closed(&run, &costs), -1);
    run = run_of(false, 4, 2, 8, 1, 2, 4, ORDO_ORDER_SHIFT, ORDO_ASSIGN_PINNED);
    CHECK_INT(ordo_makespan_closed(&run, &costs), -1);
    run = square_run(true, 4, 2, ORDO_ORDER_SPT);
    CHECK_INT(ordo_makespan_closed(&run, &costs), -1); /* its tail has no formula */
    run = square_run(true, 5, 2, ORDO_ORDER_SYMMETRIC);
    CHECK_INT(ordo_makespan_closed(&run, &costs), -1);
    run = square_run(true, 4, 4, ORDO_ORDER_SPT_TAIL);
    CHECK_INT(ordo_makespan_closed(&run, &costs), -1);
    const ordo_costs late = costs_of(3, 1, 4, 0), deep = costs_of(3, 1, 0, 2);
    CHECK_INT(ordo_makespan_closed(&square, &late), -1);
    CHECK_INT(ordo_makespan_closed(&square, &deep), -1);
    ordo_costs two = costs, partial = costs;
    two.accumulators = 2;
    partial.compute_partial = 2;
    CHECK_INT(ordo_makespan_closed(&square, &two), -1);
    CHECK_INT(ordo_makespan_closed(&square, &partial), -1);
}

/* ---- bounds ---- */

static ordo_bounds bounds_of(const ordo_run *run, const ordo_costs *costs)
{
    ordo_bounds bounds = { 0 };
    CHECK(ordo_makespan_bounds(run, 1, costs, &bounds) == ORDO_OK);
    return bounds;
}

TEST(bounds_of_squares_by_hand)
{
    static const int rows[][6] = {
        /* n  m  c  r  full causal */
        { 4, 1, 3, 1, 16, 16 },    { 4, 2, 3, 1, 32, 20 },    { 4, 4, 3, 1, 64, 40 },
        { 8, 1, 3, 1, 32, 32 },    { 8, 3, 3, 1, 96, 54 },    { 8, 4, 3, 1, 128, 72 },
        { 8, 4, 2, 2, 128, 72 },   { 8, 4, 1, 3, 128, 72 },   { 16, 4, 2, 2, 256, 136 },
        { 16, 8, 3, 1, 512, 272 }, { 32, 3, 1, 3, 384, 198 }, { 32, 8, 3, 1, 1024, 528 },
    };
    for (size_t x = 0; x < sizeof rows / sizeof *rows; x++)
        for (int causal = 0; causal < 2; causal++) {
            const ordo_run run = square_run(causal, rows[x][0], rows[x][1], ORDO_ORDER_ASCENDING);
            const ordo_costs costs = costs_of(rows[x][2], rows[x][3], 0, 0);
            const ordo_bounds bounds = bounds_of(&run, &costs);
            CHECK_INT(ordo_bounds_most(&bounds), rows[x][4 + causal]);
        }
}

/* 3 heads of 4 x 4 causal tiles on 2 workers: 30 steps, the longest chain and queue 4. */
TEST(each_bound_by_hand)
{
    const ordo_run run =
        run_of(true, 4, 2, 4, 2, 3, 2, ORDO_ORDER_ASCENDING, ORDO_ASSIGN_FIRST_FREE);
    ordo_costs costs = costs_of(5, 2, 3, 0);
    ordo_bounds bounds = bounds_of(&run, &costs);
    CHECK_INT(bounds.tasks, 30);
    CHECK_INT(bounds.work, 105);                /* 30 (5 + 2) / 2 */
    CHECK_INT(bounds.chain, 28);                /* 4 (5 + 2) */
    CHECK_INT(bounds.turns, 5 + 4 * 2 + 3 * 3); /* compute, then 4 additions 3 apart */
    costs.accumulators = 3;                     /* two accumulators get one, one gets two */
    CHECK_INT(bounds_of(&run, &costs).turns, 5 + 2 * 2 + 3);
    costs.overlap = 1; /* additions hide, all but the last */
    bounds = bounds_of(&run, &costs);
    CHECK_INT(bounds.work, 75 + 2);
    CHECK_INT(bounds.chain, 20 + 2);
    costs.reduce = 9; /* computations hide, all but the first */
    bounds = bounds_of(&run, &costs);
    CHECK_INT(bounds.work, 135 + 5);
    CHECK_INT(bounds.chain, 36 + 5);
    costs = costs_of(5, 2, 3, 0);
    costs.compute_partial = 1; /* 4 of a head's 10 tiles are partial */
    bounds = bounds_of(&run, &costs);
    CHECK_INT(bounds.work, (18 * 7 + 12 * 3) / 2);
    CHECK_INT(bounds.chain, 3 * 7 + 3);
    CHECK_INT(bounds.turns, 1 + 4 * 2 + 3 * 3);
}

/* Steps, partial or whole, found by looking at every tile. */
TEST(work_is_what_every_tile_adds_up_to)
{
    uint64_t seed = 5;
    for (int round = 0; round < 3000; round++) {
        const ordo_run run = random_run(&seed, ORDO_ORDER_ASCENDING, 9);
        const ordo_costs costs = { .compute = check_between(&seed, 1, 9),
                                   .compute_partial = check_between(&seed, 1, 9),
                                   .reduce = check_between(&seed, 1, 9),
                                   .accumulators = 1 };
        const ordo_walk walk = ordo_run_walk(&run, 0);
        int64_t tasks = 0, work = 0, longest = 0;
        for (int j = 0; j < walk.nk; j++) {
            const ordo_span queries = ordo_band_queries(&walk.band, j);
            int64_t chain = 0;
            for (int i = queries.first; i <= queries.last; i++, tasks++)
                chain += costs.reduce + (ordo_band_partial(&walk.band, i, j) ? costs.compute_partial
                                                                             : costs.compute);
            chain *= run.group_heads;
            longest = chain > longest ? chain : longest;
            work += chain * run.sequences * run.kv_heads;
        }
        const ordo_bounds bounds = bounds_of(&run, &costs);
        const int before = check_failures;
        CHECK_INT(bounds.tasks, tasks * run.sequences * run.kv_heads * run.group_heads);
        CHECK_INT(bounds.work, (work + run.workers - 1) / run.workers);
        CHECK_INT(bounds.chain, longest);
        if (check_failures > before) {
            print_run(&run);
            return;
        }
    }
}

TEST(no_schedule_is_shorter_than_its_bounds)
{
    uint64_t seed = 6;
    for (int round = 0; round < 3000; round++) {
        const ordo_order order = (ordo_order)check_between(&seed, 1, ORDO_ORDER_COUNT);
        const ordo_run run = random_run(&seed, order, 7);
        const ordo_costs costs = { .compute = check_between(&seed, 1, 9),
                                   .compute_partial = check_between(&seed, 1, 9),
                                   .reduce = check_between(&seed, 1, 9),
                                   .latency = check_between(&seed, 0, 5),
                                   .overlap = (int32_t)check_between(&seed, 0, 3),
                                   .accumulators = (int32_t)check_between(&seed, 1, 3) };
        const ordo_bounds bounds = bounds_of(&run, &costs);
        const int64_t makespan = simulated(&run, &costs);
        if (makespan < ordo_bounds_most(&bounds)) {
            CHECK_FAIL("%" PRId64 " below %" PRId64, makespan, ordo_bounds_most(&bounds));
            print_run(&run);
            return;
        }
    }
}

/* ---- overflow ---- */

TEST(sums_that_do_not_fit_are_refused)
{
    ordo_run run = square_run(false, 1 << 20, 1 << 20, ORDO_ORDER_SHIFT);
    const ordo_costs cheap = costs_of(1, 1, 0, 0), dear = costs_of(1 << 30, 1 << 30, 1 << 30, 0);
    ordo_bounds bounds;
    CHECK(ordo_makespan_bounds(&run, 1, &cheap, &bounds) == ORDO_ERR_OVERFLOW); /* 2^60 tiles */
    CHECK_INT(ordo_makespan_closed(&run, &cheap), INT64_C(1) << 41); /* which a form can do */
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++)
        for (int causal = 0; causal < 2; causal++) {
            run = square_run(causal, 1 << 20, 1 << 20, (ordo_order)order);
            CHECK_REFUSED(ordo_makespan_bounds(&run, 1, &dear, &bounds), ORDO_ERR_OVERFLOW,
                          "62 bits");
            CHECK_INT(ordo_makespan_closed(&run, &dear), -1);
        }
    run = square_run(false, 1 << 20, 1 << 30, ORDO_ORDER_ASCENDING);
    CHECK_REFUSED(ordo_makespan_bounds(&run, 1, &cheap, &bounds), ORDO_ERR_OVERFLOW, "64 bits");
    run = square_run(false, 1 << 10, 1 << 10, ORDO_ORDER_ASCENDING); /* 2^30 tiles fit */
    CHECK(ordo_makespan_bounds(&run, 1, &cheap, &bounds) == ORDO_OK);
    CHECK_INT(bounds.work, 1 << 21);
}

CHECK_MAIN()
