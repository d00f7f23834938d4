/* timeline.c: public functions of the timeline simulator. */
#include <stdlib.h>

#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "sim/critical.h"
#include "sim/replay.h"
#include "sim/schedule.h"

enum { RECORD_MAX = 1 << 24 }; /* steps that may be recorded: about 2 GiB */

struct ordo_timeline {
    ordo_timeline_info info;
    ordo_record record;
    ordo_critical *path;
    uint64_t path_count;
    bool *critical; /* by recorded step: whether it is on the path */
};

static ordo_status copy_schedule(ordo_schedule *to, const ordo_schedule *from)
{
    ORDO_TRY(ordo_check_pointer("schedule", from));
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_schedule, "ordo_schedule", ORDO_SCHEDULE_INIT, NULL);
    return ordo_versioned_copy(to, from, &kind);
}

static ordo_status record(ordo_timeline *timeline, const ordo_run *run, const ordo_costs *costs)
{
    ordo_timeline_info *info = &timeline->info;
    const uint64_t most = (uint64_t)info->key_tiles * (uint64_t)info->query_tiles; /* < 2^40 */
    if (most * (uint64_t)info->heads > RECORD_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "record: %llu tiles, expected at most %d",
                         (unsigned long long)(most * (uint64_t)info->heads), RECORD_MAX);
    ORDO_TRY(ordo_schedule_simulate(run, costs, 0, info, &timeline->record));
    ORDO_TRY(ordo_timeline_trace(&timeline->record, costs, &timeline->path, &timeline->path_count));
    timeline->critical = calloc(timeline->record.count + 1, sizeof *timeline->critical);
    if (!timeline->critical)
        return ordo_fail(ORDO_ERR_MEMORY, "timeline: %llu steps",
                         (unsigned long long)timeline->record.count);
    for (uint64_t i = 0; i < timeline->path_count; i++)
        timeline->critical[timeline->path[i].step] = true;
    return ORDO_OK;
}

static ordo_status simulate(ordo_timeline *timeline, const ordo_schedule *schedule)
{
    ordo_run run;
    ordo_costs costs;
    ORDO_TRY(ordo_schedule_prepare(schedule, &run, &costs, &timeline->info));
    const ordo_status status =
        schedule->record
            ? record(timeline, &run, &costs)
            : ordo_schedule_simulate(&run, &costs, ORDO_REPLAY_BUDGET, &timeline->info, NULL);
    ordo_schedule_release(&costs);
    return status;
}

ordo_status ordo_timeline_create(ordo_timeline **timeline, const ordo_schedule *schedule)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("timeline", timeline));
    *timeline = NULL;
    ordo_schedule known;
    ORDO_TRY(copy_schedule(&known, schedule));
    ordo_timeline *created = calloc(1, sizeof *created);
    if (!created)
        return ordo_fail(ORDO_ERR_MEMORY, "timeline: out of memory");
    const ordo_status status = simulate(created, &known);
    if (status != ORDO_OK) {
        ordo_timeline_destroy(created);
        return status;
    }
    *timeline = created;
    return ORDO_OK;
}

void ordo_timeline_destroy(ordo_timeline *timeline)
{
    if (!timeline)
        return;
    free(timeline->record.steps);
    free(timeline->path);
    free(timeline->critical);
    free(timeline);
}

ordo_status ordo_timeline_query(const ordo_timeline *timeline, ordo_timeline_info *info)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("timeline", timeline));
    ORDO_TRY(ordo_check_pointer("info", info));
    *info = timeline->info;
    return ORDO_OK;
}

uint64_t ordo_timeline_step_count(const ordo_timeline *timeline)
{
    return timeline ? timeline->record.count : 0;
}

ordo_status ordo_timeline_step_at(const ordo_timeline *timeline, uint64_t index,
                                  ordo_timeline_step *step)
{
    ORDO_TRY(ordo_check_pointer("timeline", timeline));
    ORDO_TRY(ordo_check_pointer("step", step));
    if (index >= timeline->record.count)
        return ordo_fail(ORDO_ERR_ARGUMENT, "index %llu: %llu steps are recorded",
                         (unsigned long long)index, (unsigned long long)timeline->record.count);
    const ordo_step *s = &timeline->record.steps[index];
    *step = (ordo_timeline_step) {
        .worker = s->worker,
        .head = s->head,
        .key = s->key,
        .query = s->query,
        .turn = s->turn,
        .begin = s->begin,
        .ready = s->ready,
        .start = s->start,
        .end = s->end,
        .waited_for = s->waited_for,
        .critical = timeline->critical[index],
    };
    return ORDO_OK;
}

uint64_t ordo_timeline_critical_count(const ordo_timeline *timeline)
{
    return timeline ? timeline->path_count : 0;
}

ordo_status ordo_timeline_critical_at(const ordo_timeline *timeline, uint64_t index,
                                      ordo_critical *critical)
{
    ORDO_TRY(ordo_check_pointer("timeline", timeline));
    ORDO_TRY(ordo_check_pointer("critical", critical));
    if (index >= timeline->path_count)
        return ordo_fail(ORDO_ERR_ARGUMENT, "index %llu: the critical path has %llu steps",
                         (unsigned long long)index, (unsigned long long)timeline->path_count);
    *critical = timeline->path[index];
    return ORDO_OK;
}

ordo_status ordo_schedule_auto(const ordo_schedule *schedule, ordo_order *order)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("order", order));
    ordo_schedule known;
    ORDO_TRY(copy_schedule(&known, schedule));
    return ordo_schedule_best(&known, order);
}
