/* blank.h: results of rows without keys: o = 0, lse = -inf, gradients 0; dk and dv of keys without
 * rows: 0, or what the sums that the call carries say. */
#ifndef API_BLANK_H
#define API_BLANK_H

#include "api/call.h"

/* Write the results of a pass for the rows of a packed batch after the last end, which belong to no
 * sequence, in host memory. The backends write those of all other rows. */
ordo_status ordo_blank_behind(const ordo_problem *problem, ordo_pass pass, const ordo_call *call);

/* Write all results of a pass of an empty problem: in host memory or, if `host` is false, on the
 * stream of the call. */
ordo_status ordo_blank_all(const ordo_problem *problem, ordo_pass pass, bool host,
                           const ordo_call *call);

#endif
