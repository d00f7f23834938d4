/* Orders on small grids, cell by cell, as docs/design/orders.md draws them. */
#include "plan/order.h"

#include "schedules.h"

/* The steps of key tile j as "i#turn i#turn ...". */
static const char *steps_of(const ordo_run *run, int head, int j)
{
    static char text[512];
    const ordo_walk walk = ordo_run_walk(run, head);
    size_t used = 0;
    text[0] = 0;
    for (int t = 0; t < ordo_walk_steps(&walk, j); t++) {
        const int i = ordo_walk_visit(&walk, j, t);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d#%d", t ? " " : "", i,
                                 ordo_walk_turn(&walk, i, j));
    }
    return text;
}

/* The keys of query tile i in the order they add: "0 3 2 1". */
static const char *sum_of(const ordo_run *run, int i)
{
    static char text[256];
    const ordo_walk walk = ordo_run_walk(run, 0);
    size_t used = 0;
    text[0] = 0;
    for (int turn = 0; turn < walk.nk; turn++) {
        const ordo_span keys = ordo_band_keys(&walk.band, i);
        for (int j = keys.first; j <= keys.last; j++)
            if (ordo_walk_turn(&walk, i, j) == turn)
                used +=
                    (size_t)snprintf(text + used, sizeof text - used, "%s%d", used ? " " : "", j);
    }
    return text;
}

TEST(full_4x4)
{
    const ordo_run up = square_run(false, 4, 1, ORDO_ORDER_ASCENDING);
    CHECK_TEXT(steps_of(&up, 0, 0), "0#0 1#0 2#0 3#0");
    CHECK_TEXT(steps_of(&up, 0, 3), "0#3 1#3 2#3 3#3");
    const ordo_run shift = square_run(false, 4, 1, ORDO_ORDER_SHIFT);
    CHECK_TEXT(steps_of(&shift, 0, 0), "0#0 1#1 2#2 3#3");
    CHECK_TEXT(steps_of(&shift, 0, 1), "1#0 2#1 3#2 0#3");
    CHECK_TEXT(steps_of(&shift, 0, 2), "2#0 3#1 0#2 1#3");
    CHECK_TEXT(steps_of(&shift, 0, 3), "3#0 0#1 1#2 2#3");
    CHECK_TEXT(sum_of(&shift, 0), "0 3 2 1");
    CHECK_TEXT(sum_of(&shift, 2), "2 1 0 3");
}

TEST(causal_4x4)
{
    const ordo_run up = square_run(true, 4, 1, ORDO_ORDER_ASCENDING);
    CHECK_TEXT(steps_of(&up, 0, 2), "2#2 3#2");
    const ordo_run spt = square_run(true, 4, 1, ORDO_ORDER_SPT);
    CHECK_TEXT(steps_of(&spt, 0, 0), "0#0 1#1 2#2 3#3");
    CHECK_TEXT(steps_of(&spt, 0, 2), "2#0 3#1");
    const ordo_run down = square_run(true, 4, 2, ORDO_ORDER_DESCENDING);
    CHECK_TEXT(steps_of(&down, 0, 1), "3#1 2#1 1#1");
    CHECK_TEXT(steps_of(&down, 1, 0), "3#0 2#0 1#0 0#0");
    const ordo_run twin = square_run(true, 4, 2, ORDO_ORDER_TWIN);
    CHECK_TEXT(steps_of(&twin, 0, 1), "1#0 2#1 3#2");
    CHECK_TEXT(steps_of(&twin, 1, 1), "3#1 2#1 1#1");
    const ordo_run tail = square_run(true, 4, 4, ORDO_ORDER_SPT_TAIL);
    CHECK_TEXT(steps_of(&tail, 2, 1), "1#0 2#1 3#2");
    CHECK_TEXT(steps_of(&tail, 3, 1), "3#1 2#1 1#1");
}

TEST(symmetric_4x4_and_4x8)
{
    const ordo_run square = square_run(true, 4, 1, ORDO_ORDER_SYMMETRIC);
    CHECK_TEXT(steps_of(&square, 0, 0), "1#0 2#1 3#1 0#0");
    CHECK_TEXT(steps_of(&square, 0, 1), "2#0 3#0 1#1");
    CHECK_TEXT(steps_of(&square, 0, 2), "3#2 2#2");
    CHECK_TEXT(steps_of(&square, 0, 3), "3#3");
    const ordo_run tall = run_of(true, 4, 2, 8, 1, 1, 4, ORDO_ORDER_SYMMETRIC, ORDO_ASSIGN_PINNED);
    CHECK_TEXT(steps_of(&tall, 0, 0), "2#0 3#1 4#1 5#1 6#1 7#1 0#0 1#0");
    CHECK_TEXT(steps_of(&tall, 0, 1), "3#0 4#0 5#0 6#0 7#0 2#1");
    CHECK_TEXT(steps_of(&tall, 0, 2), "7#2 6#2 5#2 4#2");
    CHECK_TEXT(steps_of(&tall, 0, 3), "7#3 6#3");
}

TEST(symmetric_8x8)
{
    const ordo_run run = square_run(true, 8, 1, ORDO_ORDER_SYMMETRIC);
    CHECK_TEXT(steps_of(&run, 0, 0), "3#0 4#1 5#2 6#3 7#3 0#0 1#1 2#2");
    CHECK_TEXT(steps_of(&run, 0, 1), "4#0 5#1 6#2 7#2 3#3 1#0 2#1");
    CHECK_TEXT(steps_of(&run, 0, 2), "5#0 6#1 7#1 3#2 4#3 2#0");
    CHECK_TEXT(steps_of(&run, 0, 3), "6#0 7#0 3#1 4#2 5#3");
    CHECK_TEXT(steps_of(&run, 0, 4), "7#4 6#4 5#4 4#4");
    CHECK_TEXT(steps_of(&run, 0, 7), "7#7");
    CHECK_TEXT(sum_of(&run, 0), "0");
    CHECK_TEXT(sum_of(&run, 2), "2 1 0");
    CHECK_TEXT(sum_of(&run, 3), "0 3 2 1");
    CHECK_TEXT(sum_of(&run, 4), "1 0 3 2 4");
    CHECK_TEXT(sum_of(&run, 6), "3 2 1 0 4 5 6");
    CHECK_TEXT(sum_of(&run, 7), "3 2 1 0 4 5 6 7");
}

TEST(shift_with_more_query_tiles_than_keys)
{
    const ordo_run run = run_of(false, 3, 1, 5, 1, 1, 3, ORDO_ORDER_SHIFT, ORDO_ASSIGN_PINNED);
    CHECK_TEXT(sum_of(&run, 0), "0 2 1");
    CHECK_TEXT(sum_of(&run, 1), "1 0 2");
    CHECK_TEXT(sum_of(&run, 2), "2 1 0");
    CHECK_TEXT(sum_of(&run, 4), "2 1 0");
}

/* Groups of two: whole groups in order, cyclic inside. */
TEST(shift_in_groups)
{
    ordo_run run = square_run(false, 4, 1, ORDO_ORDER_SHIFT);
    run.group = 2;
    CHECK_TEXT(sum_of(&run, 0), "0 1 2 3");
    CHECK_TEXT(sum_of(&run, 1), "1 0 3 2");
    CHECK_TEXT(sum_of(&run, 3), "1 0 3 2");
}

/* Waves of three workers over heads of four tiles: one that a head leaves goes on in the next. */
TEST(waves_go_on_in_the_next_head)
{
    const ordo_run run = run_of(false, 4, 1, 4, 1, 2, 3, ORDO_ORDER_SHIFT, ORDO_ASSIGN_PINNED);
    CHECK_TEXT(steps_of(&run, 0, 2), "2#0 3#0 0#1 1#2"); /* beside 0 and 1 */
    CHECK_TEXT(steps_of(&run, 0, 3), "0#3 1#3 2#3 3#3"); /* alone */
    CHECK_TEXT(steps_of(&run, 1, 1), "1#0 2#0 3#0 0#1"); /* beside 0 */
    CHECK_TEXT(steps_of(&run, 1, 3), "1#2 2#2 3#2 0#3"); /* beside 2 */
}

/* Odd tile counts fold with a tile that does not exist; ragged ones too. */
TEST(symmetric_of_an_odd_count)
{
    const ordo_run run = square_run(true, 3, 1, ORDO_ORDER_SYMMETRIC);
    CHECK_INT(ordo_run_head_units(&run), 2);
    CHECK_TEXT(steps_of(&run, 0, 0), "1#0 2#1 0#0");
    CHECK_TEXT(steps_of(&run, 0, 1), "2#0 1#1");
    CHECK_TEXT(steps_of(&run, 0, 2), "2#2");
}

/* Where symmetric cannot fold it is another order by name, never something in between. */
TEST(symmetric_falls_back)
{
    const ordo_band full = square_run(false, 4, 1, ORDO_ORDER_SHIFT).band;
    CHECK(ordo_order_walk(ORDO_ORDER_SYMMETRIC, &full, 0) == ORDO_WALK_SHIFT);
    ordo_band band = square_run(true, 4, 1, ORDO_ORDER_SHIFT).band;
    CHECK(ordo_order_walk(ORDO_ORDER_SYMMETRIC, &band, 0) == ORDO_WALK_SYMMETRIC);
    band.low = -1; /* a window */
    CHECK(ordo_order_walk(ORDO_ORDER_SYMMETRIC, &band, 0) == ORDO_WALK_SPT);
    const ordo_band uneven = { .q_len = 24, .kv_len = 24, .bq = 2, .bk = 3, .low = -99, .high = 0 };
    CHECK(ordo_order_walk(ORDO_ORDER_SYMMETRIC, &uneven, 0) == ORDO_WALK_SPT);
    const ordo_band longer = { .q_len = 4, .kv_len = 8, .bq = 1, .bk = 1, .low = -99, .high = 4 };
    CHECK(ordo_order_walk(ORDO_ORDER_SYMMETRIC, &longer, 0) == ORDO_WALK_SPT);
}

/* The order of sums of a head is the same whatever batch, workers or neighbours it has. */
TEST(sums_depend_on_nothing_but_head_and_lengths)
{
    uint64_t seed = 3;
    for (int round = 0; round < 2000; round++) {
        const ordo_order order = (ordo_order)check_between(&seed, 1, ORDO_ORDER_COUNT);
        ordo_run one = random_run(&seed, order, 8);
        if (one.group == 0)
            one.group = 3; /* waves make no such promise */
        ordo_run other = one;
        other.sequences = 1 + one.sequences * 2;
        other.workers = one.workers + 7;
        other.head0 = 0; /* the same key heads as part of a longer range */
        other.kv_heads = one.head0 + one.kv_heads + 1;
        other.issue = ORDO_ISSUE_HEAD;
        other.assign = ORDO_ASSIGN_PINNED;
        const int head = (int)check_between(&seed, 0, one.kv_heads - 1);
        const ordo_walk a = ordo_run_walk(&one, head);
        const ordo_walk b = ordo_run_walk(&other, other.kv_heads + one.head0 + head);
        for (int j = 0; j < a.nk; j++)
            for (int t = 0; t < ordo_walk_steps(&a, j); t++) {
                const int i = ordo_walk_visit(&a, j, t);
                CHECK_INT(ordo_walk_visit(&b, j, t), i);
                CHECK_INT(ordo_walk_turn(&b, i, j), ordo_walk_turn(&a, i, j));
            }
    }
}

CHECK_MAIN()
