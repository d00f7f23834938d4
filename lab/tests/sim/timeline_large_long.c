/* timeline_large_long.c: schedules too large to simulate whole, and the choice of an order. */
#include "random_schedule.h"
#include "sim/replay.h"
#include "sim/schedule.h"
#include "timing.h"

/* ---- large schedules ---- */

typedef struct replayed {
    ordo_times exact, extended;
    int64_t estimate, lower_bound;
} replayed;

static replayed replay(const ordo_schedule *s, uint64_t share)
{
    replayed out = { 0 };
    ordo_run run;
    ordo_costs costs;
    ordo_timeline_info info;
    ordo_bounds bounds;
    bool exact = false;
    CHECK(ordo_schedule_prepare(s, &run, &costs, &info) == ORDO_OK);
    CHECK(ordo_makespan_bounds(&run, 1, &costs, &bounds) == ORDO_OK);
    CHECK(ordo_replay(&run, &costs, &bounds, ORDO_REPLAY_LIMIT, &out.exact, &exact) == ORDO_OK);
    CHECK(exact);
    CHECK(ordo_replay(&run, &costs, &bounds, bounds.tasks / share, &out.extended, &exact) ==
          ORDO_OK);
    CHECK(!exact);
    CHECK(ordo_replay_estimate(&run, &costs, bounds.tasks / share, &out.estimate) == ORDO_OK);
    out.lower_bound = ordo_bounds_most(&bounds);
    return out;
}

static void check_close(const char *what, int64_t got, int64_t expected)
{
    const double ratio = (double)got / (double)expected;
    if (!(ratio >= 0.98 && ratio <= 1.02))
        CHECK_FAIL("%s: %.4f of the exact makespan", what, ratio);
}

/* 192 heads of 32 key tiles, from an eighth of them. A part that ends inside a wave says less, so
 * the orders that go in waves get workers that a few heads fill. */
TEST(extension_is_within_two_percent)
{
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++)
        for (int causal = 0; causal < 2; causal++) {
            ordo_schedule s = example();
            s.mask = causal ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
            s.key_tiles = 32;
            s.query_tiles = 64;
            s.heads = 192;
            s.order = (ordo_order)order;
            s.workers = order == ORDO_ORDER_SHIFT || order == ORDO_ORDER_SYMMETRIC ? 64 : 60;
            s.compute = 10;
            s.reduce = 5;
            s.latency = 3;
            s.overlap = 1;
            s.assign = ORDO_ASSIGN_FIRST_FREE;
            const replayed out = replay(&s, 8);
            check_close(ordo_order_name(s.order), out.extended.makespan, out.exact.makespan);
            check_close(ordo_order_name(s.order), out.estimate, out.exact.makespan);
            CHECK_INT(out.extended.tasks, out.exact.tasks);
            CHECK_INT(out.extended.busy, out.exact.busy);
            CHECK(out.extended.makespan >= out.lower_bound && out.estimate >= out.lower_bound);
            CHECK(out.extended.stall >= 0 && out.extended.tail >= 0);
            CHECK_INT(out.extended.busy + out.extended.stall + out.extended.tail,
                      s.workers * out.extended.makespan);
        }
}

/* Few heads cannot be extended from; a model at a smaller scale can. */
TEST(estimates_of_few_long_heads_are_within_two_percent)
{
    static const ordo_order orders[] = { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING,
                                         ORDO_ORDER_SPT, ORDO_ORDER_SPT_TAIL };
    for (int x = 0; x < 4; x++) {
        ordo_run run;
        ordo_costs costs;
        ordo_timeline_info info;
        ordo_schedule s = example();
        s.key_tiles = 512;
        s.query_tiles = 1024;
        s.heads = 8;
        s.workers = 132;
        s.order = orders[x];
        s.compute = 10;
        s.reduce = 6;
        s.latency = 3;
        s.overlap = 2;
        s.assign = ORDO_ASSIGN_FIRST_FREE;
        int64_t estimate = 0;
        CHECK(info_of(&s, &info) == ORDO_OK);
        const int64_t makespan = info.makespan;
        CHECK(ordo_schedule_prepare(&s, &run, &costs, &info) == ORDO_OK);
        CHECK(ordo_replay_estimate(&run, &costs, 1 << 18, &estimate) == ORDO_OK);
        check_close(ordo_order_name(s.order), estimate, makespan);
    }
}

TEST(large_schedules_are_extended_and_say_so)
{
    ordo_schedule s = example();
    s.key_tiles = 64;
    s.query_tiles = 128;
    s.heads = 1 << 17;
    s.workers = 132;
    s.order = ORDO_ORDER_SPT_TAIL;
    ordo_timeline_info info;
    CHECK(info_of(&s, &info) == ORDO_OK);
    CHECK(!info.exact && info.valid);
    CHECK_INT(info.tasks, (int64_t)4160 << 17);
    CHECK(info.makespan >= info.lower_bound);
    CHECK((double)info.makespan <= 1.02 * (double)info.lower_bound);
    CHECK_INT(info.busy + info.stall + info.tail, info.makespan * 132);
}

static bool done_or_refused(ordo_status status)
{
    return status == ORDO_OK || status == ORDO_ERR_UNSUPPORTED || status == ORDO_ERR_OVERFLOW;
}

static void check_absurd(const ordo_schedule *s, int x)
{
    ordo_timeline *timeline = NULL;
    const clock_t begin = clock();
    const ordo_status status = ordo_timeline_create(&timeline, s);
    if (!done_or_refused(status))
        CHECK_FAIL("case %d: %s: %s", x, ordo_status_name(status), ordo_last_error());
    CHECK((timeline != NULL) == (status == ORDO_OK));
    if (release_build() && seconds_since(begin) > 10)
        CHECK_FAIL("case %d: %.0f s", x, seconds_since(begin));
    ordo_timeline_destroy(timeline);
}

static void check_absurd_auto(const ordo_schedule *s, int x)
{
    ordo_order order;
    const clock_t begin = clock();
    const ordo_status status = ordo_schedule_auto(s, &order);
    if (!done_or_refused(status))
        CHECK_FAIL("case %d: auto %s: %s", x, ordo_status_name(status), ordo_last_error());
    if (release_build() && seconds_since(begin) > 10)
        CHECK_FAIL("case %d: auto %.0f s", x, seconds_since(begin));
}

/* Absurd sizes: refused, or done in seconds; never a crash, never gigabytes. */
TEST(absurd_sizes_are_refused_or_short)
{
    const int64_t most = 1 << 20, dear = 1 << 30;
    for (int x = 0; x < 9; x++) {
        ordo_schedule s = example();
        s.order = ORDO_ORDER_SHIFT;
        s.workers = s.key_tiles = s.heads = most;
        switch (x) {
        case 0: s.compute = s.reduce = s.latency = dear; break; /* 2^90 of time */
        case 1:
            s.mask = ORDO_MASK_CAUSAL_TOP_LEFT;
            s.query_tiles = s.ratio_num = s.ratio_den = 1;
            break; /* 2^40 chains, hardly one with a step */
        case 2:
            s.heads = 1;
            s.compute_partial = 1;
            break; /* 2^40 tiles to classify */
        case 3:
            s.heads = 1;
            s.query_tiles = 1;
            break; /* a group of 2^20 that waits on itself */
        case 4:
            s.key_tiles = 2;
            s.ratio_num = s.ratio_den = 1;
            s.query_tiles = most;
            s.heads = 100;
            s.accumulators = 64;
            s.issue = ORDO_ISSUE_KEY;
            s.group = 1; /* 2^26 accumulators per head, all heads in flight */
            break;
        case 5: s.query_tiles = most - 1; break; /* 2^40 rows */
        case 6:
            s.key_tiles = 1 << 18;
            s.ratio_num = 4096;
            s.ratio_den = 1;
            break;
        case 7:
            s.heads = 3;
            s.key_tiles = 1 << 14;
            s.order = ORDO_ORDER_SPT;
            break;
        default:
            s.key_tiles = 1;
            s.query_tiles = 1;
            break;
        }
        check_absurd(&s, x);
        s.record = true;
        check_absurd(&s, x);
        check_absurd_auto(&s, x);
    }
}

/* ---- auto ---- */

/* The least makespan; of equal ones that which waits only on earlier work, then the first. */
static ordo_order best_by_hand(ordo_schedule s)
{
    ordo_timeline_info best = { .makespan = INT64_MAX };
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++) {
        ordo_timeline_info info;
        s.order = (ordo_order)order;
        if (info_of(&s, &info) != ORDO_OK || info.order != info.order_asked)
            continue;
        const bool tie = info.makespan == best.makespan;
        if (info.makespan < best.makespan || (tie && best.coresident > 0 && info.coresident == 0))
            best = info;
    }
    return best.order;
}

TEST(auto_finds_the_least_makespan)
{
    uint64_t seed = 34;
    int chosen[ORDO_ORDER_COUNT + 1] = { 0 };
    for (int round = 0; round < 300; round++) {
        ordo_schedule s = random_schedule(&seed, 10);
        if (round % 3 == 0) { /* where orders tie often, and groups win */
            s.workers = s.key_tiles;
            s.query_tiles = s.compute_partial = s.ratio_num = s.ratio_den = s.group = 0;
            s.issue = ORDO_ISSUE_HEAD;
            s.assign = ORDO_ASSIGN_DEFAULT;
            s.latency = s.overlap = 0;
        }
        ordo_order order = ORDO_ORDER_DEFAULT;
        const int before = check_failures;
        s.order = (ordo_order)check_between(&seed, -5, 50); /* must have no influence */
        CHECK(ordo_schedule_auto(&s, &order) == ORDO_OK);
        CHECK_INT(order, best_by_hand(s));
        chosen[order]++;
        if (check_failures > before) {
            print_schedule(&s);
            return;
        }
    }
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++)
        if (chosen[order] == 0)
            CHECK_FAIL("%s was never the best", ordo_order_name((ordo_order)order));
}

TEST(ties_go_to_orders_that_wait_only_on_earlier_work)
{
    ordo_schedule s = example();
    ordo_order order;
    s.key_tiles = s.workers = 4;
    s.heads = 1; /* descending, spt and twin take 4 (c + r), and so does spt+tail */
    s.compute = 3;
    s.reduce = 1;
    CHECK(ordo_schedule_auto(&s, &order) == ORDO_OK);
    CHECK_INT(order, ORDO_ORDER_DESCENDING);
    s.heads = 2; /* symmetric and twin take 20; neither waits only on earlier work */
    CHECK(ordo_schedule_auto(&s, &order) == ORDO_OK);
    CHECK_INT(order, ORDO_ORDER_SYMMETRIC);
    s.mask = ORDO_MASK_FULL;
    CHECK(ordo_schedule_auto(&s, &order) == ORDO_OK);
    CHECK_INT(order, ORDO_ORDER_SHIFT);
    s.key_tiles = s.workers = 1; /* all orders are one */
    CHECK(ordo_schedule_auto(&s, &order) == ORDO_OK);
    CHECK_INT(order, ORDO_ORDER_ASCENDING);
}

TEST(auto_is_quick)
{
    for (int causal = 0; causal < 2; causal++) {
        ordo_schedule s = example();
        s.mask = causal ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
        s.key_tiles = 128;
        s.query_tiles = 256;
        s.heads = 32;
        s.workers = 132;
        s.compute = 10;
        s.reduce = 5;
        s.latency = 3;
        s.overlap = 1;
        ordo_order order;
        const clock_t begin = clock();
        CHECK(ordo_schedule_auto(&s, &order) == ORDO_OK);
        const double ms = 1e3 * seconds_since(begin);
        if (release_build() && ms > 2500) /* 100 to 250 */
            CHECK_FAIL("%.0f ms", ms);
    }
}

TEST(auto_leaves_the_last_message_alone)
{
    ordo_schedule s = example();
    ordo_order order;
    s.workers = -3;
    CHECK(ordo_schedule_auto(&s, &order) == ORDO_ERR_ARGUMENT);
    char said[512];
    snprintf(said, sizeof said, "%s", ordo_last_error());
    s.workers = 2;
    s.group = 4; /* symmetric needs four */
    CHECK(ordo_schedule_auto(&s, &order) == ORDO_OK);
    CHECK_TEXT(ordo_last_error(), said);
}

CHECK_MAIN()
