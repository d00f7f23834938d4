/* gemm.c: what follows from the plan of a matrix product: its key and its promise. */
#include "plan/gemm.h"

#include <stdio.h>

void ordo_gemm_key(const ordo_gemm_plan *plan, char *text, size_t capacity)
{
    snprintf(text, capacity, "gemm.%s.r%d/s%d", plan->family->name, plan->family->gemm_revision,
             plan->problem.sections);
}

unsigned ordo_gemm_promise(const ordo_gemm_plan *plan)
{
    (void)plan;
    return ORDO_PROMISE_REPEAT | ORDO_PROMISE_PORTABLE | ORDO_PROMISE_BATCH | ORDO_PROMISE_SPLIT;
}
