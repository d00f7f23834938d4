/* cuda_gemm.c: a checked matrix product of a cuda plan, as the module takes it. */
#include "api/cuda_gemm.h"

#include "base/status.h"
#include "cuda/pass/gemm.h"

uint64_t ordo_cuda_gemm_workspace(const ordo_gemm_plan *plan)
{
    const ordo_gemm_problem *p = &plan->problem;
    return (uint64_t)ordo_gemm_workspace(p->m, p->n, p->sections);
}

/* The module has no kernels of matrix products yet. */
ordo_status ordo_cuda_gemm_run(const ordo_gemm_plan *plan, const ordo_gemm_call *call)
{
    (void)plan, (void)call;
    return ordo_fail(ORDO_ERR_UNSUPPORTED,
                     "backend cuda: this module has no matrix products; backends cpu and emulator "
                     "have them");
}
