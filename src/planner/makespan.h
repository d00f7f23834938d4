/* makespan.h: what is known of a schedule's length without simulating it. */
#ifndef PLANNER_MAKESPAN_H
#define PLANNER_MAKESPAN_H

#include "base/for_lab.h"
#include "ordo/status.h"
#include "plan/costs.h"
#include "plan/issue.h"

/* No schedule of these runs on these workers is shorter than any of the three. */
typedef struct ordo_bounds {
    uint64_t tasks; /* live tile pairs */
    int64_t work;   /* all of them spread evenly */
    int64_t chain;  /* the longest key tile, which one worker must walk alone */
    int64_t turns;  /* the longest queue of contributors at one accumulator */
} ordo_bounds;

static inline int64_t ordo_bounds_most(const ordo_bounds *bounds)
{
    const int64_t most = bounds->work > bounds->chain ? bounds->work : bounds->chain;
    return most > bounds->turns ? most : bounds->turns;
}

/* ORDO_ERR_OVERFLOW if even the sum of all costs does not fit. */
ORDO_FOR_LAB ordo_status ordo_makespan_bounds(const ordo_run *runs, int32_t count,
                                              const ordo_costs *costs, ordo_bounds *bounds);

/* The exact makespan where a formula is known: one run, as many key tiles as query tiles and as
 * workers, the whole mask full or causal, and the assignment the formula speaks of; else -1. */
ORDO_FOR_LAB int64_t ordo_makespan_closed(const ordo_run *run, const ordo_costs *costs);

#endif
