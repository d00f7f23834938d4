/* replay.h: the makespan of runs, simulated, or extrapolated from the simulation of a part. */
#ifndef SIM_REPLAY_H
#define SIM_REPLAY_H

#include "sim/makespan.h"
#include "sim/simulate.h"

/* The number of tasks up to which a run is simulated and not extrapolated, and up to which two
 * parts of it are simulated before it is refused: about one second and three. */
enum { ORDO_REPLAY_BUDGET = 1 << 26, ORDO_REPLAY_LIMIT = 1 << 27 };

/* Simulate one run with the given bounds. If it has more than `budget` tasks, simulate some heads
 * and twice as many and extrapolate linearly: heads are alike, so the makespan grows evenly once
 * all workers are busy. *exact tells whether all of the run was simulated. */
ordo_status ordo_replay(const ordo_run *run, const ordo_costs *costs, const ordo_bounds *bounds,
                        uint64_t budget, ordo_times *times, bool *exact);

/* Estimate the makespan of a run within the effort of `budget` tasks, however large it is:
 * simulated or extrapolated as above and, if a few heads are still too many, on the run at half the
 * scale, or a quarter, ... The error is some percent for orders without groups. */
ordo_status ordo_replay_estimate(const ordo_run *run, const ordo_costs *costs, uint64_t budget,
                                 int64_t *makespan);

#endif
