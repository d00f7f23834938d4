/* predict.c: see the header. */
#include "planner/predict.h"

#include <math.h>

#include "model/makespan.h"
#include "model/step_cost.h"
#include "planner/replay.h"

enum { BUDGET = 1 << 19 }; /* tasks: about 20 ms */

int64_t ordo_plan_predict(const ordo_plan *plan, const ordo_machine *machine)
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
    ordo_bounds bounds;
    ordo_times times;
    bool exact;
    if (ordo_makespan_bounds(&run, 1, &clocks, &bounds) != ORDO_OK ||
        ordo_replay(&run, &clocks, bounds.tasks, BUDGET, &times, &exact) != ORDO_OK)
        return -1;
    return (int64_t)llround((double)times.makespan / ghz);
}
