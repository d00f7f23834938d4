/* price_plan.h: predicted times of both passes of a plan, and how it should make its keep bits. */
#ifndef PRICE_PRICE_PLAN_H
#define PRICE_PRICE_PLAN_H

#include "plan/plan.h"
#include "price/price.h"

/* The problem of a plan as the model sees it: without its window and its packing. */
ordo_attention_shape ordo_plan_shape(const ordo_problem *problem);

/* Price a plan on the machine of `model`. Returns ORDO_ERR_UNSUPPORTED for plans of the backend
 * ref, for plans too large to simulate, and for a precision, rates or a generator that the model
 * does not know. */
ordo_status ordo_price_plan(const ordo_model *model, const ordo_plan *plan, ordo_plan_price *price);

#endif
