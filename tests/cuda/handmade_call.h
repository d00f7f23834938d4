/* handmade_call.h: a pass of a plan on the device, by the kernels linked into the test. */
#ifndef TESTS_CUDA_HANDMADE_CALL_H
#define TESTS_CUDA_HANDMADE_CALL_H

#include "handmade_pass.h"
extern "C" {
#include "api/call.h"
#include "api/cuda_pass.h"
#include "plan/plan.h"
}

/* Ends the program if the call is refused or fails. */
static inline void run_call(const ordo_plan *plan, ordo_pass which, const ordo_call &call)
{
    ordo_call checked;
    ordo_block_mask mask;
    ordo_cuda_pass pass;
    must_ordo(ordo_call_check(&plan->problem, which, false, ordo_plan_workspace(plan), &call,
                              &checked, &mask),
              "call");
    must_ordo(ordo_cuda_pass_make(plan, which, &checked, &pass), "pass");
    must_ordo(which == ORDO_FORWARD ? ordo_cuda_launch_forward(&pass)
                                    : ordo_cuda_launch_backward(&pass),
              ordo_cuda_why());
}

#endif
