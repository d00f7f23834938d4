/* random_costs.h: costs of a step for tests. */
#ifndef RANDOM_COSTS_H
#define RANDOM_COSTS_H

#include "check.h"
#include "sim/costs.h"

/* Costs of all kinds. */
static inline ordo_costs random_costs(uint64_t *seed)
{
    ordo_costs costs = { .compute = check_between(seed, 1, 9),
                         .reduce = check_between(seed, 1, 9),
                         .latency = check_between(seed, 0, 6),
                         .overlap = (int)check_between(seed, 0, 3),
                         .accumulators = (int)check_between(seed, 1, 3) };
    costs.compute_partial = check_between(seed, 0, 1) ? costs.compute : check_between(seed, 1, 9);
    return costs;
}

#endif
