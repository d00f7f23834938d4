/* timeline_test.c: the simulator through its public face. */
#include "random_schedule.h"

/* ---- what comes out ---- */

TEST(the_example)
{
    const ordo_schedule s = example();
    ordo_timeline_info info;
    CHECK(info_of(&s, &info) == ORDO_OK);
    CHECK_INT(info.makespan, 72);
    CHECK_INT(info.closed_form, 72);
    CHECK_INT(info.coresident, 4);
    CHECK_INT(info.tasks, 4 * 36);
    CHECK_INT(info.bound_work, 72);
    CHECK_INT(info.bound_chain, 32);
    CHECK_INT(info.bound_turns, 2 + 8 * 2);
    CHECK_INT(info.lower_bound, 72);
    CHECK_INT(info.busy, 72 * 8);
    CHECK_INT(info.stall + info.startup + info.tail, 0);
    CHECK(info.utilization == 1.0 && info.exact && info.valid);
    CHECK(info.order == ORDO_ORDER_SYMMETRIC && info.order_asked == ORDO_ORDER_SYMMETRIC);
    CHECK(info.assign == ORDO_ASSIGN_PINNED && info.issue == ORDO_ISSUE_HEAD);
    CHECK_INT(info.group, ORDO_GROUP_WAVES);
    CHECK_INT(info.accumulators, 1);
    CHECK_INT(info.key_tiles, 8);
    CHECK_INT(info.query_tiles, 8);
    CHECK_TEXT(info.numeric_key, "symmetric.w8/k1");
    CHECK_TEXT(info.note, "");
}

TEST(the_size_of_a_grid)
{
    static const int rows[][6] = {
        /* key_tiles, query_tiles, ratio, -> query tiles, live causal pairs of one head */
        { 4, 0, 0, 0, 4, 10 }, /* square */
        { 4, 8, 0, 0, 8, 20 }, /* two query tiles per key tile */
        { 4, 0, 2, 1, 8, 20 }, /* the same, by the ratio */
        { 5, 0, 8, 5, 8, 26 }, /* 40 rows in tiles of 8 and 5 */
        { 4, 2, 1, 1, 2, 7 },  /* bottom-right: 2 rows see 3 and 4 keys */
        { 2, 4, 1, 1, 4, 3 },  /* two rows see nothing */
    };
    for (size_t x = 0; x < sizeof rows / sizeof *rows; x++) {
        ordo_schedule s = example();
        s.order = ORDO_ORDER_SPT;
        s.heads = 1;
        s.key_tiles = rows[x][0];
        s.query_tiles = rows[x][1];
        s.ratio_num = rows[x][2];
        s.ratio_den = rows[x][3];
        ordo_timeline_info info = { 0 };
        CHECK(info_of(&s, &info) == ORDO_OK);
        CHECK_INT(info.query_tiles, rows[x][4]);
        CHECK_INT(info.tasks, rows[x][5]);
    }
}

/* Windows are in key tiles, from the diagonal of the mask; tiles are counted row by row. */
TEST(windows)
{
    static const int rows[][5] = {
        /* causal, left, right, ratio, -> live pairs of 6 key tiles */
        { 1, -1, 0, 1, 21 }, { 1, 0, 0, 1, 6 },    { 1, 1, 0, 1, 11 },  { 1, 2, -1, 1, 15 },
        { 0, 1, 1, 1, 16 },  { 0, -1, -1, 1, 36 }, { 0, -1, 0, 1, 21 }, { 1, 1, 0, 2, 22 },
    };
    for (size_t x = 0; x < sizeof rows / sizeof *rows; x++) {
        ordo_schedule s = example();
        s.order = ORDO_ORDER_DESCENDING;
        s.heads = 1;
        s.key_tiles = 6;
        s.mask = rows[x][0] ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
        s.window = (ordo_window) { true, rows[x][1], rows[x][2] };
        s.ratio_num = rows[x][3];
        s.ratio_den = 1;
        ordo_timeline_info info = { 0 };
        CHECK(info_of(&s, &info) == ORDO_OK);
        CHECK(info.valid);
        CHECK_INT(info.tasks, rows[x][4]);
    }
}

/* Chains of shared keys take their heads one by one: fewer and longer chains, the same tasks. */
TEST(grouped_heads)
{
    ordo_schedule s = example();
    ordo_timeline_info alone = { 0 }, shared = { 0 };
    s.order = ORDO_ORDER_DESCENDING;
    CHECK(info_of(&s, &alone) == ORDO_OK);
    s.kv_heads = 1;
    CHECK(info_of(&s, &shared) == ORDO_OK);
    CHECK(alone.valid && shared.valid);
    CHECK_INT(shared.tasks, alone.tasks);
    CHECK_INT(shared.bound_work, alone.bound_work);
    CHECK_INT(shared.bound_chain, 4 * alone.bound_chain);
    CHECK_INT(shared.heads, 4);
    CHECK(shared.makespan >= shared.bound_chain);
    CHECK_INT(shared.closed_form, -1);
    s.kv_heads = 3;
    ordo_timeline *none = NULL;
    CHECK_REFUSED(ordo_timeline_create(&none, &s), ORDO_ERR_ARGUMENT,
                  "kv_heads 3: expected a divisor of heads 4");
}

static void check_info(const ordo_schedule *s, const ordo_timeline_info *info)
{
    CHECK(info->exact && info->valid);
    CHECK_INT(info->busy + info->stall + info->tail, info->makespan * info->workers);
    CHECK(info->startup >= 0 && info->startup <= info->stall && info->tail >= 0);
    CHECK(info->lower_bound <= info->makespan);
    CHECK(info->bound_work <= info->lower_bound && info->bound_chain <= info->lower_bound &&
          info->bound_turns <= info->lower_bound);
    CHECK(info->lower_bound == info->bound_work || info->lower_bound == info->bound_chain ||
          info->lower_bound == info->bound_turns);
    CHECK(info->closed_form == -1 || info->closed_form == info->makespan);
    CHECK(info->utilization >= 0 && info->utilization <= 1);
    CHECK_INT(info->heads, s->heads);
    CHECK_INT(info->workers, s->workers);
    CHECK(info->coresident <= info->workers);
    CHECK(info->order_asked == s->order);
    CHECK((info->order == s->order) == (info->note[0] == 0));
    const bool cyclic = info->order == ORDO_ORDER_SHIFT || info->order == ORDO_ORDER_SYMMETRIC;
    CHECK_INT(info->group, !cyclic ? 0 : s->group > 0 ? s->group : ORDO_GROUP_WAVES);
}

TEST(random_schedules_add_up)
{
    uint64_t seed = 31;
    int closed = 0;
    for (int round = 0, done = 0; done < 2000; round++) {
        ordo_schedule s = random_schedule(&seed, 9);
        if (round % 2) { /* the shapes closed forms speak of */
            s.query_tiles = s.compute_partial = s.ratio_num = s.ratio_den = 0;
            s.workers = s.key_tiles;
            s.accumulators = s.overlap % 2;
            s.overlap /= 2;
            s.latency *= s.heads % 2;
        }
        ordo_timeline_info info;
        if (info_of(&s, &info) != ORDO_OK)
            continue;
        done++;
        closed += info.closed_form >= 0;
        const int before = check_failures;
        check_info(&s, &info);
        if (check_failures > before) {
            print_schedule(&s);
            return;
        }
    }
    CHECK(closed > 50);
}

/* Until 2000 schedules had a closed form: each is the makespan. */
TEST(closed_forms_are_the_makespan)
{
    uint64_t seed = 32;
    int given = 0;
    for (int round = 0; given < 2000 && round < 40000; round++) {
        ordo_schedule s = example();
        s.mask = (ordo_mask)check_between(&seed, 0, 2);
        s.order = (ordo_order)check_between(&seed, 1, ORDO_ORDER_COUNT);
        s.key_tiles = s.workers = check_between(&seed, 1, 10);
        s.heads = check_between(&seed, 1, 6);
        s.compute = check_between(&seed, 1, 9);
        s.reduce = check_between(&seed, 1, 9);
        s.latency = check_between(&seed, 0, 1) * check_between(&seed, 0, 9);
        s.overlap = check_between(&seed, 0, 1);
        s.group = check_between(&seed, 0, 12);
        ordo_timeline_info info;
        if (info_of(&s, &info) != ORDO_OK || info.closed_form < 0)
            continue;
        given++;
        if (info.closed_form != info.makespan) {
            CHECK_INT(info.closed_form, info.makespan);
            print_schedule(&s);
            return;
        }
    }
    CHECK_INT(given, 2000);
}

/* ---- the record ---- */

/* Steps add up, and each waited for the turn just before it at the same accumulator. */
static void check_steps(const ordo_timeline *timeline, const ordo_timeline_info *info,
                        const ordo_schedule *s)
{
    const uint64_t count = ordo_timeline_step_count(timeline);
    const int64_t accumulators = s->accumulators ? s->accumulators : 1;
    int64_t last = 0;
    CHECK_INT(count, info->tasks);
    for (uint64_t x = 0; x < count; x++) {
        ordo_timeline_step step, before;
        CHECK(ordo_timeline_step_at(timeline, x, &step) == ORDO_OK);
        CHECK(step.begin >= 0 && step.begin < step.ready && step.ready <= step.start);
        CHECK_INT(step.end - step.start, s->reduce);
        CHECK(step.worker >= 0 && step.worker < info->workers);
        CHECK(step.head >= 0 && step.head < info->heads);
        CHECK(step.key >= 0 && step.key < info->key_tiles);
        CHECK(step.query >= 0 && step.query < info->query_tiles);
        last = step.end > last ? step.end : last;
        CHECK((step.waited_for == -1) == (step.turn < accumulators));
        CHECK(step.waited_for < (int64_t)x); /* it follows those it waited for */
        if (step.waited_for < 0)
            continue;
        CHECK(ordo_timeline_step_at(timeline, (uint64_t)step.waited_for, &before) == ORDO_OK);
        CHECK(before.head == step.head && before.query == step.query);
        CHECK_INT(before.turn, step.turn - accumulators);
        CHECK(before.end + s->latency <= step.start);
    }
    CHECK_INT(last, info->makespan);
}

/* Waiting, added up from the steps. A serial worker waits between computing and adding; one that
 * adds behind its computation waits to hand over, after it has computed. */
static void check_waiting(const ordo_timeline *timeline, const ordo_timeline_info *info,
                          const ordo_schedule *s)
{
    enum { WORKERS = 16 };
    int64_t first[WORKERS], stall = 0, startup = 0;
    for (int w = 0; w < WORKERS; w++)
        first[w] = INT64_MAX; /* when its first addition starts */
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t x = 0; x < ordo_timeline_step_count(timeline); x++) {
            ordo_timeline_step step;
            CHECK(ordo_timeline_step_at(timeline, x, &step) == ORDO_OK);
            int64_t *const added = &first[step.worker];
            const int64_t from = s->overlap ? step.begin + s->compute : step.ready;
            const int64_t to = s->overlap ? step.ready : step.start;
            const int64_t early = to < *added ? to : *added;
            if (pass == 0) {
                *added = step.start < *added ? step.start : *added;
                continue;
            }
            stall += to - from;
            startup += early > from ? early - from : 0;
        }
    CHECK_INT(info->stall, stall);
    CHECK_INT(info->startup, startup);
}

/* From the last addition back to time 0, each edge as long as it must be. */
static void check_path(const ordo_timeline *timeline, const ordo_timeline_info *info,
                       const ordo_schedule *s)
{
    const uint64_t count = ordo_timeline_critical_count(timeline);
    uint64_t marked = 0;
    CHECK((count > 0) == (info->tasks > 0));
    for (uint64_t x = 0; x < count; x++) {
        ordo_critical critical, next;
        ordo_timeline_step late, early;
        CHECK(ordo_timeline_critical_at(timeline, x, &critical) == ORDO_OK);
        CHECK(ordo_timeline_step_at(timeline, critical.step, &late) == ORDO_OK);
        CHECK(late.critical);
        if (x == 0)
            CHECK_INT(late.end, info->makespan);
        CHECK((x + 1 == count) == (critical.edge == ORDO_EDGE_START));
        if (critical.edge == ORDO_EDGE_START) {
            CHECK_INT(late.begin, 0);
            continue;
        }
        CHECK(ordo_timeline_critical_at(timeline, x + 1, &next) == ORDO_OK);
        CHECK(ordo_timeline_step_at(timeline, next.step, &early) == ORDO_OK);
        if (critical.edge == ORDO_EDGE_TURN) {
            CHECK_INT(late.waited_for, next.step);
            CHECK_INT(early.end + s->latency, late.start);
        } else {
            CHECK_INT(early.worker, late.worker);
            CHECK(early.begin < late.begin);
        }
    }
    for (uint64_t x = 0; x < info->tasks; x++) {
        ordo_timeline_step step;
        CHECK(ordo_timeline_step_at(timeline, x, &step) == ORDO_OK);
        marked += step.critical;
    }
    CHECK_INT(marked, count);
}

TEST(records_explain_the_makespan)
{
    uint64_t seed = 33;
    for (int round = 0; round < 1000; round++) {
        ordo_schedule s = random_schedule(&seed, 7);
        s.record = true;
        ordo_timeline *timeline = NULL;
        ordo_timeline_info info, plain;
        const ordo_status status = ordo_timeline_create(&timeline, &s);
        s.record = false;
        CHECK(info_of(&s, &plain) == status);
        if (status != ORDO_OK)
            continue;
        const int before = check_failures;
        CHECK(ordo_timeline_query(timeline, &info) == ORDO_OK);
        CHECK_INT(info.makespan, plain.makespan);
        CHECK_INT(info.stall, plain.stall);
        CHECK_INT(info.startup, plain.startup);
        check_steps(timeline, &info, &s);
        check_path(timeline, &info, &s);
        if (s.compute_partial == 0)
            check_waiting(timeline, &info, &s);
        ordo_timeline_destroy(timeline);
        if (check_failures > before) {
            print_schedule(&s);
            return;
        }
    }
}

TEST(without_a_record_there_is_nothing_to_read)
{
    const ordo_schedule s = example();
    ordo_timeline *timeline = NULL;
    ordo_timeline_step step;
    ordo_critical critical;
    CHECK(ordo_timeline_create(&timeline, &s) == ORDO_OK);
    CHECK_INT(ordo_timeline_step_count(timeline), 0);
    CHECK_INT(ordo_timeline_critical_count(timeline), 0);
    CHECK_REFUSED(ordo_timeline_step_at(timeline, 0, &step), ORDO_ERR_ARGUMENT,
                  "index 0: 0 steps are recorded");
    CHECK_REFUSED(ordo_timeline_critical_at(timeline, 0, &critical), ORDO_ERR_ARGUMENT,
                  "index 0: the critical path has 0 steps");
    ordo_timeline_destroy(timeline);
}

/* ---- arguments ---- */

static void refuse(const ordo_schedule *s, const char *what, ordo_status status, const char *says)
{
    ordo_timeline *timeline = (ordo_timeline *)&check_failures; /* must be overwritten */
    CHECK_REFUSED_AS(what, ordo_timeline_create(&timeline, s), status, says);
    CHECK(timeline == NULL);
}

#define REFUSE(field, value, says)                                                                 \
    do {                                                                                           \
        ordo_schedule s_ = example();                                                              \
        s_.field = (value);                                                                        \
        refuse(&s_, #field " = " #value, ORDO_ERR_ARGUMENT, says);                                 \
    } while (0)

TEST(fields_out_of_range_are_named)
{
    REFUSE(mask, (ordo_mask)3, "mask 3: expected 0 (full), 1 (causal) or 2");
    REFUSE(key_tiles, 0, "key_tiles 0: expected 1..1048576");
    REFUSE(key_tiles, (1 << 20) + 1, "key_tiles 1048577");
    REFUSE(query_tiles, -1, "query_tiles -1: expected 0..1048576");
    REFUSE(heads, 0, "heads 0: expected 1..1048576");
    REFUSE(heads, INT64_MAX, "heads 9223372036854775807");
    REFUSE(workers, 0, "workers 0: expected 1..1048576");
    REFUSE(workers, INT64_MIN, "workers -9223372036854775808");
    REFUSE(order, ORDO_ORDER_DEFAULT, "order 0: expected 1..7");
    REFUSE(order, (ordo_order)8, "order 8: expected 1..7");
    REFUSE(group, -2, "group -2: expected -1..1048576");
    REFUSE(accumulators, -1, "accumulators -1: expected 0..64");
    REFUSE(accumulators, 65, "accumulators 65: expected 0..64");
    REFUSE(issue, (ordo_issue)3, "issue 3: expected 0..2");
    REFUSE(section, -1, "section -1: expected 0..1048576");
    REFUSE(assign, (ordo_assign)3, "assign 3: expected 0..2");
    REFUSE(compute, 0, "compute 0: expected 1..1073741824");
    REFUSE(compute, (1 << 30) + 1, "compute 1073741825");
    REFUSE(compute_partial, -1, "compute_partial -1: expected 0..");
    REFUSE(reduce, 0, "reduce 0: expected 1..");
    REFUSE(latency, -1, "latency -1: expected 0..");
    REFUSE(overlap, 17, "overlap 17: expected 0..16");
    REFUSE(ratio_num, 2, "ratio 2/0: expected both zero or both positive");
    REFUSE(ratio_den, 2, "ratio 0/2");
    ordo_schedule s = example();
    s.ratio_num = -1;
    s.ratio_den = 1;
    refuse(&s, "ratio -1/1", ORDO_ERR_ARGUMENT, "ratio_num -1: expected 0..4096");
    s.ratio_num = 1;
    s.ratio_den = 4097;
    refuse(&s, "ratio 1/4097", ORDO_ERR_ARGUMENT, "ratio_den 4097: expected 0..4096");
}

TEST(schedules_that_cannot_run_are_refused_by_name)
{
    ordo_schedule s = example();
    s.group = 4;
    s.workers = 3;
    refuse(&s, "group 4 on 3", ORDO_ERR_UNSUPPORTED,
           "order symmetric, group 4: 4 chains must be resident together, workers 3");
    s = example();
    s.issue = ORDO_ISSUE_KEY;
    refuse(&s, "waves by key", ORDO_ERR_UNSUPPORTED, "order symmetric in waves, issue key");
    s = example();
    s.key_tiles = 1 << 18;
    s.ratio_num = 4096;
    s.ratio_den = 1;
    refuse(&s, "2^30 query tiles", ORDO_ERR_OVERFLOW, "query_tiles 0: 262144 key tiles in ratio");
    s = example();
    s.key_tiles = s.heads = 1 << 9;
    s.record = true;
    refuse(&s, "record 2^27", ORDO_ERR_UNSUPPORTED, "record: 134217728");
}

TEST(symmetric_is_replaced_by_name)
{
    ordo_schedule s = example();
    ordo_timeline_info info;
    s.mask = ORDO_MASK_FULL;
    CHECK(info_of(&s, &info) == ORDO_OK);
    CHECK(info.order == ORDO_ORDER_SHIFT && info.order_asked == ORDO_ORDER_SYMMETRIC);
    CHECK_HAS(info.note, "replaced by shift");
    s = example();
    s.ratio_num = 8;
    s.ratio_den = 5;
    CHECK(info_of(&s, &info) == ORDO_OK);
    CHECK(info.order == ORDO_ORDER_SPT && info.assign == ORDO_ASSIGN_FIRST_FREE);
    CHECK_HAS(info.note, "replaced by spt");
    CHECK_TEXT(info.numeric_key, "spt/k1");
}

TEST(structs_of_other_versions)
{
    struct {
        ordo_schedule schedule;
        char more[16];
    } newer = { .schedule = example() };
    ordo_schedule *s = &newer.schedule;
    ordo_timeline *timeline = NULL;
    ordo_order order;
    s->size = sizeof newer;
    CHECK(ordo_timeline_create(&timeline, s) == ORDO_OK);
    ordo_timeline_destroy(timeline);
    CHECK(ordo_schedule_auto(s, &order) == ORDO_OK);
    newer.more[15] = 1;
    refuse(s, "a newer field", ORDO_ERR_UNSUPPORTED, "ordo_schedule.size");
    CHECK(ordo_schedule_auto(s, &order) == ORDO_ERR_UNSUPPORTED);
    s->size = 0;
    refuse(s, "no size", ORDO_ERR_ARGUMENT, "ORDO_SCHEDULE_INIT");
    CHECK(ordo_schedule_auto(s, &order) == ORDO_ERR_ARGUMENT);
    s->size = 5000;
    refuse(s, "no size at all", ORDO_ERR_ARGUMENT, "ORDO_SCHEDULE_INIT");
    s->size = offsetof(ordo_schedule, overlap); /* older: what lies behind is not read */
    s->overlap = 99;
    CHECK(ordo_timeline_create(&timeline, s) == ORDO_OK);
    ordo_timeline_destroy(timeline);
}

TEST(nothing_given)
{
    const ordo_schedule s = example();
    ordo_timeline *timeline = NULL;
    ordo_timeline_info info;
    ordo_timeline_step step;
    ordo_critical critical;
    ordo_order order = ORDO_ORDER_TWIN;
    CHECK(ordo_timeline_create(NULL, &s) == ORDO_ERR_ARGUMENT);
    CHECK_REFUSED(ordo_timeline_create(&timeline, NULL), ORDO_ERR_ARGUMENT,
                  "schedule NULL: expected a pointer");
    CHECK(ordo_timeline_create(&timeline, &s) == ORDO_OK);
    CHECK(ordo_timeline_query(NULL, &info) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_timeline_query(timeline, NULL) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_timeline_step_at(NULL, 0, &step) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_timeline_step_at(timeline, 0, NULL) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_timeline_critical_at(NULL, 0, &critical) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_timeline_critical_at(timeline, 0, NULL) == ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_timeline_step_count(NULL), 0);
    CHECK_INT(ordo_timeline_critical_count(NULL), 0);
    CHECK(ordo_schedule_auto(NULL, &order) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_schedule_auto(&s, NULL) == ORDO_ERR_ARGUMENT);
    CHECK_INT(order, ORDO_ORDER_TWIN);
    ordo_timeline_destroy(timeline);
    ordo_timeline_destroy(NULL);
}

/* Every recorded step is of a live tile, each once; a query tile's turns follow each other. */
static void check_blocks(const ordo_schedule *s, const uint8_t *blocks, uint64_t *tasks)
{
    ordo_timeline *timeline = NULL;
    ordo_timeline_info info = { 0 };
    const ordo_status status = ordo_timeline_create(&timeline, s);
    if (status == ORDO_ERR_UNSUPPORTED) /* twin, pinned: chains of two heads wait for each other */
        return;
    CHECK(status == ORDO_OK && ordo_timeline_query(timeline, &info) == ORDO_OK);
    check_info(s, &info);
    const int64_t nk = info.key_tiles, nq = info.query_tiles;
    int32_t *next = calloc((size_t)(nq * s->heads) + 1, sizeof *next);
    uint8_t *seen = calloc((size_t)(nq * nk * s->heads) + 1, 1);
    for (uint64_t x = 0; x < ordo_timeline_step_count(timeline); x++) {
        ordo_timeline_step step;
        CHECK(ordo_timeline_step_at(timeline, x, &step) == ORDO_OK);
        const int64_t tile = step.query * nk + step.key;
        CHECK(blocks[tile] && !seen[step.head * nq * nk + tile]);
        CHECK_INT(step.turn, next[step.head * nq + step.query]);
        next[step.head * nq + step.query]++;
        seen[step.head * nq * nk + tile] = 1;
    }
    *tasks = ordo_timeline_step_count(timeline);
    CHECK_INT(*tasks, info.tasks);
    free(next);
    free(seen);
    ordo_timeline_destroy(timeline);
}

TEST(block_masks)
{
    static const ordo_order orders[] = { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING,
                                         ORDO_ORDER_SPT, ORDO_ORDER_TWIN, ORDO_ORDER_SPT_TAIL };
    uint64_t seed = 47, ran = 0;
    for (int round = 0; round < 200; round++) {
        ordo_schedule s = random_schedule(&seed, 12);
        ordo_timeline_info whole = { 0 }, all = { 0 };
        uint8_t blocks[12 * 12 * 3 + 64];
        uint64_t tasks = 0, live = 0;
        s.order = orders[check_between(&seed, 0, 4)];
        s.accumulators = 0; /* or turns of two accumulators need not be recorded in turn */
        if (info_of(&s, &whole) != ORDO_OK)
            continue;
        const int64_t tiles = whole.query_tiles * whole.key_tiles;
        if (tiles > (int64_t)sizeof blocks)
            continue;
        memset(blocks, 1, sizeof blocks);
        s.blocks = blocks; /* hides nothing: the schedule of the band */
        CHECK(info_of(&s, &all) == ORDO_OK);
        CHECK_INT(all.makespan, whole.makespan);
        CHECK_INT(all.tasks, whole.tasks);
        CHECK_INT(all.lower_bound, whole.lower_bound);
        for (int64_t i = 0; i < tiles; i++)
            blocks[i] = check_between(&seed, 0, 2) > 0;
        s.record = true;
        check_blocks(&s, blocks, &tasks);
        for (int64_t i = 0; i < tiles; i++)
            live += blocks[i];
        CHECK(tasks <= live * (uint64_t)s.heads);
        if (s.mask == ORDO_MASK_FULL && tasks > 0)
            CHECK_INT(tasks, live * (uint64_t)s.heads);
        ran += tasks > 0;
    }
    CHECK(ran > 100);
    ordo_schedule s = example();
    uint8_t none[64] = { 0 };
    ordo_timeline *timeline = NULL;
    s.blocks = none;
    CHECK_REFUSED(ordo_timeline_create(&timeline, &s), ORDO_ERR_UNSUPPORTED,
                  "order symmetric: block masks have no cyclic orders");
    ordo_timeline_info info;
    s.order = ORDO_ORDER_SPT;
    CHECK(info_of(&s, &info) == ORDO_OK);
    CHECK_INT(info.tasks, 0);
    CHECK_INT(info.makespan, 0);
}

CHECK_MAIN()
