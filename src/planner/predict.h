/* predict.h: how long a plan's backward pass should take on a machine. */
#ifndef PLANNER_PREDICT_H
#define PLANNER_PREDICT_H

#include "ordo/machine.h"
#include "plan/plan.h"

/* Makespan of the backward pass in ns: the timeline of the plan's steps at the machine's costs.
 * Packed batches count as many sequences of maximal length as their rows fill. -1 if the
 * machine gives no rates, or the plan is too large to simulate. */
int64_t ordo_plan_predict(const ordo_plan *plan, const ordo_machine *machine);

/* Share of the backward makespan in which workers are busy, from the same timeline: the bound that
 * spreads all steps evenly over them, over the makespan. ORDO_ERR_UNSUPPORTED for the oracle's
 * plans, for machines without rates, and for plans too large to simulate. */
ordo_status ordo_plan_utilization(const ordo_plan *plan, const ordo_machine *machine,
                                  double *utilization);

#endif
