/* blank.h: what a pass writes where no query meets a key: o = 0, lse = -inf, gradients 0. */
#ifndef API_BLANK_H
#define API_BLANK_H

#include "api/call.h"

/* Rows of a packed batch behind the last end belong to no sequence. Write the results of a pass
 * for them, in host memory; the backends write those of all other rows. */
ordo_status ordo_blank_behind(const ordo_problem *problem, ordo_pass pass, const ordo_call *call);

/* Write all results of a pass of an empty problem, in host memory or, with `host` false, on the
 * call's stream of the current device. */
ordo_status ordo_blank_all(const ordo_problem *problem, ordo_pass pass, bool host,
                           const ordo_call *call);

#endif
