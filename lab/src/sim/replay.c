/* replay.c: simulates the makespan of a run, or extrapolates it from a part of the run. */
#include "sim/replay.h"

#include <math.h>

#include "base/status.h"

enum {
    TILES_MAX = 1 << 22
}; /* tiles along both sides, which ordo_makespan_bounds() counts in about 10 ms */

/* The equal parts of a run: its sequences or, for one or very large ones, the heads of the first,
 * in groups of four so that every head class keeps its share. */
static bool by_heads(const ordo_run *run)
{
    return run->sequences == 1 || run->kv_heads >= 1 << 12;
}

static int32_t parts_of(const ordo_run *run)
{
    return by_heads(run) ? run->kv_heads / 4 : run->sequences;
}

static ordo_run first_parts(const ordo_run *run, int32_t parts)
{
    ordo_run part = *run;
    part.sequences = by_heads(run) ? 1 : parts;
    part.kv_heads = by_heads(run) ? 4 * parts : run->kv_heads;
    return part;
}

static int64_t tiles_of(const ordo_run *run) /* along both sides */
{
    return (int64_t)ordo_band_query_tiles(&run->band) + ordo_band_key_tiles(&run->band);
}

/* Effort in tasks; issuing a chain takes about as long as four tasks. */
static uint64_t effort_of(const ordo_run *run, uint64_t tasks)
{
    return tasks + 4 * (uint64_t)(ordo_run_tickets(run, 0) + ordo_run_tickets(run, 1));
}

/* Effort of the smallest sufficient simulation: two parts of the run, or all of it if there are too
 * few parts to leave any out. */
static uint64_t least_effort(const ordo_run *run, uint64_t effort)
{
    const uint64_t parts = (uint64_t)parts_of(run);
    const uint64_t all = by_heads(run) ? parts * (uint64_t)run->sequences : parts;
    return parts < 4 ? effort : 2 * (effort / all + 1);
}

static double heads_of(const ordo_run *run)
{
    return (double)run->sequences * (double)run->kv_heads;
}

/* Simulate `half` parts and twice as many. Every further part adds as much as one of the second
 * half; the result is at least the lower bounds. */
static ordo_status extend(const ordo_run *run, const ordo_costs *costs, const ordo_bounds *bounds,
                          int32_t half, ordo_times *times)
{
    const ordo_run part = first_parts(run, half), twice = first_parts(run, 2 * half);
    ordo_times less;
    ORDO_TRY(ordo_timeline_simulate(&part, 1, costs, &less, NULL));
    ORDO_TRY(ordo_timeline_simulate(&twice, 1, costs, times, NULL));
    const double factor = (heads_of(run) - heads_of(&twice)) / (heads_of(&twice) - heads_of(&part));
    times->makespan += llround((double)(times->makespan - less.makespan) * factor);
    times->busy += llround((double)(times->busy - less.busy) * factor);
    times->tasks = bounds->tasks;
    const int64_t least = ordo_bounds_most(bounds);
    times->makespan = times->makespan > least ? times->makespan : least;
    /* Start-up and tail occur once, whatever the number of heads; all other idle time is stall. */
    const int64_t idle = run->workers * times->makespan - times->busy;
    times->tail = times->tail < idle ? times->tail : idle;
    times->stall = idle - times->tail;
    times->startup = times->startup < times->stall ? times->startup : times->stall;
    return ORDO_OK;
}

ordo_status ordo_replay(const ordo_run *run, const ordo_costs *costs, const ordo_bounds *bounds,
                        uint64_t budget, ordo_times *times, bool *exact)
{
    const uint64_t effort = effort_of(run, bounds->tasks), least = least_effort(run, effort);
    *exact = effort <= budget || parts_of(run) < 4 || least > ORDO_REPLAY_LIMIT;
    if (!*exact) {
        const int64_t fit = budget > least ? (int64_t)(budget / least) : 1;
        const int32_t most = parts_of(run) / 2;
        return extend(run, costs, bounds, fit < most ? (int32_t)fit : most, times);
    }
    if (effort <= budget || effort <= ORDO_REPLAY_LIMIT)
        return ordo_timeline_simulate(run, 1, costs, times, NULL);
    return ordo_fail(ORDO_ERR_UNSUPPORTED,
                     "%llu tile pairs: too many to simulate, and too few equal heads to extend "
                     "from",
                     (unsigned long long)bounds->tasks);
}

/* The run at half the scale: half the tiles per side, half the workers, half the group size. A
 * chain then has half the steps and half the neighbours, and a worker half the chains, so that all
 * times are halved. */
static ordo_run half_scale(const ordo_run *run)
{
    ordo_run half = *run;
    half.band.bq *= ordo_band_query_tiles(&run->band) > 1 ? 2 : 1;
    half.band.bk *= ordo_band_key_tiles(&run->band) > 1 ? 2 : 1;
    half.workers = (run->workers + 1) / 2;
    half.group = run->group > 1 ? run->group / 2 : run->group;
    return half;
}

ordo_status ordo_replay_estimate(const ordo_run *run, const ordo_costs *costs, uint64_t budget,
                                 int64_t *makespan)
{
    if (tiles_of(run) > TILES_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "%lld tiles per head: too many to simulate",
                         (long long)tiles_of(run));
    ordo_bounds bounds, fewer;
    ORDO_TRY(ordo_makespan_bounds(run, 1, costs, &bounds));
    ordo_run model = *run;
    fewer = bounds;
    if (costs->live) /* lists have one scale */
        budget = ORDO_REPLAY_BUDGET;
    while (!costs->live && least_effort(&model, effort_of(&model, fewer.tasks)) > budget &&
           tiles_of(&model) > 2) {
        model = half_scale(&model);
        ORDO_TRY(ordo_makespan_bounds(&model, 1, costs, &fewer));
    }
    if (least_effort(&model, effort_of(&model, fewer.tasks)) > 8 * budget)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "%d query heads per key head: too many to simulate",
                         run->group_heads);
    ordo_times times;
    bool exact;
    ORDO_TRY(ordo_replay(&model, costs, &fewer, budget, &times, &exact));
    *makespan = times.makespan;
    if (fewer.tasks == bounds.tasks)
        return ORDO_OK;
    const int64_t least = ordo_bounds_most(&bounds);
    *makespan = llround((double)times.makespan * ((double)bounds.work / (double)fewer.work));
    *makespan = *makespan > least ? *makespan : least;
    return ORDO_OK;
}
