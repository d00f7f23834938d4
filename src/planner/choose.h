/* choose.h: fill a plan. What decides bits comes from the committed table or from explicit
 * options; the machine decides only what cannot touch a bit, and the prediction. */
#ifndef PLANNER_CHOOSE_H
#define PLANNER_CHOOSE_H

#include "ordo/machine.h"
#include "plan/plan.h"

/* `plan` holds a resolved problem and its dropout threshold, the rest zero. `machine` may be
 * NULL for the oracle. */
ordo_status ordo_plan_choose(ordo_plan *plan, const ordo_machine *machine,
                             const ordo_plan_options *options);

/* Write plan->note: what was replaced, which levels fell, and why. */
void ordo_plan_annotate(ordo_plan *plan);

#endif
