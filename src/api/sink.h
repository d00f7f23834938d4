/* sink.h: results of an empty problem that has sinks, in host memory. */
#ifndef API_SINK_H
#define API_SINK_H

#include "api/call.h"

/* Where no row has a key, each row of a sequence has lse = sink, and the gradient of the sink is
 * the sum of dlse. Write lse in a forward pass, dsink and dsink_parts in a backward pass; nothing
 * without a sink. ordo_blank_all() has written all else, and lse of the other rows. */
void ordo_sink_blank(const ordo_problem *problem, ordo_pass pass, const ordo_call *call);

#endif
