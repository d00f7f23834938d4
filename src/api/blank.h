/* blank.h: what a pass writes where no query meets a key: o = 0, lse = -inf, gradients 0. */
#ifndef API_BLANK_H
#define API_BLANK_H

#include "api/call.h"

/* Rows of a packed batch behind the last end belong to no sequence. Write the results of a pass
 * for them, in host memory; the backends write those of all other rows. */
void ordo_blank_behind(const ordo_problem *problem, ordo_pass pass, const ordo_call *call);

#endif
