/* The validator, on every order; and that it would notice. */
#include "plan/check.h"

#include "ordo/status.h"
#include "schedules.h"

/* Tickets hand out every unit of every head exactly once. */
static void check_tickets(const ordo_run *run)
{
    const ordo_walk walk = ordo_run_walk(run, 0);
    const size_t heads = (size_t)run->sequences * (size_t)run->kv_heads;
    unsigned char *seen = calloc(heads, (size_t)walk.nk + 1);
    size_t keys = 0;
    for (int cls = 0; cls < 2; cls++)
        for (int64_t ticket = 0; ticket < ordo_run_tickets(run, cls); ticket++) {
            const ordo_unit unit = ordo_run_issue(run, cls, ticket);
            CHECK(unit.head >= 0 && (size_t)unit.head < heads);
            for (int x = 0; x < unit.keys; x++, keys++)
                CHECK(seen[(size_t)unit.head * (size_t)walk.nk + (size_t)unit.key[x]]++ == 0);
        }
    CHECK_INT(keys, heads * (size_t)walk.nk);
    free(seen);
}

static void check_order(ordo_order order, int rounds)
{
    uint64_t seed = 100 + (uint64_t)order;
    for (int round = 0; round < rounds; round++) {
        const ordo_run run = random_run(&seed, order, 10);
        uint64_t pairs = 0;
        const int before = check_failures;
        CHECK(ordo_run_check(&run, &pairs) == ORDO_OK);
        check_tickets(&run);
        if (check_failures > before) {
            printf("    %s\n", ordo_last_error());
            print_run(&run);
            return;
        }
    }
}

TEST(every_order_on_random_runs)
{
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++)
        check_order((ordo_order)order, 1500);
}

TEST(pairs_are_counted)
{
    uint64_t pairs = 0;
    ordo_run run = square_run(true, 5, 3, ORDO_ORDER_SPT);
    run.group_heads = 2;
    CHECK(ordo_run_check(&run, &pairs) == ORDO_OK);
    CHECK_INT(pairs, 3 * 2 * 15);
    /* steps, 8 for each chain, tiles of each head, counters */
    CHECK_INT(ordo_run_check_cost(&run, pairs), 90 + 8 * 5 * 3 + 3 * 5 * 5 + 3 * 2 * 5);
}

/* Orders that say they wait only on earlier tickets do: turn by turn, the one before has an
 * earlier ticket. */
TEST(earlier_means_an_earlier_ticket)
{
    static const ordo_order orders[] = { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING,
                                         ORDO_ORDER_SPT, ORDO_ORDER_TWIN, ORDO_ORDER_SPT_TAIL };
    uint64_t seed = 7;
    for (int round = 0; round < 1000; round++) {
        ordo_run run = random_run(&seed, orders[round % 5], 8);
        run.assign = ORDO_ASSIGN_FIRST_FREE;
        CHECK_INT(ordo_run_coresident(&run), 0);
        const ordo_walk walk = ordo_run_walk(&run, 0);
        int64_t *when = calloc((size_t)(run.sequences * run.kv_heads * walk.nk) + 1, sizeof *when);
        int64_t now = 0;
        for (int cls = 0; cls < 2; cls++)
            for (int64_t ticket = 0; ticket < ordo_run_tickets(&run, cls); ticket++) {
                const ordo_unit unit = ordo_run_issue(&run, cls, ticket);
                when[unit.head * walk.nk + unit.key[0]] = now++;
            }
        for (int head = 0; head < run.sequences * run.kv_heads; head++) {
            const ordo_walk own = ordo_run_walk(&run, head);
            for (int i = 0; i < own.nq; i++) {
                const ordo_span keys = ordo_band_keys(&own.band, i);
                for (int a = keys.first; a <= keys.last; a++)
                    for (int b = keys.first; b <= keys.last; b++)
                        if (ordo_walk_turn(&own, i, a) < ordo_walk_turn(&own, i, b))
                            CHECK(when[head * own.nk + a] < when[head * own.nk + b]);
            }
        }
        free(when);
    }
}

/* Must fail: one worker too few for a group that waits on itself. */
TEST(too_few_workers_deadlock)
{
    ordo_run run = square_run(false, 6, 1, ORDO_ORDER_SHIFT);
    run.group = 6;
    run.workers = 5;
    uint64_t pairs = 0;
    CHECK_REFUSED(ordo_run_check(&run, &pairs), ORDO_ERR_INTERNAL, "6 units");
}

/* Must fail: symmetric's walk forced on shapes it cannot fold. */
TEST(a_wrong_walk_is_noticed)
{
    ordo_run run = square_run(true, 8, 1, ORDO_ORDER_SYMMETRIC);
    ordo_walk walk = ordo_run_walk(&run, 0);
    uint64_t pairs = 0;
    CHECK(ordo_walk_check(&walk, &pairs) == ORDO_OK);
    walk.band.low = -2; /* a window: some of its tiles are dead */
    CHECK_REFUSED(ordo_walk_check(&walk, &pairs), ORDO_ERR_INTERNAL, "tile");
    walk.band = (ordo_band) { .q_len = 24, .kv_len = 24, .bq = 2, .bk = 3, .low = -99, .high = 0 };
    walk.nq = 12; /* one and a half query tiles a key tile */
    CHECK(ordo_walk_check(&walk, &pairs) == ORDO_ERR_INTERNAL);
}

/* Twin, pinned in pairs, needs a whole head resident; issued in turn it needs nothing. */
TEST(twin_states_what_it_needs)
{
    ordo_run run = square_run(true, 6, 4, ORDO_ORDER_TWIN);
    uint64_t pairs = 0;
    CHECK_INT(ordo_run_coresident(&run), 6);
    CHECK(ordo_run_check(&run, &pairs) == ORDO_OK);
    run.workers = 5; /* no room for a head: issued in turn */
    CHECK_INT(ordo_run_coresident(&run), 0);
    CHECK(ordo_run_check(&run, &pairs) == ORDO_OK);
}

CHECK_MAIN()
