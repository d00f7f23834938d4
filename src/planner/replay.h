/* replay.h: how long runs take: simulated, or extended from a simulation of a part. */
#ifndef PLANNER_REPLAY_H
#define PLANNER_REPLAY_H

#include "base/for_lab.h"
#include "planner/makespan.h"
#include "planner/timeline.h"

/* Tasks that may be simulated at once before a run is extended instead, and before it is
 * refused because not even two parts of it can be: about one second and three. */
enum { ORDO_REPLAY_BUDGET = 1 << 26, ORDO_REPLAY_LIMIT = 1 << 27 };

/* Simulate one run, whose bounds are given. Past `budget` tasks, simulate some heads and twice as
 * many, and extend by the difference: heads are alike, so the makespan grows evenly once the
 * workers are full. *exact says which. */
ORDO_FOR_LAB ordo_status ordo_replay(const ordo_run *run, const ordo_costs *costs,
                                     const ordo_bounds *bounds, uint64_t budget, ordo_times *times,
                                     bool *exact);

/* About how long a run takes, in the time that `budget` tasks take however large it is: simulated
 * or extended as above, and where a few heads are still too many, on a model of it at half the
 * scale, or a quarter, ... Within some percent for orders without groups. */
ORDO_FOR_LAB ordo_status ordo_replay_estimate(const ordo_run *run, const ordo_costs *costs,
                                              uint64_t budget, int64_t *makespan);

#endif
