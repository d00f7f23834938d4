/* makespan.h: bounds and closed forms of the makespan of a schedule, without simulation. */
#ifndef SIM_MAKESPAN_H
#define SIM_MAKESPAN_H

#include "ordo/status.h"
#include "plan/issue.h"
#include "sim/costs.h"

/* Lower bounds: no schedule of these runs on these workers is shorter than any of the three. */
typedef struct ordo_bounds {
    uint64_t tasks; /* live tile pairs */
    int64_t work;   /* all of them spread evenly over the workers */
    int64_t chain;  /* the longest chain, which one worker runs alone */
    int64_t turns;  /* the longest queue of contributors at one accumulator */
} ordo_bounds;

static inline int64_t ordo_bounds_most(const ordo_bounds *bounds)
{
    const int64_t most = bounds->work > bounds->chain ? bounds->work : bounds->chain;
    return most > bounds->turns ? most : bounds->turns;
}

/* Compute the bounds of `count` runs. Returns ORDO_ERR_OVERFLOW if the sum of all costs is too
 * large. */
ordo_status ordo_makespan_bounds(const ordo_run *runs, int32_t count, const ordo_costs *costs,
                                 ordo_bounds *bounds);

/* Return the exact makespan if a formula is known, else -1. Formulas are known for one run with
 * equal numbers of key tiles, query tiles and workers, a full or causal mask, and the assignment of
 * its order in docs/design/orders.md. */
int64_t ordo_makespan_closed(const ordo_run *run, const ordo_costs *costs);

#endif
