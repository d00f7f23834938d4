/* blocks.h: block masks in a pass of the CPU: their lists, their walks, and partial tiles.
 *
 * Without a block mask all of this is as the band says. */
#ifndef CPU_BLOCKS_H
#define CPU_BLOCKS_H

#include "cpu/pass.h"

/* Make the lists of the block mask in tiles of this size, if the call has one. ORDO_ERR_MEMORY. */
ordo_status ordo_cpu_lists_open(ordo_cpu_pass *pass, ordo_tile tile);

/* The lists of (sequence b, query head); NULL: there is no block mask. */
const ordo_lists *ordo_cpu_lists(const ordo_cpu_pass *pass, int64_t b, int64_t head);

/* Whether something of key tile j is visible to query tile i, which the band lets it visit. */
static inline bool ordo_cpu_sees(const ordo_cpu_pass *pass, int64_t b, int64_t head, int32_t i,
                                 int32_t j)
{
    const ordo_lists *lists = ordo_cpu_lists(pass, b, head);
    return !lists || ordo_lists_turn(lists, ORDO_WALK_ASCENDING, i, j) >= 0;
}

/* Steps of a chain, and the query tile at one of them. With lists a chain passes over all query
 * tiles, and leaves out those at which a head does not see it. */
static inline int32_t ordo_cpu_steps(const ordo_cpu_pass *pass, const ordo_walk *walk, int32_t j)
{
    return pass->lists ? walk->nq : ordo_walk_steps(walk, j);
}
static inline int32_t ordo_cpu_visit(const ordo_cpu_pass *pass, const ordo_walk *walk, int32_t j,
                                     int32_t t)
{
    return pass->lists ? ordo_lists_visit(walk->nq, walk->kind, t) : ordo_walk_visit(walk, j, t);
}

/* Narrow a patch by its block, if that is partial: to the columns that some row sees. `seen` then
 * holds what each row sees, as ordo_scores.seen, while the patch is used: a word for each 32
 * columns of a row, of rows padded to 16. Without a block mask it may be NULL. */
void ordo_cpu_patch_elements(const ordo_cpu_pass *pass, int64_t b, int64_t head, ordo_patch *patch,
                             uint32_t *seen);

#endif
