/* lists.h: the tiles that a block mask leaves, and the turns that follow from them.
 *
 * One list per query tile: the key tiles in which some element is visible, through the band and the
 * block mask, ascending. Its place in the list is the turn of a key tile under the orders ascending
 * and descending; under spt turns are counted from the other end. Nothing else of a walk changes: a
 * chain passes over the query tiles in its direction and leaves out those that do not list it. It
 * waits only on key tiles of the same head that are issued before it, so that any number of workers
 * completes.
 *
 * Lists hold what is visible, not what the mask lists: a block in which nothing is visible takes no
 * turn, and a block mask that hides what a band hides has the turns of that band. */
#ifndef PLAN_LISTS_H
#define PLAN_LISTS_H

#include "base/blocks.h"
#include "plan/order.h"

typedef struct ordo_lists {
    int32_t nq, nk; /* tiles */
    int64_t *start; /* (nq + 1) */
    int32_t *key;
} ordo_lists;

/* Whether the tiles of a band fit a block mask: 128 columns, and rows that divide 128. */
ORDO_HD bool ordo_lists_fit(int64_t bq, int64_t bk)
{
    return bk == ORDO_BLOCK && bq <= ORDO_BLOCK && ORDO_BLOCK % bq == 0;
}

/* Make the lists of one mask. The mask may be larger than the band. Returns ORDO_ERR_MEMORY. */
ordo_status ordo_lists_create(ordo_lists *lists, const ordo_band *band,
                              const ordo_block_view *view);
void ordo_lists_destroy(ordo_lists *lists);

/* Number of key tiles that add into query tile i. */
static inline int32_t ordo_lists_count(const ordo_lists *lists, int32_t i)
{
    return (int32_t)(lists->start[i + 1] - lists->start[i]);
}

/* The turn of key tile j at query tile i; -1: nothing is visible there. */
int32_t ordo_lists_turn(const ordo_lists *lists, ordo_walk_kind kind, int32_t i, int32_t j);

/* The query tile at step t of every chain, of nq steps. */
static inline int32_t ordo_lists_visit(int32_t nq, ordo_walk_kind kind, int32_t t)
{
    return kind == ORDO_WALK_DESCENDING ? nq - 1 - t : t;
}

/* Check lists element by element against the band and the mask that they were made of, and replay
 * the chains in the order in which they are issued: each finds its turn done. Adds the number of
 * visible tile pairs to *pairs. ORDO_ERR_INTERNAL names the first violation. */
ordo_status ordo_lists_check(const ordo_lists *lists, ordo_walk_kind kind, const ordo_band *band,
                             const ordo_block_view *view, uint64_t *pairs);

#endif
