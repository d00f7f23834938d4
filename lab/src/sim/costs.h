/* costs.h: which steps there are and what one costs, in whole units of time, for the simulator and
 * the bounds. */
#ifndef SIM_COSTS_H
#define SIM_COSTS_H

#include <stdint.h>

enum { ORDO_OVERLAP_MAX = 16 };

struct ordo_live;

typedef struct ordo_costs {
    int64_t compute;         /* the products of one step */
    int64_t compute_partial; /* the same if the tile is partly visible */
    int64_t reduce;          /* adding the partial dQ */
    int64_t latency;         /* between the end of one addition and the start of the next */
    int32_t overlap;         /* additions in flight during the computation: 0 .. ORDO_OVERLAP_MAX */
    int32_t accumulators;    /* per query tile, >= 1: turn t adds to number t mod accumulators */
    const struct ordo_live *live; /* steps of a block mask (sim/live.h); NULL: the band's */
} ordo_costs;

#endif
