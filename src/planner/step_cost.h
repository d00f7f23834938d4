/* step_cost.h: what one backward step of a plan costs on a machine, in clocks. */
#ifndef PLANNER_STEP_COST_H
#define PLANNER_STEP_COST_H

#include "ordo/machine.h"
#include "plan/costs.h"
#include "plan/plan.h"

/* Five products, one addition of the tile's dQ, one flag:
 *
 *   compute  2 Bq Bk (3 D + 2 Dv) / (mma_flop_per_clk_DTYPE * mma_efficiency)
 *   reduce   4 Bq D / reduce_bytes_per_clk
 *   latency  flag_latency_clk
 *
 * A GPU's store warps work behind its math warps, two additions deep; a CPU thread does both
 * by turns. Fails with ORDO_ERR_UNSUPPORTED if the machine does not give a rate. */
ordo_status ordo_step_cost(const ordo_plan *plan, const ordo_machine *machine, ordo_costs *clocks);

#endif
