/* problem.h: a problem with every default filled in, or the reason why it has no meaning. */
#ifndef API_PROBLEM_H
#define API_PROBLEM_H

#include "base/for_lab.h"
#include "base/versioned.h"
#include "ordo/problem.h"

/* The public struct, for callers of other versions. */
extern const ordo_struct ordo_problem_struct;

/* Check `in` and write it to `out` with all defaults filled in and one spelling per meaning:
 *
 *   window   off (0, 0) where it hides nothing that the mask does not hide; with a causal
 *            mask `right` is 0, since nothing right of the diagonal is visible anyway
 *   dropout  all zero if p is 0
 *   no keys  kv_len (total_kv) 0
 *
 * Two problems that mean the same resolve to the same fields. `out` may be `in`; it is not written
 * on failure. */
ORDO_FOR_LAB ordo_status ordo_problem_resolve(const ordo_problem *in, ordo_problem *out);

/* A resolved problem as a caller gives it: it resolves to itself again. */
ordo_problem ordo_problem_original(const ordo_problem *resolved);

/* An element is kept if its draw of dropout.bits bits is below this; 1 of 2^0 if no dropout. */
int ordo_dropout_threshold(const ordo_problem *resolved);

#endif
