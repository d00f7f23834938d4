/* step_cost.c: computes the clocks of one backward step from the rates of the machine. */
#include "price/step_cost.h"

#include <math.h>

#include "base/status.h"

static int64_t whole(double clocks)
{
    return clocks < 1 ? 1 : (int64_t)llround(clocks);
}

ordo_status ordo_step_cost(const ordo_plan *plan, const ordo_machine *machine, ordo_costs *clocks)
{
    static const char *const rates[] = { "mma_flop_per_clk_f32", "mma_flop_per_clk_bf16",
                                         "mma_flop_per_clk_f16" };
    const ordo_problem *p = &plan->problem;
    double flop_per_clk, efficiency, bytes_per_clk, flag;
    ORDO_TRY(ordo_machine_get(machine, rates[p->dtype], &flop_per_clk));
    ORDO_TRY(ordo_machine_get(machine, "mma_efficiency", &efficiency));
    ORDO_TRY(ordo_machine_get(machine, "reduce_bytes_per_clk", &bytes_per_clk));
    ORDO_TRY(ordo_machine_get(machine, "flag_latency_clk", &flag));
    const double rows = (double)plan->backward_tile.q, columns = (double)plan->backward_tile.k;
    const double dims = 3 * (double)p->head_dim + 2 * (double)p->v_head_dim;
    const int64_t compute = whole(2 * rows * columns * dims / (flop_per_clk * efficiency));
    *clocks = (ordo_costs) {
        .compute = compute,
        .compute_partial = compute,
        .reduce = whole(4 * rows * (double)p->head_dim / bytes_per_clk),
        .latency = (int64_t)llround(flag),
        .overlap = ordo_plan_of_kernels(plan) ? 2 : 0,
        .accumulators = (int32_t)plan->accumulators,
    };
    return ORDO_OK;
}
