/* sink.h: the learned logit of a head, and the order in which its gradient is summed.
 *
 * A row's term is -p delta with p = exp(sink - lse). The terms of ORDO_SINK_ROWS rows are added by
 * one binary tree, so the sum of a sequence follows from its rows alone. */
#ifndef BASE_SINK_H
#define BASE_SINK_H

#include "base/merge.h"

enum { ORDO_SINK_ROWS = 128 }; /* a block of rows; a power of two */

/* The term of a row in the gradient of its head's sink. A row that saw nothing, neither a key nor a
 * sink, has none. */
ORDO_HD double ordo_sink_term(float sink, float lse, float delta)
{
    const bool none = sink == -INFINITY || lse == -INFINITY;
    return none ? 0 : -(double)ordo_merge_weight(sink, lse) * (double)delta;
}

/* Add the terms of a block; those of rows past the end are 0. Overwrites `terms`. */
static inline double ordo_sink_tree(double terms[ORDO_SINK_ROWS])
{
    for (int half = ORDO_SINK_ROWS / 2; half > 0; half /= 2)
        for (int x = 0; x < half; x++)
            terms[x] += terms[x + half];
    return terms[0];
}

#endif
