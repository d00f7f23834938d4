/* replay.h: how long runs take: simulated, or extended from a simulation of fewer heads. */
#ifndef PLANNER_REPLAY_H
#define PLANNER_REPLAY_H

#include "sim/timeline.h"

/* Tasks that may be simulated at once before a run is extended instead, and before it is
 * refused because not even two of its heads can be. */
enum { ORDO_REPLAY_BUDGET = 1 << 26, ORDO_REPLAY_LIMIT = 1 << 30 };

/* Simulate one run of `tasks` tasks. Past `budget` tasks, simulate some heads and twice as many,
 * and extend by the difference: heads are alike, so the makespan grows evenly once the workers
 * are full. *exact says which. */
ordo_status ordo_replay(const ordo_run *run, const ordo_costs *costs, uint64_t tasks,
                        uint64_t budget, ordo_times *times, bool *exact);

#endif
