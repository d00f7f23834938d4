/* cuda_combine.c: a checked combination of a cuda plan, as the module takes it. */
#include "api/cuda_module.h"
#include "api/cuda_pass.h"
#include "base/status.h"

#include <inttypes.h>

enum { WORKSPACE_ALIGN = 256 };

static ordo_status check_workspace(const ordo_combine *c)
{
    const size_t needed = (size_t)c->parts * sizeof(ordo_cuda_part);
    if (c->parts <= ORDO_COMBINE_FEW)
        return ORDO_OK;
    if (!c->workspace || c->workspace_bytes < needed)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "workspace_bytes %zu: backend cuda expects at least %zu for %" PRId64
                         " parts; up to %d need none",
                         c->workspace ? c->workspace_bytes : 0, needed, c->parts, ORDO_COMBINE_FEW);
    return ordo_check_aligned("workspace", c->workspace, WORKSPACE_ALIGN);
}

ordo_status ordo_cuda_combine_run(const ordo_plan *plan, const ordo_combine *c)
{
    const ordo_problem *p = &plan->problem;
    const bool packed = p->layout == ORDO_PACKED;
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(check_workspace(c));
    const ordo_cuda_combine combine = {
        .parts = c->parts,
        .o_parts = c->o_parts,
        .lse_parts = c->lse_parts,
        .table = c->workspace,
        .sequences = packed ? 1 : p->batch,
        .heads = p->heads,
        .rows = packed ? p->total_q : p->q_len,
        .dim = (int32_t)p->v_head_dim,
        .f16 = p->dtype == ORDO_F16,
        .o = c->o,
        .lse = c->lse,
        .stream = c->stream,
    };
    ORDO_TRY(ordo_cuda_ready());
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return ordo_cuda_answer(module, module->combine(&combine));
}
