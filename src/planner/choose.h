/* choose.h: fill in a plan. What decides bits comes from the committed table or from explicit
 * options. The machine decides only what changes no bit. */
#ifndef PLANNER_CHOOSE_H
#define PLANNER_CHOOSE_H

#include "ordo/machine.h"
#include "plan/plan.h"

/* Fill in a plan that holds a resolved problem and its dropout threshold, and zeros otherwise.
 * `machine` may be NULL for the reference. Returns an error if the plan is not legal (legal.h). */
ordo_status ordo_plan_choose(ordo_plan *plan, const ordo_machine *machine,
                             const ordo_plan_options *options);

/* Write plan->note: what was replaced, which levels are not kept, and why. */
void ordo_plan_annotate(ordo_plan *plan);

#endif
