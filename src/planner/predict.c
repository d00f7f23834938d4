/* predict.c: see the header. */
#include "planner/predict.h"

#include <math.h>
#include <stdio.h>

#include "base/status.h"
#include "model/makespan.h"
#include "model/step_cost.h"
#include "planner/replay.h"

enum { BUDGET = 1 << 20 }; /* tasks: about 30 ms */

static int64_t predict(const ordo_plan *plan, const ordo_machine *machine)
{
    const ordo_problem *p = &plan->problem;
    ordo_costs clocks;
    double ghz;
    if (!machine || plan->backend == ORDO_BACKEND_REF ||
        ordo_step_cost(plan, machine, &clocks) != ORDO_OK ||
        ordo_machine_get(machine, "clock_ghz", &ghz) != ORDO_OK)
        return -1;
    int64_t sequences = p->batch;
    if (p->layout == ORDO_PACKED)
        sequences = (p->total_q + p->q_len - 1) / p->q_len;
    const ordo_run run = ordo_plan_run(plan, sequences, p->q_len, p->kv_len);
    int64_t makespan;
    if (ordo_replay_estimate(&run, &clocks, BUDGET, &makespan) != ORDO_OK)
        return -1;
    return llround((double)makespan / ghz);
}

int64_t ordo_plan_predict(const ordo_plan *plan, const ordo_machine *machine)
{
    char said[512];
    snprintf(said, sizeof said, "%s", ordo_last_error());
    const int64_t ns = predict(plan, machine);
    if (ns < 0)
        ordo_set_error("%s", said); /* a plan without a prediction is no failure */
    return ns;
}
