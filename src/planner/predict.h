/* predict.h: how well the backward pass of a plan uses its workers. */
#ifndef PLANNER_PREDICT_H
#define PLANNER_PREDICT_H

#include "ordo/machine.h"
#include "plan/plan.h"

/* Return the number of sequences of maximal length that predictions assume: the batch size; for a
 * packed batch as many as its rows fill, but no more than it has, since rows may follow the last
 * end. */
int64_t ordo_priced_sequences(const ordo_problem *problem);

/* Inputs of the cost model for the backward pass. */
typedef struct ordo_plan_work {
    double utilization; /* work spread evenly over the workers / makespan */
    double scores;      /* of all live tiles */
} ordo_plan_work;

/* Compute these from the timeline of the steps of the plan, with the costs of the machine. Returns
 * ORDO_ERR_UNSUPPORTED for plans of the backend ref, for machines without rates, and for plans too
 * large to simulate. */
ordo_status ordo_plan_measure(const ordo_plan *plan, const ordo_machine *machine,
                              ordo_plan_work *work);

#endif
