/* visible.h: which elements the mask and the window of a problem leave, for every oracle of the
 * tests. */
#ifndef TESTS_VISIBLE_H
#define TESTS_VISIBLE_H

#include "ordo/problem.h"

/* Whether an element is seen that stands `right` columns to the right of its row's diagonal. */
static inline bool rules_see(const ordo_problem *p, int64_t right)
{
    const ordo_window *w = &p->window;
    if (p->mask != ORDO_MASK_FULL && right > 0)
        return false;
    if (w->on && w->left >= 0 && right < -w->left)
        return false;
    return !w->on || w->right < 0 || right <= w->right;
}

#endif
