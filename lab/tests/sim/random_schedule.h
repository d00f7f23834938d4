/* random_schedule.h: schedules for tests, through the public API. */
#ifndef TESTS_API_RANDOM_SCHEDULE_H
#define TESTS_API_RANDOM_SCHEDULE_H

#include "check.h"
#include "ordo/lab/sim.h"

/* The example of the manual: 4 heads of 8 x 8 causal tiles on 8 workers. */
static inline ordo_schedule example(void)
{
    return (ordo_schedule) { .size = sizeof(ordo_schedule),
                             .mask = ORDO_MASK_CAUSAL,
                             .key_tiles = 8,
                             .heads = 4,
                             .workers = 8,
                             .order = ORDO_ORDER_SYMMETRIC,
                             .compute = 2,
                             .reduce = 2 };
}

/* ORDO_ERR_UNSUPPORTED where the schedule needs more workers; any other failure is a bug. */
static inline ordo_status info_of(const ordo_schedule *schedule, ordo_timeline_info *info)
{
    ordo_timeline *timeline = NULL;
    const ordo_status status = ordo_timeline_create(&timeline, schedule);
    if (status == ORDO_OK)
        CHECK(ordo_timeline_query(timeline, info) == ORDO_OK);
    else if (status != ORDO_ERR_UNSUPPORTED)
        CHECK_FAIL("%s: %s", ordo_status_name(status), ordo_last_error());
    ordo_timeline_destroy(timeline);
    return status;
}

/* Any legal schedule of up to `most` tiles a side, on enough workers or not. */
static inline ordo_schedule random_schedule(uint64_t *seed, int most)
{
    static const int ratios[][2] = { { 0, 0 }, { 1, 1 }, { 2, 1 }, { 8, 5 }, { 3, 2 }, { 1, 3 } };
    const int64_t ratio = check_between(seed, 0, 5);
    return (ordo_schedule) {
        .size = sizeof(ordo_schedule),
        .mask = (ordo_mask)check_between(seed, 0, 2),
        .key_tiles = check_between(seed, 1, most),
        .query_tiles = check_between(seed, 0, 1) * check_between(seed, 1, most),
        .ratio_num = ratios[ratio][0],
        .ratio_den = ratios[ratio][1],
        .heads = check_between(seed, 1, 6),
        .workers = check_between(seed, 1, 14),
        .order = (ordo_order)check_between(seed, 1, ORDO_ORDER_COUNT),
        .group = check_between(seed, -1, 5),
        .accumulators = check_between(seed, 0, 3),
        .issue = (ordo_issue)check_between(seed, 0, 2),
        .section = check_between(seed, 0, 4),
        .assign = (ordo_assign)check_between(seed, 0, 2),
        .compute = check_between(seed, 1, 9),
        .reduce = check_between(seed, 1, 9),
        .latency = check_between(seed, 0, 1) * check_between(seed, 1, 5),
        .compute_partial = check_between(seed, 0, 1) * check_between(seed, 1, 9),
        .overlap = check_between(seed, 0, 3),
    };
}

static inline void print_schedule(const ordo_schedule *s)
{
    printf(
        "    mask %d tiles %dx%d ratio %d/%d heads %d workers %d order %s group %d accumulators %d "
        "issue %d section %d assign %d c %d r %d L %d partial %d overlap %d\n",
        (int)s->mask, (int)s->key_tiles, (int)s->query_tiles, (int)s->ratio_num, (int)s->ratio_den,
        (int)s->heads, (int)s->workers, ordo_order_name(s->order), (int)s->group,
        (int)s->accumulators, (int)s->issue, (int)s->section, (int)s->assign, (int)s->compute,
        (int)s->reduce, (int)s->latency, (int)s->compute_partial, (int)s->overlap);
}

#endif
