/* defaults.h: the committed table of tiles and orders. Changing a row changes bits. */
#ifndef PLANNER_DEFAULTS_H
#define PLANNER_DEFAULTS_H

#include "ordo/plan.h"

typedef struct ordo_default {
    const char *family; /* backends with the same bits */
    int head_dim;       /* the row serves head sizes up to this */
    bool full;          /* full masks, or masks that cut (causal, windows) */
    bool kept;          /* only problems without dropout */
    ordo_tile forward_tile, backward_tile;
    ordo_order order;
} ordo_default;

/* Numeric revision of a family; 0 until its first kernel ships. */
int ordo_family_revision(const char *family);

/* The row for a problem, by family, head size, mask and whether it drops: never by batch, heads,
 * lengths, workers or caches. NULL if the family has none for this head size. */
const ordo_default *ordo_default_find(const char *family, const ordo_problem *problem);

/* Largest head size of a family; 0 if it is unknown. */
int ordo_default_head_dim_max(const char *family);

#endif
