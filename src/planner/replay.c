/* replay.c: see the header. */
#include "planner/replay.h"

#include <math.h>

#include "base/status.h"

enum { TILES_MAX = 1 << 22 }; /* both sides: what ordo_makespan_bounds() counts in some 10 ms */

/* Parts of a run that are alike: sequences, or of a single one heads, in fours so that every
 * class of head keeps its share. */
static int32_t parts_of(const ordo_run *run)
{
    return run->sequences > 1 ? run->sequences : run->kv_heads / 4;
}

static ordo_run first_parts(const ordo_run *run, int32_t parts)
{
    ordo_run part = *run;
    if (run->sequences > 1)
        part.sequences = parts;
    else
        part.kv_heads = 4 * parts;
    return part;
}

static uint64_t effort_of(const ordo_run *run, uint64_t tasks)
{
    return tasks + (uint64_t)ordo_run_tickets(run, 0) + (uint64_t)ordo_run_tickets(run, 1);
}

/* Effort of the smallest simulation that says how long the run takes: two of its parts, or all
 * of it where there are too few to leave any out. */
static uint64_t least_effort(const ordo_run *run, uint64_t effort)
{
    const int32_t parts = parts_of(run);
    return parts < 4 ? effort : 2 * (effort / (uint64_t)parts + 1);
}

static double heads_of(const ordo_run *run)
{
    return (double)run->sequences * (double)run->kv_heads;
}

/* Simulate `half` parts and twice as many; every further head adds what those of the second half
 * did, but no schedule is shorter than the bounds. */
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
    /* Start-up and tail come once, however many heads there are; all other idle time is stall. */
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
    if (!*exact)
        return extend(run, costs, bounds, budget > least ? (int32_t)(budget / least) : 1, times);
    if (effort <= budget || effort <= ORDO_REPLAY_LIMIT)
        return ordo_timeline_simulate(run, 1, costs, times, NULL);
    return ordo_fail(ORDO_ERR_UNSUPPORTED,
                     "%llu tile pairs: too many to simulate, and too few equal heads to extend "
                     "from",
                     (unsigned long long)bounds->tasks);
}

ordo_status ordo_replay_estimate(const ordo_run *run, const ordo_costs *costs, uint64_t budget,
                                 int64_t *makespan)
{
    ordo_run rough = *run;
    int32_t *const bq = &rough.band.bq, *const bk = &rough.band.bk;
    int64_t nq = ordo_band_query_tiles(&run->band), nk = ordo_band_key_tiles(&run->band);
    if (nq + nk > TILES_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "%lld x %lld tiles: too many to simulate",
                         (long long)nq, (long long)nk);
    ordo_bounds fine, bounds;
    ORDO_TRY(ordo_makespan_bounds(run, 1, costs, &fine));
    bounds = fine;
    while (least_effort(&rough, effort_of(&rough, bounds.tasks)) > budget && nq * nk > 1) {
        *bq *= nq > 1 ? 2 : 1;
        *bk *= nk > 1 ? 2 : 1;
        nq = ordo_band_query_tiles(&rough.band);
        nk = ordo_band_key_tiles(&rough.band);
        ORDO_TRY(ordo_makespan_bounds(&rough, 1, costs, &bounds));
    }
    ordo_times times;
    bool exact;
    ORDO_TRY(ordo_replay(&rough, costs, &bounds, budget, &times, &exact));
    *makespan = times.makespan;
    if (rough.band.bq == run->band.bq && rough.band.bk == run->band.bk)
        return ORDO_OK;
    const double longer = bounds.chain > 0 ? (double)fine.chain / (double)bounds.chain : 1;
    *makespan = fine.work + llround((double)(times.makespan - bounds.work) * longer);
    const int64_t least = ordo_bounds_most(&fine);
    *makespan = *makespan > least ? *makespan : least;
    return ORDO_OK;
}
