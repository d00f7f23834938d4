/* critical.c: the critical path of a recorded timeline.
 *
 * Each step has two events: the end of its computation (ready) and of its addition (end). From the
 * last addition backwards, each event waited for one other: the end of the same step's computation,
 * the worker's previous step, or the turn before. */
#include "sim/critical.h"

#include <stdlib.h>

#include "base/status.h"

typedef enum event { READY, END } event;

/* What the addition of `s` waited for. */
static ordo_edge bound_of_end(const ordo_record *record, const ordo_step *s, int64_t *to, event *at)
{
    *at = END;
    if (s->start > s->ready) {
        if (s->before >= 0 && record->steps[s->before].end == s->start) {
            *to = s->before;
            return ORDO_EDGE_WORKER;
        }
        *to = s->waited_for;
        return ORDO_EDGE_TURN;
    }
    *at = READY;
    return ORDO_EDGE_WORKER;
}

ordo_status ordo_timeline_trace(const ordo_record *record, const ordo_costs *costs,
                                ordo_critical **path, uint64_t *count)
{
    *path = NULL;
    *count = 0;
    if (record->count == 0)
        return ORDO_OK;
    /* Each step appears at most once, so the path is no longer than the record. */
    *path = malloc((size_t)record->count * sizeof **path);
    if (!*path)
        return ordo_fail(ORDO_ERR_MEMORY, "critical path: %llu steps",
                         (unsigned long long)record->count);
    int64_t x = 0;
    for (uint64_t i = 1; i < record->count; i++)
        if (record->steps[i].end > record->steps[x].end)
            x = (int64_t)i;
    event at = END;
    while (x >= 0) {
        const ordo_step *step = &record->steps[x];
        int64_t to = -1;
        ordo_edge edge = ORDO_EDGE_START;
        if (at == END)
            edge = bound_of_end(record, step, &to, &at);
        if (at == READY) {
            /* Ready as soon as computed, or when a buffer became free. */
            const bool waited = costs->overlap > 0 && step->buffered >= 0 &&
                                record->steps[step->buffered].end == step->ready;
            to = waited ? step->buffered : step->before;
            at = waited || costs->overlap == 0 ? END : READY;
            edge = to < 0 ? ORDO_EDGE_START : ORDO_EDGE_WORKER;
        }
        (*path)[(*count)++] = (ordo_critical) { .step = (uint64_t)x, .edge = edge };
        x = to;
    }
    return ORDO_OK;
}
