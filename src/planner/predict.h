/* predict.h: how long a plan's backward pass should take on a machine. */
#ifndef PLANNER_PREDICT_H
#define PLANNER_PREDICT_H

#include "base/for_lab.h"
#include "ordo/machine.h"
#include "plan/plan.h"

/* Sequences of maximal length that the problem is priced as: the batch; of a packed one as many as
 * its rows fill, and no more than it has, for rows may lie behind the last end. */
ORDO_FOR_LAB int64_t ordo_priced_sequences(const ordo_problem *problem);

/* Makespan of the backward pass in ns: the timeline of the plan's steps at the machine's costs. -1
 * if the machine gives no rates, or the plan is too large to simulate. */
int64_t ordo_plan_predict(const ordo_plan *plan, const ordo_machine *machine);

/* What a price needs to know of the backward pass. */
typedef struct ordo_plan_work {
    double utilization; /* steps spread evenly over the workers, over the makespan */
    double scores;      /* of all live tiles */
} ordo_plan_work;

/* From the same timeline. ORDO_ERR_UNSUPPORTED for the oracle's plans, for machines without rates,
 * and for plans too large to simulate. */
ORDO_FOR_LAB ordo_status ordo_plan_measure(const ordo_plan *plan, const ordo_machine *machine,
                                           ordo_plan_work *work);

#endif
