/* check.h: replay a run tile by tile and say whether it keeps the rules of a schedule. */
#ifndef PLAN_CHECK_H
#define PLAN_CHECK_H

#include "base/for_lab.h"
#include "plan/issue.h"

/* How much there is to look at, in tile pairs: a few dozen ns each. `tasks` are the live ones of
 * the run. UINT64_MAX if it does not fit. */
ORDO_FOR_LAB uint64_t ordo_run_check_cost(const ordo_run *run, uint64_t tasks);

/* Check one head: every live pair is visited exactly once, and the turns of each query tile are
 * 0 .. k-1 without holes. ORDO_ERR_INTERNAL with the first violation; ORDO_ERR_MEMORY. *pairs
 * grows by the pairs seen. */
ordo_status ordo_walk_check(const ordo_walk *walk, uint64_t *pairs);

/* Check every head, and that the run completes with the residency it states: on as many
 * workers as must be resident together (one if none), handed out in ticket order, and on the
 * run's own workers and assignment. */
ORDO_FOR_LAB ordo_status ordo_run_check(const ordo_run *run, uint64_t *pairs);

#endif
