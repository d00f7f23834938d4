/* The timeline: known makespans, and an independent simulator that follows a clock. */
#include "sim/simulate.h"

#include "clock_sim.h"
#include "ordo/status.h"
#include "schedules.h"
#include "tests/sim/random_costs.h"

#define PINNED     ORDO_ASSIGN_PINNED
#define FIRST_FREE ORDO_ASSIGN_FIRST_FREE

static int64_t makespan(ordo_run run, int c, int r, int latency, int overlap, int accumulators)
{
    const ordo_costs costs = { c, c, r, latency, overlap, accumulators };
    ordo_times times;
    if (ordo_timeline_simulate(&run, 1, &costs, &times, NULL) != ORDO_OK)
        return -1;
    return times.makespan;
}

static int64_t serial(bool causal, int n, int m, int c, int r, ordo_order order)
{
    return makespan(square_run(causal, n, m, order), c, r, 0, 0, 1);
}

/* Completion times of the published schedules, n x n tiles on n workers. */
TEST(makespan_table)
{
    static const int rows[][11] = {
        /* n  m  c  r  full: up shift  causal: up down sym spt twin */
        { 4, 1, 3, 1, 19, 16, 19, 16, 20, 16, 16 },
        { 4, 2, 3, 1, 35, 32, 35, 23, 20, 28, 20 },
        { 4, 4, 3, 1, 67, 64, 67, 43, 40, 48, 40 },
        { 8, 1, 3, 1, 39, 32, 39, 32, 36, 32, 32 },
        { 8, 3, 3, 1, 103, 96, 103, 68, 72, 72, 68 },
        { 8, 4, 3, 1, 135, 128, 135, 79, 72, 88, 72 },
        { 8, 4, 2, 2, 142, 128, 142, 86, 72, 88, 72 },
        { 8, 4, 1, 3, 149, 128, 149, 107, 72, 88, 72 },
        { 16, 4, 2, 2, 286, 256, 286, 166, 136, 172, 136 },
        { 16, 8, 3, 1, 527, 512, 527, 287, 272, 304, 272 },
        { 32, 3, 1, 3, 477, 384, 477, 322, 264, 272, 260 },
        { 32, 8, 3, 1, 1055, 1024, 1055, 559, 528, 600, 528 },
    };
    for (size_t x = 0; x < sizeof rows / sizeof *rows; x++) {
        const int n = rows[x][0], m = rows[x][1], c = rows[x][2], r = rows[x][3];
        CHECK_INT(serial(false, n, m, c, r, ORDO_ORDER_ASCENDING), rows[x][4]);
        CHECK_INT(serial(false, n, m, c, r, ORDO_ORDER_SHIFT), rows[x][5]);
        CHECK_INT(serial(true, n, m, c, r, ORDO_ORDER_ASCENDING), rows[x][6]);
        CHECK_INT(serial(true, n, m, c, r, ORDO_ORDER_DESCENDING), rows[x][7]);
        CHECK_INT(serial(true, n, m, c, r, ORDO_ORDER_SYMMETRIC), rows[x][8]);
        CHECK_INT(serial(true, n, m, c, r, ORDO_ORDER_SPT), rows[x][9]);
        CHECK_INT(serial(true, n, m, c, r, ORDO_ORDER_TWIN), rows[x][10]);
    }
}

/* n = 16, m = 4, c = 2, r = 1: what latency does, by turns and with one addition behind. */
TEST(latency)
{
    const ordo_run up = square_run(false, 16, 4, ORDO_ORDER_ASCENDING);
    const ordo_run shift = square_run(false, 16, 4, ORDO_ORDER_SHIFT);
    ordo_run queue = up;
    queue.assign = FIRST_FREE;
    static const int by_turns[][3] = {
        { 0, 207, 192 }, { 2, 237, 192 }, { 3, 252, 252 }, { 4, 267, 312 }
    };
    static const int behind[][3] = {
        { 0, 144, 129 }, { 1, 159, 129 }, { 2, 174, 186 }, { 3, 189, 246 }
    };
    for (int x = 0; x < 4; x++) {
        CHECK_INT(makespan(up, 2, 1, by_turns[x][0], 0, 1), by_turns[x][1]);
        CHECK_INT(makespan(shift, 2, 1, by_turns[x][0], 0, 1), by_turns[x][2]);
        CHECK_INT(makespan(up, 2, 1, behind[x][0], 1, 1), behind[x][1]);
        CHECK_INT(makespan(shift, 2, 1, behind[x][0], 1, 1), behind[x][2]);
    }
    CHECK_INT(makespan(queue, 2, 1, 3, 0, 1), 264);
    CHECK_INT(makespan(queue, 2, 1, 4, 0, 1), 289);
    CHECK_INT(makespan(queue, 2, 1, 2, 1, 1), 183);
    CHECK_INT(makespan(queue, 2, 1, 3, 1, 1), 211);
    CHECK_INT(makespan(square_run(true, 16, 4, ORDO_ORDER_TWIN), 2, 1, 2, 1, 1), 84);
    CHECK_INT(makespan(square_run(true, 16, 4, ORDO_ORDER_SYMMETRIC), 2, 1, 2, 1, 1), 91);
}

TEST(split_accumulators)
{
    const ordo_run shift = square_run(false, 16, 4, ORDO_ORDER_SHIFT);
    const ordo_run down = square_run(true, 16, 4, ORDO_ORDER_DESCENDING);
    static const int rows[][3] = { { 1, 306, 183 }, { 2, 154, 130 }, { 4, 129, 87 } };
    for (int x = 0; x < 3; x++) {
        CHECK_INT(makespan(shift, 2, 1, 4, 1, rows[x][0]), rows[x][1]);
        CHECK_INT(makespan(down, 2, 1, 4, 1, rows[x][0]), rows[x][2]);
    }
}

/* Heads shorter than the machine: ascending pays its staircase again and again. */
TEST(ascending_over_shift_on_132_workers)
{
    static const double expected[] = { 0.841, 0.793, 0.792, 0.822, 0.891, 0.999 };
    for (int x = 0, n = 4; n <= 128; x++, n *= 2) {
        const ordo_run up =
            run_of(false, n, 1, n, 1, 4096 / n, 132, ORDO_ORDER_ASCENDING, FIRST_FREE);
        const ordo_run shift =
            run_of(false, n, 1, n, 1, 4096 / n, 132, ORDO_ORDER_SHIFT, FIRST_FREE);
        const double ratio =
            (double)makespan(shift, 10, 5, 3, 1, 1) / (double)makespan(up, 10, 5, 3, 1, 1);
        CHECK_NEAR(ratio, expected[x], 0.005);
    }
}

/* ---- issue order on 132 workers, 16k tokens: least and most over lengths 1k .. 16k ---- */

typedef struct range {
    double least, most;
} range;

static void widen(range *r, double x)
{
    if (x < r->least)
        r->least = x;
    if (x > r->most)
        r->most = x;
}

static void check_range(range r, double least, double most)
{
    CHECK_NEAR(r.least, least, 0.01);
    CHECK_NEAR(r.most, most, 0.01);
}

static const int cached[] = { 39, 19, 9, 4, 2 }; /* heads whose Q, dO and dQ fit the cache */

static ordo_run issued(ordo_run run, int section)
{
    run.issue = section ? ORDO_ISSUE_KEY : ORDO_ISSUE_HEAD;
    run.section = section ? section : 1;
    return run;
}

/* Full masks, 32 heads, one query tile per key tile: efficiency against work / 132. */
TEST(issue_order_full)
{
    static const double expected[2][6] = { { 0.77, 0.97, 0.968, 0.968, 0.97, 0.97 },
                                           { 0.66, 0.89, 0.955, 0.969, 0.818, 0.938 } };
    for (int x = 0; x < 2; x++) {
        const int c = 10, r = x ? 8 : 5, latency = x ? 4 : 3;
        range head = { 2, 0 }, key = { 2, 0 }, shift = { 2, 0 };
        for (int size = 0; size < 5; size++) {
            const int n = 8 << size, m = 32 * 128 / n;
            const double ideal = (double)m * n * n * c / 132;
            const ordo_run up = run_of(false, n, 1, n, 1, m, 132, ORDO_ORDER_ASCENDING, FIRST_FREE);
            const ordo_run cyclic = run_of(false, n, 1, n, 1, m, 132, ORDO_ORDER_SHIFT, FIRST_FREE);
            widen(&head, ideal / (double)makespan(up, c, r, latency, 1, 1));
            widen(&key, ideal / (double)makespan(issued(up, cached[size]), c, r, latency, 1, 1));
            widen(&shift, ideal / (double)makespan(cyclic, c, r, latency, 1, 1));
        }
        check_range(head, expected[x][0], expected[x][1]);
        check_range(key, expected[x][2], expected[x][3]);
        check_range(shift, expected[x][4], expected[x][5]);
    }
}

/* Without turns: as many accumulators as contributors, no latency, the best issue order. */
static double unordered(int n, int m, int section, int c, int r)
{
    double best = 1e300;
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++) {
        if (order == ORDO_ORDER_SHIFT || order == ORDO_ORDER_SYMMETRIC)
            continue;
        const ordo_run run = run_of(true, n, 2, 2 * n, 1, m, 132, (ordo_order)order, FIRST_FREE);
        const int sections[] = { 0, section, m };
        for (int x = 0; x < 3; x++) {
            const double time = (double)makespan(issued(run, sections[x]), c, r, 0, 1, n);
            best = time < best ? time : best;
        }
    }
    return best;
}

/* Causal, 16 heads, two query tiles per key tile: efficiency against the best unordered. */
TEST(issue_order_causal)
{
    static const double expected[2][6] = { { 0.935, 0.946, 0.89, 0.97, 0.977, 0.984 },
                                           { 0.935, 0.946, 0.84, 0.95, 0.964, 0.969 } };
    for (int x = 0; x < 2; x++) {
        const int c = 10, r = x ? 8 : 5, latency = x ? 4 : 3;
        range spt = { 2, 0 }, down = { 2, 0 }, tail = { 2, 0 };
        for (int size = 0; size < 5; size++) {
            const int n = 8 << size, m = 16 * 128 / n;
            const double ideal = unordered(n, m, cached[size], c, r);
            range *const ranges[] = { &spt, &down, &tail };
            const ordo_order orders[] = { ORDO_ORDER_SPT, ORDO_ORDER_DESCENDING,
                                          ORDO_ORDER_SPT_TAIL };
            for (int o = 0; o < 3; o++) {
                const ordo_run run = run_of(true, n, 2, 2 * n, 1, m, 132, orders[o], FIRST_FREE);
                const ordo_run by_key = issued(run, cached[size]);
                widen(ranges[o], ideal / (double)makespan(by_key, c, r, latency, 1, 1));
            }
        }
        check_range(spt, expected[x][0], expected[x][1]);
        check_range(down, expected[x][2], expected[x][3]);
        check_range(tail, expected[x][4], expected[x][5]);
    }
}

/* ---- CPU threads: an addition is a fiftieth of a step, so only the balance counts ---- */

/* Causal, two query tiles per key tile, one head per thread in a section: the plan of a CPU. */
static double cpu_makespan(ordo_order order, int keys, int heads, int workers)
{
    const ordo_run run = run_of(true, keys, 2, 2 * keys, 1, heads, workers, order, FIRST_FREE);
    return (double)makespan(issued(run, heads < workers ? heads : workers), 50, 1, 0, 0, 1);
}

/* 16 key tiles: share of work / workers. */
TEST(cpu_causal)
{
    static const struct {
        int heads, workers;
        double tail, down;
    } rows[] = {
        { 1, 2, 0.944, 1.000 },  { 1, 4, 0.850, 0.999 },  { 1, 8, 0.708, 0.996 },
        { 1, 16, 0.531, 0.531 }, { 2, 16, 0.708, 0.996 }, { 8, 8, 1.000, 1.000 },
    };
    for (size_t x = 0; x < sizeof rows / sizeof *rows; x++) {
        const int heads = rows[x].heads, workers = rows[x].workers;
        const double ideal = heads * 16 * 17 * 51.0 / workers;
        CHECK_NEAR(ideal / cpu_makespan(ORDO_ORDER_SPT_TAIL, 16, heads, workers), rows[x].tail,
                   0.0005);
        CHECK_NEAR(ideal / cpu_makespan(ORDO_ORDER_DESCENDING, 16, heads, workers), rows[x].down,
                   0.0005);
    }
}

/* Heads and workers of every kind: time of spt+tail over time of descending. */
TEST(cpu_causal_everywhere)
{
    static const int keys[] = { 4, 8, 16, 64 }, heads[] = { 1, 2, 3, 4, 5, 8, 12, 16, 32 },
                     workers[] = { 1, 2, 3, 4, 6, 8, 16, 32, 64 };
    range ratio = { 2, 0 };
    for (int k = 0; k < 4; k++)
        for (int h = 0; h < 9; h++)
            for (int w = 0; w < 9; w++)
                widen(&ratio,
                      cpu_makespan(ORDO_ORDER_SPT_TAIL, keys[k], heads[h], workers[w]) /
                          cpu_makespan(ORDO_ORDER_DESCENDING, keys[k], heads[h], workers[w]));
    CHECK_NEAR(ratio.least, 0.976, 0.0005);
    CHECK_NEAR(ratio.most, 1.493, 0.0005);
}

/* ---- against a simulator that follows a clock ---- */

typedef struct taken {
    const ordo_run *run;
    const ordo_record *record;
} taken;

/* Who took a unit, as recorded; units without steps could be anyone's. */
static int recorded_owner(const ordo_unit *unit, void *context)
{
    const taken *t = context;
    for (uint64_t x = 0; x < t->record->count; x++) {
        const ordo_step *step = &t->record->steps[x];
        if (step->head / t->run->group_heads == unit->head &&
            (step->key == unit->key[0] || (unit->keys == 2 && step->key == unit->key[1])))
            return step->worker;
    }
    return 0;
}

TEST(follows_the_clock)
{
    uint64_t seed = 11;
    for (int round = 0; round < 4000; round++) {
        const ordo_order order = (ordo_order)check_between(&seed, 1, ORDO_ORDER_COUNT);
        const ordo_run run = random_run(&seed, order, 7);
        const ordo_costs costs = random_costs(&seed);
        ordo_times times;
        ordo_record record = { 0 };
        taken context = { &run, &record };
        const int before = check_failures;
        CHECK(ordo_timeline_simulate(&run, 1, &costs, &times, &record) == ORDO_OK);
        CHECK_INT(times.makespan, clock_sim(&run, &costs, recorded_owner, &context));
        free(record.steps);
        CHECK_INT(times.busy + times.stall + times.tail, times.makespan * run.workers);
        if (check_failures > before) {
            print_run(&run);
            printf("    costs { %d %d %d %d overlap %d accumulators %d }\n", (int)costs.compute,
                   (int)costs.compute_partial, (int)costs.reduce, (int)costs.latency, costs.overlap,
                   costs.accumulators);
            return;
        }
    }
}

/* Several runs, as a packed batch gives them. */
TEST(runs_of_different_lengths)
{
    ordo_run runs[3];
    for (int x = 0; x < 3; x++)
        runs[x] = run_of(true, 2 + 3 * x, 2, 4 + 6 * x, 1, 4, 5, ORDO_ORDER_SPT_TAIL, FIRST_FREE);
    const ordo_costs costs = { 3, 3, 1, 1, 1, 1 };
    ordo_times times;
    CHECK(ordo_timeline_simulate(runs, 3, &costs, &times, NULL) == ORDO_OK);
    CHECK_INT(times.tasks, 4 * (6 + 30 + 72));
    CHECK(times.makespan >= 3 * (int64_t)times.tasks / 5);
}

TEST(impossible_runs_are_refused)
{
    ordo_run run = square_run(false, 6, 1, ORDO_ORDER_SHIFT);
    run.group = 6;
    run.workers = 5;
    const ordo_costs costs = { 1, 1, 1, 0, 0, 1 };
    ordo_times times;
    CHECK(ordo_timeline_simulate(&run, 1, &costs, &times, NULL) == ORDO_ERR_UNSUPPORTED);
    run.assign = ORDO_ASSIGN_FIRST_FREE;
    CHECK_REFUSED(ordo_timeline_simulate(&run, 1, &costs, &times, NULL), ORDO_ERR_UNSUPPORTED,
                  "order shift on 5 workers");
}

CHECK_MAIN()
