/* segments.h: run a plan with segments: plan/segments.h says what they are. */
#ifndef API_SEGMENTS_H
#define API_SEGMENTS_H

#include "api/call.h"

/* One pass of a backend over a checked call. */
typedef ordo_status ordo_pass_run(const ordo_plan *plan, const ordo_call *call);

/* Run a pass of a plan with segments and a checked call. `run` is the pass of its backend. Every
 * argument is checked before anything is written. */
ordo_status ordo_segments_run(const ordo_plan *plan, ordo_pass pass, ordo_pass_run *run,
                              const ordo_call *call);

#endif
