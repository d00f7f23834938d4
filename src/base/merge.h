/* merge.h: what parts of a row over disjoint sets of keys weigh when they are merged. One text for
 * every backend, by basic operations alone: so they merge to the same bits. */
#ifndef BASE_MERGE_H
#define BASE_MERGE_H

#include "base/constants.h"
#include "base/exp2.h"
#include "base/half.h"

/* The largest lse so far, and one more; NaN wins. */
ORDO_HD float ordo_merge_top(float top, float lse)
{
    return top != top || top >= lse ? top : lse;
}

/* The weight of a part that saw a key. NaN does not enter exp2: those of a GPU have a payload. */
ORDO_HD float ordo_merge_weight(float lse, float top)
{
    const float x = ordo_f32_from_f64(((double)lse - (double)top) * ORDO_LOG2_E);
    return x != x ? x : ordo_exp2(x);
}

/* What the sum of weighted parts is multiplied by. */
ORDO_HD float ordo_merge_factor(float top, float total)
{
    return top == -INFINITY ? 0 : 1 / total;
}

ORDO_HD float ordo_merge_lse(float top, float total)
{
    const double lse = top == -INFINITY ? -INFINITY : (double)top + ordo_log(total);
    return ordo_f32_from_f64(total != total ? (double)total : lse);
}

#endif
