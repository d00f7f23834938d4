/* sink.h: the learned logit of a head in the passes of the CPU. */
#ifndef CPU_SINK_H
#define CPU_SINK_H

#include <math.h>

#include "cpu/query_side.h"

/* The sink of a head; -inf if the call has none. */
static inline float ordo_cpu_sink(const ordo_cpu_pass *pass, int64_t head)
{
    return pass->call->sink ? pass->call->sink[head] : -INFINITY;
}

/* The end of a row's softmax: what its output is multiplied by, and its lse. `m` is the maximum of
 * the row's logits in base 2, `l` the sum relative to it; l is 0 for a row that saw nothing.
 * `keep_scale` is that of dropout. */
typedef struct ordo_row_end {
    float factor, lse;
} ordo_row_end;

ordo_row_end ordo_cpu_row_end(float m, float l, float sink, float keep_scale);

/* Write dsink and dsink_parts of the call, as far as they are given, from the row sums that `rows`
 * has prepared. A head is summed by one thread: threads change no bit. */
ordo_status ordo_cpu_sink_gradient(const ordo_query_side *rows);

#endif
