/* attention.c: execute a plan: check the call once, then hand it to the backend. */
#include "ordo/attention.h"

#include "api/blank.h"
#include "api/cuda_pass.h"
#include "api/segments.h"
#include "base/environment.h"
#include "base/status.h"
#include "cpu/pass.h"
#include "emulator/run.h"
#include "plan/plan.h"
#include "plan/workspace.h"
#include "ref/attention.h"

#include <inttypes.h>

/* What a backend brings; NULL passes: no backend at all. */
typedef struct backend {
    bool host; /* its tensors are in host memory */
    ordo_pass_run *forward, *backward;
    const char *(*why_not)(void); /* "" if it can run here; NULL: it always can */
} backend;

/* The oracle has no tiles: all it needs of a plan is the problem. */
static ordo_status ref_forward(const ordo_plan *plan, const ordo_call *call)
{
    return ordo_ref_forward(&plan->problem, call);
}

static ordo_status ref_backward(const ordo_plan *plan, const ordo_call *call)
{
    return ordo_ref_backward(&plan->problem, call);
}

static const char *no_backend(void)
{
    return "backend default: expected ref, cpu, cuda or emulator";
}

static const backend backends[] = {
    [ORDO_BACKEND_DEFAULT] = { false, NULL, NULL, no_backend },
    [ORDO_BACKEND_REF] = { true, ref_forward, ref_backward, NULL },
    [ORDO_BACKEND_CPU] = { true, ordo_cpu_forward, ordo_cpu_backward, NULL },
    [ORDO_BACKEND_CUDA] = { false, ordo_cuda_forward, ordo_cuda_backward, ordo_cuda_why_not },
    [ORDO_BACKEND_EMULATOR] = { true, ordo_emulator_forward, ordo_emulator_backward, NULL },
};

static const backend *backend_at(ordo_backend which)
{
    const bool known = (unsigned)which < sizeof backends / sizeof backends[0];
    return &backends[known ? which : ORDO_BACKEND_DEFAULT];
}

bool ordo_backend_available(ordo_backend which, const char **why_not)
{
    const backend *b = backend_at(which);
    const char *why = b->why_not ? b->why_not() : "";
    if (why_not)
        *why_not = why;
    return !*why;
}

/* Parts of a sequence whose sums are carried: what the plan must allow. */
static ordo_status check_carry(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const int64_t row0 = p->shard.row0, rows = plan->backward_tile.q;
    if (plan->backend == ORDO_BACKEND_REF) /* which has no other reason */
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "carry: backend ref sums in fp64, which f32 sums cannot continue; "
                         "expected backend cpu or cuda");
    if (!ordo_plan_carries(plan))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "carry, order %s: expected ascending, descending or spt, whose rows come "
                         "in one order",
                         ordo_order_name(plan->order_asked));
    if (row0 % rows != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "shard.row0 %" PRId64 ": expected a multiple of %" PRId64
                         ", the rows of a backward tile, with carry",
                         row0, rows);
    if (p->q_len % rows != 0 && row0 + p->q_len != p->shard.q_total)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "q_len %" PRId64 ": expected a multiple of %" PRId64
                         ", the rows of a backward tile, or the rest up to shard.q_total %" PRId64
                         ", with carry",
                         p->q_len, rows, p->shard.q_total);
    return ORDO_OK;
}

/* Rows that see a sink and no key: on a device no kernel would run. */
static ordo_status check_sink(const backend *b, const ordo_problem *p, const ordo_call *call)
{
    const bool rows = p->batch > 0 && (p->layout == ORDO_PACKED ? p->total_q : p->q_len) > 0;
    if (call->sink && !b->host && rows && ordo_problem_empty(p))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "sink given, kv_len %" PRId64
                         ": backend cuda expects keys; backend cpu runs it",
                         p->kv_len);
    return ORDO_OK;
}

/* What a call must not give to a plan that runs in segments of rows. */
static ordo_status check_segmented(const ordo_plan *plan, const ordo_call *call)
{
    if (call->keep_bits)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "keep_bits given: expected NULL, because this plan makes the bits of its "
                         "%" PRId64 " segments",
                         plan->segments);
    if (call->dsink || call->dsink_parts)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "dsink given: expected NULL, because this plan runs %" PRId64
                         " segments of rows, and dsink is a sum over all of them",
                         plan->segments);
    return ORDO_OK;
}

/* Bytes of workspace that a pass needs. Not by ordo_plan_query(), whose other answers cost more
 * than a small pass. */
static uint64_t workspace_of(const ordo_plan *plan, ordo_pass pass)
{
    uint64_t bytes = 0;
    if (pass == ORDO_BACKWARD)
        return ordo_plan_workspace(plan);
    (void)ordo_plan_forward_bytes(plan, &bytes); /* fits: the plan is legal */
    return bytes;
}

static ordo_status run_pass(const ordo_plan *plan, ordo_pass pass, const ordo_call *call)
{
    ordo_call checked;
    ordo_block_mask mask;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    const ordo_problem *problem = &plan->problem;
    const backend *b = backend_at(plan->backend);
    const bool forward = pass == ORDO_FORWARD;
    if (!b->forward)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "%s", b->why_not());
    ORDO_TRY(
        ordo_call_check(problem, pass, b->host, workspace_of(plan, pass), call, &checked, &mask));
    ORDO_TRY(check_sink(b, problem, &checked));
    if (plan->segments > 0)
        ORDO_TRY(check_segmented(plan, &checked));
    if (!forward && checked.carry)
        ORDO_TRY(check_carry(plan));
    if (ordo_problem_empty(problem))
        return ordo_blank_all(problem, pass, b->host, &checked);
    ordo_pass_run *const run = forward ? b->forward : b->backward;
    if (plan->segments > 0)
        return ordo_segments_run(plan, pass, run, &checked);
    ORDO_TRY(run(plan, &checked));
    return b->host ? ordo_blank_behind(problem, pass, &checked) : ORDO_OK;
}

static ordo_status run_combine(const ordo_plan *plan, const ordo_combine *combine)
{
    ordo_combine checked;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    const ordo_problem *p = &plan->problem;
    ORDO_TRY(ordo_combine_check(p, combine, &checked));
    if ((p->layout == ORDO_PACKED ? p->total_q : p->batch * p->q_len) == 0)
        return ORDO_OK; /* no row */
    if (plan->backend == ORDO_BACKEND_REF)
        return ordo_ref_combine_call(&plan->problem, &checked);
    if (plan->backend != ORDO_BACKEND_CUDA) /* which has the same bits */
        return ordo_cpu_combine(plan, &checked);
    return ordo_cuda_combine_run(plan, &checked);
}

ordo_status ordo_attention_combine(const ordo_plan *plan, const ordo_combine *combine)
{
    ORDO_DEFAULT_ENVIRONMENT;
    return run_combine(plan, combine);
}

ordo_status ordo_attention_forward(const ordo_plan *plan, const ordo_call *call)
{
    ORDO_DEFAULT_ENVIRONMENT;
    return run_pass(plan, ORDO_FORWARD, call);
}

ordo_status ordo_attention_backward(const ordo_plan *plan, const ordo_call *call)
{
    ORDO_DEFAULT_ENVIRONMENT;
    return run_pass(plan, ORDO_BACKWARD, call);
}
