/* timeline.h: replay runs of a plan on workers, in integer time.
 *
 * The simulation follows data, not a clock: a worker goes on until it needs a turn that is not
 * done yet, parks on that query tile, and is woken by the turn before it. Nothing else decides
 * a time, so the sequence in which workers are looked at cannot. The one decision that needs
 * time is which worker is free first; it is taken when all others are parked or free. A parked
 * worker then waits, directly or not, for a unit not handed out yet, so it cannot become free
 * before one that already is: the choice is exact.
 *
 * Costs: `compute` a step (`compute_partial` where the mask cuts the tile), `reduce` an
 * addition, `latency` between one addition and the next contributor's. With overlap 0 a worker
 * computes and reduces by turns; with overlap D its additions run behind the computation, up
 * to D of them not yet done. Memory: query tiles of the heads in flight, and workers. */
#ifndef PLANNER_TIMELINE_H
#define PLANNER_TIMELINE_H

#include <stdbool.h>

#include "base/for_lab.h"
#include "ordo/status.h"
#include "plan/costs.h"
#include "plan/issue.h"

/* What came out. Times are worker time summed over workers, but for the makespan. */
typedef struct ordo_times {
    uint64_t tasks;
    int64_t makespan, busy, stall, startup, tail;
} ordo_times;

/* One step as recorded: compute [begin, ready), waiting [ready, start), addition [start, end). The
 * steps it waited for are indices into the record; -1 = none. */
typedef struct ordo_step {
    int32_t worker, head, key, query, turn;
    int64_t begin, ready, start, end;
    int64_t waited_for; /* the turn just before, at the same query tile */
    int64_t before;     /* the worker's previous step */
    int64_t buffered;   /* overlap: the step whose addition frees the buffer */
} ordo_step;

typedef struct ordo_record {
    ordo_step *steps;
    uint64_t count, capacity;
} ordo_record;

/* Simulate `count` runs, one after the other in ticket order: first class 0 of every run, then
 * the tails. All runs name the same workers and assignment. `record` may be NULL; the caller
 * frees record->steps. ORDO_ERR_UNSUPPORTED if the runs cannot proceed on these workers. */
ORDO_FOR_LAB ordo_status ordo_timeline_simulate(const ordo_run *runs, int32_t count,
                                                const ordo_costs *costs, ordo_times *times,
                                                ordo_record *record);

#endif
