/* timeline_fuzz.c: any bytes as a schedule for the simulator.
 *
 * What is accepted is a valid walk: every live pair of tiles once, turns without holes, no time
 * below the lower bounds; recorded steps and the critical path agree with the totals. */
#include "fuzz/input.h"
#include "ordo/lab/sim.h"

/* A size that is run, or one that must be refused or cost nothing. */
static int64_t size_of(reader *r, int most)
{
    const int b = byte(r);
    return b == 255 ? INT64_MAX : b == 254 ? INT64_MIN : b == 253 ? -1 : b % (most + 1);
}

static ordo_schedule read_schedule(reader *r)
{
    ordo_schedule s = ORDO_SCHEDULE_INIT;
    s.mask = (ordo_mask)(byte(r) % 4);
    s.key_tiles = size_of(r, 12);
    s.query_tiles = size_of(r, 12);
    s.ratio_num = size_of(r, 3);
    s.ratio_den = size_of(r, 3);
    s.heads = size_of(r, 6);
    s.workers = size_of(r, 14);
    s.order = (ordo_order)(byte(r) % (ORDO_ORDER_COUNT + 2));
    s.group = byte(r) % 10 - 1;
    s.accumulators = size_of(r, 3);
    s.issue = (ordo_issue)(byte(r) % 4);
    s.section = size_of(r, 4);
    s.assign = (ordo_assign)(byte(r) % 5);
    s.compute = size_of(r, 9);
    s.reduce = size_of(r, 9);
    s.latency = size_of(r, 5);
    s.compute_partial = size_of(r, 9);
    s.overlap = size_of(r, 3);
    s.record = byte(r) % 4 > 0;
    return s;
}

static void check_steps(const ordo_timeline *t, const ordo_timeline_info *info)
{
    const uint64_t count = ordo_timeline_step_count(t);
    int64_t last = 0;
    must(count == info->tasks);
    for (uint64_t x = 0; x < count; x++) {
        ordo_timeline_step s, before;
        must(ordo_timeline_step_at(t, x, &s) == ORDO_OK);
        must(0 <= s.begin && s.begin <= s.ready && s.ready <= s.start && s.start <= s.end);
        must(s.worker >= 0 && s.worker < info->workers && s.head >= 0 && s.head < info->heads);
        must(s.key >= 0 && s.key < info->key_tiles);
        must(s.query >= 0 && s.query < info->query_tiles && s.turn >= 0);
        must(s.waited_for < (int64_t)x);
        must((s.turn > 0) == (s.waited_for >= 0) || info->accumulators > 1);
        if (s.waited_for >= 0) {
            must(ordo_timeline_step_at(t, (uint64_t)s.waited_for, &before) == ORDO_OK);
            must(before.head == s.head && before.query == s.query && before.end <= s.start);
        }
        last = s.end > last ? s.end : last;
    }
    must(last == info->makespan || count == 0);
    for (uint64_t x = 0; x < ordo_timeline_critical_count(t); x++) {
        ordo_critical c;
        must(ordo_timeline_critical_at(t, x, &c) == ORDO_OK && c.step < count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reader r = { data, data + size };
    const ordo_schedule s = read_schedule(&r);
    ordo_timeline *t = NULL;
    ordo_timeline_info info;
    ordo_order order;
    if (ordo_timeline_create(&t, &s) == ORDO_OK) {
        must(ordo_timeline_query(t, &info) == ORDO_OK);
        must(info.valid && info.makespan >= info.lower_bound);
        must(info.utilization >= 0 && info.utilization <= 1 + 1e-9);
        if (info.exact)
            must(info.busy + info.stall + info.tail == info.workers * info.makespan);
        if (s.record)
            check_steps(t, &info);
        must(ordo_timeline_step_at(t, ordo_timeline_step_count(t), NULL) != ORDO_OK);
    } else {
        must(t == NULL);
    }
    ordo_timeline_destroy(t);
    if (byte(&r) % 8 == 1 && ordo_schedule_auto(&s, &order) == ORDO_OK)
        must((unsigned)order <= ORDO_ORDER_COUNT);
    return 0;
}
