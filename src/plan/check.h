/* check.h: replay a run tile by tile and check that it follows the rules of a schedule. */
#ifndef PLAN_CHECK_H
#define PLAN_CHECK_H

#include "base/for_lab.h"
#include "plan/issue.h"

/* The number of live tile pairs of a run whose tiles are less than 2^62. */
uint64_t ordo_run_tasks(const ordo_run *run);

/* The effort of ordo_run_check() in tile pairs, each of which takes a few dozen ns. `tasks` is the
 * number of live tile pairs of the run. UINT64_MAX if the effort does not fit. */
ORDO_FOR_LAB uint64_t ordo_run_check_cost(const ordo_run *run, uint64_t tasks);

/* Check one head: every live pair is visited exactly once, and the turns of each query tile are
 * 0 .. k-1 without holes. Returns ORDO_ERR_INTERNAL with the first violation, or ORDO_ERR_MEMORY.
 * *pairs is increased by the number of pairs. */
ordo_status ordo_walk_check(const ordo_walk *walk, uint64_t *pairs);

/* Check every head, and that the run completes with the residency that it states: on as many
 * workers as chains must be resident together (one if none must), issued in ticket order, and on
 * the run's own workers and assignment. */
ORDO_FOR_LAB ordo_status ordo_run_check(const ordo_run *run, uint64_t *pairs);

#endif
