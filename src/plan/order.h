/* order.h: the order of every sum. Start reading here.
 *
 * A chain is one key tile of one head: it keeps its dK and dV and walks the query tiles that
 * the mask leaves it. Each step adds a partial dQ into its query tile, and those additions
 * need an order. A walk gives, for one head of one sequence,
 *
 *   ordo_walk_visit(walk, j, t)   the query tile that key tile j visits at step t
 *   ordo_walk_turn(walk, i, j)    the turn of key tile j at query tile i: how many
 *                                 contributors add before it
 *
 * Both are pure functions of the band, the tile indices and the head's class: never of the
 * batch, the number of workers or the time. (The one exception is ORDO_GROUP_WAVES, which is
 * for study and keeps no promise but `repeat`.) Host and device compile them from here.
 *
 *   walk         query tiles are visited       a query tile adds its keys    waits on keys
 *   ascending    upwards                       0 1 2 ...                     before j
 *   descending   downwards                     0 1 2 ...                     before j
 *   spt          upwards                       last ... 2 1 0                after j
 *   shift        upwards from j, cyclically    groups up; cyclic inside      its group, and
 *   symmetric    rectangle, triangle, fold     groups up; cyclic inside      groups before it
 *
 * docs/design/orders.md draws them on small grids. */
#ifndef PLAN_ORDER_H
#define PLAN_ORDER_H

#include "plan/band.h"

typedef enum ordo_walk_kind {
    ORDO_WALK_ASCENDING,
    ORDO_WALK_DESCENDING,
    ORDO_WALK_SPT,
    ORDO_WALK_SHIFT,
    ORDO_WALK_SYMMETRIC
} ordo_walk_kind;

typedef struct ordo_walk {
    ordo_band band;
    ordo_walk_kind kind;
    int32_t nq, nk;  /* tile counts */
    int32_t group;   /* shift: key tiles, symmetric: pairs of them; in one cyclic group */
    int32_t missing; /* units missing from the first group; 0 except for waves */
} ordo_walk;

/* A unit is what one worker takes at a time: one key tile, or a folded pair of key tiles. */
ORDO_HD int32_t ordo_walk_units(const ordo_walk *walk)
{
    return walk->kind == ORDO_WALK_SYMMETRIC ? (walk->nk + 1) / 2 : walk->nk;
}

/* The cyclic group of unit u: units [first, last]. */
ORDO_HD ordo_span ordo_walk_group(const ordo_walk *walk, int32_t u)
{
    const int32_t begin = (u + walk->missing) / walk->group * walk->group - walk->missing;
    ordo_span group;
    group.first = ordo_max32(begin, 0);
    group.last = ordo_min32(begin + walk->group, ordo_walk_units(walk)) - 1;
    return group;
}

/* ---- symmetric: key tiles u (long) and n-1-u (short) folded into one unit ----
 *
 * Defined on the causal triangle with a whole number s of query tiles per key tile. An odd
 * count of key tiles, or a ragged last one, is padded by tiles that do not exist: no real
 * query tile has them as contributors, so leaving their steps out leaves no hole. */
typedef struct ordo_fold {
    int32_t s;      /* query tiles per key tile */
    int32_t n;      /* key tiles, padded to even */
    int32_t u;      /* unit of the key tile */
    int32_t first;  /* first unit of its group */
    int32_t size;   /* units in its group */
    int32_t corner; /* first query tile of the group's dense rectangle */
} ordo_fold;

/* A window never folds, not even one that hides nothing of this sequence: or the same window
 * would mean another order in a longer batch. */
ORDO_HD bool ordo_band_folds(const ordo_band *band)
{
    const int32_t s = band->bk / band->bq;
    const int32_t nq = ordo_band_query_tiles(band), nk = ordo_band_key_tiles(band);
    return band->bk % band->bq == 0 && band->high == 0 && band->low == -ORDO_BAND_OPEN &&
           (nk - 1) * (int64_t)s < nq && nq <= nk * (int64_t)s;
}

ORDO_HD ordo_fold ordo_walk_fold(const ordo_walk *walk, int32_t j)
{
    ordo_fold fold;
    fold.s = walk->band.bk / walk->band.bq;
    fold.n = walk->nk + (walk->nk & 1);
    fold.u = ordo_min32(j, fold.n - 1 - j);
    const ordo_span group = ordo_walk_group(walk, fold.u);
    fold.first = group.first;
    fold.size = ordo_span_count(group);
    fold.corner = fold.s * group.last;
    return fold;
}

ORDO_HD int32_t ordo_fold_visit(const ordo_walk *walk, int32_t j, int32_t t)
{
    const ordo_fold fold = ordo_walk_fold(walk, j);
    if (j != fold.u) /* short: downwards to its diagonal */
        return walk->nq - 1 - t;
    const int32_t height = walk->nq - fold.corner;
    if (t >= height) /* long, under the corner: upwards from its diagonal */
        return fold.s * fold.u + (t - height);
    /* long, in the rectangle: cyclic, each unit of the group one tile further on */
    const int32_t start = fold.u - fold.first < height ? fold.u - fold.first : 0;
    const int32_t place = start + t;
    return fold.corner + (place < height ? place : place - height);
}

ORDO_HD int32_t ordo_fold_turn(const ordo_walk *walk, int32_t i, int32_t j)
{
    const ordo_fold fold = ordo_walk_fold(walk, j);
    const int32_t a = fold.u - fold.first;
    /* earlier groups: all their long tiles, and the short ones that reach up to i */
    const int32_t above = (fold.s * fold.n - 1 - i) / fold.s;
    const int32_t earlier = fold.first + ordo_max32(0, fold.first - above);
    if (j != fold.u)
        return earlier + fold.size + (fold.size - 1 - a);
    if (i < fold.corner)
        return earlier + i / fold.s - fold.u;
    const int32_t lead = ordo_min32(i - fold.corner, fold.size - 1) - a;
    return earlier + (lead < 0 ? lead + fold.size : lead);
}

/* ---- shift: cyclic inside groups of key tiles ----
 *
 * Unit a of a group starts at query tile a. Seen in lock step it is at tile i at time
 * (i - a) mod max(nq, size); query tiles add their keys in the order of those times, so no
 * wait can close a circle, whatever the mask leaves out. */
ORDO_HD int32_t ordo_shift_visit(const ordo_walk *walk, int32_t j, int32_t t)
{
    const ordo_span queries = ordo_band_queries(&walk->band, j);
    const int32_t a = j - ordo_walk_group(walk, j).first;
    const int32_t start = a >= queries.first && a <= queries.last ? a : queries.first;
    const int32_t i = start + t;
    return i <= queries.last ? i : i - ordo_span_count(queries);
}

ORDO_HD int32_t ordo_shift_turn(const ordo_walk *walk, int32_t i, int32_t j)
{
    const ordo_span keys = ordo_band_keys(&walk->band, i), group = ordo_walk_group(walk, j);
    const int32_t earlier = ordo_max32(0, group.first - keys.first);
    const int32_t lead = ordo_min32(group.first + i, group.last); /* first of the cycle */
    const int32_t low = ordo_max32(keys.first, group.first);
    const int32_t high = ordo_min32(keys.last, group.last);
    if (j <= lead) /* lead, lead-1, ..., j */
        return earlier + ordo_min32(high, lead) - j;
    /* all up to lead, then the rest from the top */
    return earlier + ordo_max32(0, ordo_min32(high, lead) - low + 1) + high - j;
}

/* ---- any walk ---- */

/* Steps of key tile j. */
ORDO_HD int32_t ordo_walk_steps(const ordo_walk *walk, int32_t j)
{
    return ordo_span_count(ordo_band_queries(&walk->band, j));
}

ORDO_HD int32_t ordo_walk_visit(const ordo_walk *walk, int32_t j, int32_t t)
{
    switch (walk->kind) {
    case ORDO_WALK_ASCENDING:
    case ORDO_WALK_SPT: return ordo_band_queries(&walk->band, j).first + t;
    case ORDO_WALK_DESCENDING: return ordo_band_queries(&walk->band, j).last - t;
    case ORDO_WALK_SHIFT: return ordo_shift_visit(walk, j, t);
    case ORDO_WALK_SYMMETRIC: return ordo_fold_visit(walk, j, t);
    }
    return -1;
}

ORDO_HD int32_t ordo_walk_turn(const ordo_walk *walk, int32_t i, int32_t j)
{
    switch (walk->kind) {
    case ORDO_WALK_ASCENDING:
    case ORDO_WALK_DESCENDING: return j - ordo_band_keys(&walk->band, i).first;
    case ORDO_WALK_SPT: return ordo_band_keys(&walk->band, i).last - j;
    case ORDO_WALK_SHIFT: return ordo_shift_turn(walk, i, j);
    case ORDO_WALK_SYMMETRIC: return ordo_fold_turn(walk, i, j);
    }
    return -1;
}

#endif
