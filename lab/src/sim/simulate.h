/* simulate.h: simulate runs of a plan on workers, in integer time.
 *
 * The simulation follows data, not a clock: a worker continues until it needs a turn that is not
 * done yet, parks on that query tile, and is woken by the turn before. Nothing else determines a
 * time, so the sequence in which workers are simulated does not matter. The one decision that
 * depends on time is which worker is free first. It is made when all workers are parked or free. A
 * parked worker then waits, directly or indirectly, for a unit that is not issued yet, so it cannot
 * become free before one that already is: the choice is exact. Units that are pinned, or dealt as
 * kernels deal those of cyclic orders (ordo_run_dealt()), have one worker each and wait for it.
 *
 * A step costs `compute`, or `compute_partial` if its tile is partly visible; an addition costs
 * `reduce`; `latency` passes between one addition and that of the next contributor. With overlap 0
 * a worker computes and adds alternately. With overlap D its additions run during the computation,
 * and up to D of them are pending. Memory holds the query tiles of the heads in flight, and the
 * workers. */
#ifndef SIM_SIMULATE_H
#define SIM_SIMULATE_H

#include <stdbool.h>

#include "ordo/status.h"
#include "plan/issue.h"
#include "sim/costs.h"

/* Results. Times are summed over the workers, except for the makespan. */
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

/* Simulate `count` runs in ticket order: first head class 0 of every run, then head class 1. All
 * runs must have the same workers and assignment. If `record` is not NULL, every step is recorded;
 * the caller frees record->steps. Returns ORDO_ERR_UNSUPPORTED if the runs deadlock on these
 * workers. */
ordo_status ordo_timeline_simulate(const ordo_run *runs, int32_t count, const ordo_costs *costs,
                                   ordo_times *times, ordo_record *record);

#endif
