/* costs.h: what a step costs, in whole units of time; the simulator's and the bounds' currency. */
#ifndef PLAN_COSTS_H
#define PLAN_COSTS_H

#include <stdint.h>

enum { ORDO_OVERLAP_MAX = 16 };

typedef struct ordo_costs {
    int64_t compute;         /* one step's products */
    int64_t compute_partial; /* the same where the mask cuts the tile */
    int64_t reduce;          /* adding its partial dQ */
    int64_t latency;         /* from one addition's end to the next contributor's start */
    int32_t overlap;         /* additions in flight behind the computation: 0 .. ORDO_OVERLAP_MAX */
    int32_t split; /* accumulators a query tile, >= 1: turn t goes to accumulator t mod split */
} ordo_costs;

#endif
