/* gemm.c: what follows from the plan of a matrix product: its key and its promise. */
#include "plan/gemm.h"

#include <stdio.h>

enum { E4M3_REVISION = 1 };

void ordo_gemm_key(const ordo_gemm_plan *plan, char *text, size_t capacity)
{
    const bool e4m3 = plan->problem.dtype == ORDO_E4M3;
    snprintf(text, capacity, "gemm%s.%s.r%d/s%d", e4m3 ? "-e4m3" : "", plan->family->name,
             e4m3 ? E4M3_REVISION : plan->family->gemm_revision, plan->problem.sections);
}

unsigned ordo_gemm_promise(const ordo_gemm_plan *plan)
{
    (void)plan;
    return ORDO_PROMISE_REPEAT | ORDO_PROMISE_PORTABLE | ORDO_PROMISE_BATCH | ORDO_PROMISE_SPLIT;
}
