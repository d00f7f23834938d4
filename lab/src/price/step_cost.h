/* step_cost.h: the cost of one backward step of a plan on a machine, in clocks. */
#ifndef PRICE_STEP_COST_H
#define PRICE_STEP_COST_H

#include "ordo/machine.h"
#include "plan/plan.h"
#include "sim/costs.h"

/* Write the costs of a step: five products, one addition to the tile's dQ, one flag.
 *
 *   compute  2 Bq Bk (3 D + 2 Dv) / (mma_flop_per_clk_DTYPE * mma_efficiency)
 *   reduce   4 Bq D / reduce_bytes_per_clk
 *   latency  flag_latency_clk
 *
 * On a GPU up to two additions run while later steps compute; a CPU thread computes and adds
 * alternately. Returns ORDO_ERR_UNSUPPORTED if the machine does not state a rate. */
ordo_status ordo_step_cost(const ordo_plan *plan, const ordo_machine *machine, ordo_costs *clocks);

#endif
