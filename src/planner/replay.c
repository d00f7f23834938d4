/* replay.c: see the header. */
#include "planner/replay.h"

#include "base/status.h"

/* The first part of a run: fewer sequences, or of a single one fewer heads, in fours so that
 * every class of head keeps its share. */
static ordo_run first_part(const ordo_run *run, int32_t parts)
{
    ordo_run part = *run;
    if (run->sequences > 1)
        part.sequences = parts;
    else
        part.kv_heads = 4 * parts;
    return part;
}

static int64_t extend(int64_t at_half, int64_t at_whole, double factor)
{
    return at_whole + (int64_t)((double)(at_whole - at_half) * factor + 0.5);
}

ordo_status ordo_replay(const ordo_run *run, const ordo_costs *costs, uint64_t tasks,
                        uint64_t budget, ordo_times *times, bool *exact)
{
    *exact = true;
    if (tasks <= budget)
        return ordo_timeline_simulate(run, 1, costs, times, NULL);
    const int32_t all = run->sequences > 1 ? run->sequences : run->kv_heads / 4;
    const uint64_t each = all > 0 ? tasks / (uint64_t)all + 1 : tasks;
    uint64_t half = budget / each / 2;
    if (half == 0)
        half = 1;
    if (all < 4 || 2 * half * each > ORDO_REPLAY_LIMIT) {
        if (tasks <= ORDO_REPLAY_LIMIT)
            return ordo_timeline_simulate(run, 1, costs, times, NULL);
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "%llu tile pairs: too many to simulate, and too few equal heads to extend "
                         "from",
                         (unsigned long long)tasks);
    }
    *exact = false;
    ordo_times less;
    const ordo_run part = first_part(run, (int32_t)half),
                   twice = first_part(run, 2 * (int32_t)half);
    ORDO_TRY(ordo_timeline_simulate(&part, 1, costs, &less, NULL));
    ORDO_TRY(ordo_timeline_simulate(&twice, 1, costs, times, NULL));
    const double factor = (double)(tasks - times->tasks) / (double)(times->tasks - less.tasks);
    times->makespan = extend(less.makespan, times->makespan, factor);
    times->busy = extend(less.busy, times->busy, factor);
    times->stall = extend(less.stall, times->stall, factor);
    times->tail = extend(less.tail, times->tail, factor);
    times->tasks = tasks;
    return ORDO_OK;
}
