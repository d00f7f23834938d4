/* price_plan.h: predicted times of both passes of a plan, and how it should make its keep bits. */
#ifndef PLANNER_PRICE_PLAN_H
#define PLANNER_PRICE_PLAN_H

#include "plan/plan.h"
#include "planner/price.h"

/* The problem of a plan as the model sees it: without its window and its packing. */
ORDO_FOR_LAB ordo_attention_shape ordo_plan_shape(const ordo_problem *problem);

/* Price a plan on the machine of `model`. Returns ORDO_ERR_UNSUPPORTED for plans of the backend
 * ref, for plans too large to simulate, and for a precision, rates or a generator that the model
 * does not know. */
ORDO_FOR_LAB ordo_status ordo_price_plan(const ordo_model *model, const ordo_plan *plan,
                                         ordo_plan_price *price);

/* Fill in what the plan says about its speed: predicted_ns, the time of the backward pass,
 * dropout_mode and keep_bits. predicted_ns is -1 and the mode the default if the machine is NULL or
 * states no rates, or if the plan is too large to simulate. */
void ordo_plan_predict(ordo_plan *plan, const ordo_machine *machine);

/* The mode of a plan whose speed is not known: fused, which needs no memory, where there is a
 * kernel that makes the bits. */
ordo_dropout_mode ordo_plan_default_mode(const ordo_plan *plan);

#endif
