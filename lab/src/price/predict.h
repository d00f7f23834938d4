/* predict.h: how well the backward pass of a plan uses its workers. */
#ifndef PRICE_PREDICT_H
#define PRICE_PREDICT_H

#include "ordo/machine.h"
#include "plan/plan.h"

/* Inputs of the cost model for the backward pass. */
typedef struct ordo_plan_work {
    double utilization; /* work spread evenly over the workers / makespan */
    double scores;      /* scores of all live tiles */
} ordo_plan_work;

/* Compute these from the timeline of the steps of the plan, with the costs of the machine. Returns
 * ORDO_ERR_UNSUPPORTED for plans of the backend ref, for machines without rates, and for plans too
 * large to simulate. */
ordo_status ordo_plan_measure(const ordo_plan *plan, const ordo_machine *machine,
                              ordo_plan_work *work);

#endif
