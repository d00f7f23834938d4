/* sink.c: computes the results of an empty problem that has sinks. */
#include "api/sink.h"

#include "base/half.h"
#include "base/sink.h"

/* Rows of one head of one sequence, in lse and dlse. */
typedef struct lines {
    int64_t first, count;
} lines;

static lines lines_of(const ordo_problem *p, const ordo_call *c, int64_t b, int64_t head)
{
    if (p->layout == ORDO_PACKED)
        return (lines) { head * p->total_q + c->cu_q[b], c->cu_q[b + 1] - c->cu_q[b] };
    return (lines) { (b * p->heads + head) * p->q_len,
                     p->layout == ORDO_PADDED ? c->q_lens[b] : p->q_len };
}

/* The gradient of one sequence: o is 0, so that delta is -dlse. */
static float part(const ordo_call *c, lines rows, float sink)
{
    double sum = 0;
    for (int64_t first = 0; first < rows.count; first += ORDO_SINK_ROWS) {
        double terms[ORDO_SINK_ROWS] = { 0 };
        for (int64_t r = first; r < first + ORDO_SINK_ROWS && r < rows.count; r++)
            terms[r - first] = ordo_sink_term(sink, c->lse[rows.first + r],
                                              c->dlse ? -c->dlse[rows.first + r] : 0);
        sum += ordo_sink_tree(terms);
    }
    return ordo_f32_from_f64(sum);
}

void ordo_sink_blank(const ordo_problem *p, ordo_pass pass, const ordo_call *c)
{
    for (int64_t h = 0; c->sink && h < p->heads; h++) {
        double sum = 0;
        for (int64_t b = 0; b < p->batch; b++) {
            const lines rows = lines_of(p, c, b, h);
            if (pass == ORDO_FORWARD) {
                for (int64_t r = 0; r < rows.count; r++)
                    c->lse[rows.first + r] = c->sink[h];
                continue;
            }
            const float own = part(c, rows, c->sink[h]);
            sum += own;
            if (c->dsink_parts)
                c->dsink_parts[b * p->heads + h] = own;
        }
        if (pass == ORDO_BACKWARD && c->dsink)
            c->dsink[h] = ordo_f32_from_f64(sum);
    }
}
