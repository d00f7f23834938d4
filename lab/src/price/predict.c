/* predict.c: predicts the share of the workers' time that a backward pass uses. */
#include "price/predict.h"

#include "base/status.h"
#include "plan/sizes.h"
#include "price/step_cost.h"
#include "sim/makespan.h"
#include "sim/replay.h"

enum { BUDGET = 1 << 20 }; /* tasks: about 30 ms */

/* All sequences as one run. */
static ordo_run whole_run(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    return ordo_plan_run(plan, ordo_plan_sequences(p), p->q_len, p->kv_len);
}

ordo_status ordo_plan_measure(const ordo_plan *plan, const ordo_machine *machine,
                              ordo_plan_work *work)
{
    if (plan->backend == ORDO_BACKEND_REF)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "backend ref: the oracle has no workers to price");
    ordo_costs clocks;
    ORDO_TRY(ordo_step_cost(plan, machine, &clocks));
    const ordo_run run = whole_run(plan);
    ordo_bounds bounds;
    int64_t makespan;
    ORDO_TRY(ordo_replay_estimate(&run, &clocks, BUDGET, &makespan));
    ORDO_TRY(ordo_makespan_bounds(&run, 1, &clocks, &bounds));
    work->utilization = makespan > bounds.work ? (double)bounds.work / (double)makespan : 1;
    work->scores =
        (double)bounds.tasks * (double)plan->backward_tile.q * (double)plan->backward_tile.k;
    return ORDO_OK;
}
