/* cuda_gemm.c: a checked matrix product of a cuda plan, as the module takes it. */
#include "api/cuda_gemm.h"

#include "api/cuda_module.h"
#include "api/cuda_pass.h"
#include "base/status.h"
#include "cuda/pass/gemm.h"

uint64_t ordo_cuda_gemm_workspace(const ordo_gemm_plan *plan)
{
    const ordo_gemm_problem *p = &plan->problem;
    return (uint64_t)ordo_gemm_workspace(p->m, p->n, p->sections);
}

ordo_status ordo_cuda_gemm_run(const ordo_gemm_plan *plan, const ordo_gemm_call *call)
{
    const ordo_gemm_problem *p = &plan->problem;
    const ordo_family *family = plan->family;
    const ordo_cuda_module *module = NULL;
    const ordo_cuda_gemm gemm = {
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .sections = p->sections,
        .in = p->dtype,
        .out = p->c_dtype,
        .a = call->a.data,
        .b = call->b.data,
        .a_stride = call->a.stride,
        .b_stride = call->b.stride,
        .a_rows_are_k = p->a_transposed,
        .b_rows_are_k = !p->b_transposed,
        .add = p->add,
        .c = call->c.data,
        .c_stride = call->c.stride,
        .bias = call->bias,
        .scale = call->scale,
        .workspace = call->workspace,
        .stream = call->stream,
        .capability = family->capability,
        .kernels = (int32_t)(family->kernels & -family->kernels),
    };
    ORDO_TRY(ordo_cuda_ready());
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    if (p->m == 0 || p->n == 0)
        return ORDO_OK;
    return ordo_cuda_answer(module, module->gemm(&gemm));
}
