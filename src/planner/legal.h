/* legal.h: which plans may exist: those that a pass of their backend can run.
 *
 * Head sizes are the exception: a CUDA plan may have head sizes that only
 * ordo_attention_combine() can use, and then its passes refuse them. */
#ifndef PLANNER_LEGAL_H
#define PLANNER_LEGAL_H

#include "plan/plan.h"

/* Return ORDO_OK if the plan, wherever it comes from, is one that ordo_plan_choose() could have
 * made; else a status and a message that names the field, its value and what was expected. */
ordo_status ordo_plan_legal(const ordo_plan *plan);

/* The first part of it, for a plan whose problem, backend, family and revision are set: the
 * backend has kernels for the problem. Only then does the family have a row for it. */
ordo_status ordo_plan_legal_problem(const ordo_plan *plan);

/* The refusal of a plan whose backend has no family of its name; names those that it has. */
ordo_status ordo_plan_no_family(const ordo_plan *plan);

/* The tiles of the plan are in range; only then can a band be made of them. */
ordo_status ordo_plan_legal_tiles(const ordo_plan *plan);

/* The plan, whose order is set, may have segments: whether so many can be had is not checked. */
ordo_status ordo_plan_legal_segments(const ordo_plan *plan);

/* The order that runs when plan->order_asked is requested: symmetric needs a causal triangle, and
 * is replaced by shift or spt elsewhere. */
ordo_order ordo_plan_replaced_order(const ordo_plan *plan);

/* Largest section: all heads of the batch; 1 for an empty batch. */
int64_t ordo_plan_section_max(const ordo_problem *problem);

#endif
