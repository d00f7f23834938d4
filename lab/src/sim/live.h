/* live.h: the tiles that a block mask leaves of a band, and how a chain walks them.
 *
 * As kernels do (src/plan/lists.h): a chain visits the live tiles of its column upwards or
 * downwards, and a query tile adds its live key tiles upwards or, under spt, downwards. Cyclic
 * orders have no lists. All heads see the same blocks. */
#ifndef SIM_LIVE_H
#define SIM_LIVE_H

#include <stdint.h>

#include "ordo/status.h"
#include "plan/order.h"

typedef struct ordo_live {
    int64_t *column; /* where each key tile's entries begin, and the end of the last */
    int32_t *query;  /* query tile of an entry, upwards in a column, */
    int32_t *before; /* and how many live key tiles below this one it has */
    int32_t *keys;   /* live key tiles of a query tile */
} ordo_live;

/* `blocks` has a byte per tile, by query tile and then key tile; 0 hides it. */
ordo_status ordo_live_create(ordo_live **live, const ordo_band *band, const uint8_t *blocks);
void ordo_live_destroy(ordo_live *live);

static inline int32_t ordo_live_steps(const ordo_live *live, int32_t j)
{
    return (int32_t)(live->column[j + 1] - live->column[j]);
}

/* Step t of key tile j: the query tile, and the turn there. */
static inline int32_t ordo_live_visit(const ordo_live *live, ordo_walk_kind kind, int32_t j,
                                      int32_t t, int32_t *turn)
{
    const int64_t at =
        kind == ORDO_WALK_DESCENDING ? live->column[j + 1] - 1 - t : live->column[j] + t;
    const int32_t i = live->query[at], before = live->before[at];
    *turn = kind == ORDO_WALK_SPT ? live->keys[i] - 1 - before : before;
    return i;
}

#endif
