/* sink.c: adds the sink to row sums, and computes its gradient. */
#include "cpu/sink.h"

#include <math.h>
#include <stdatomic.h>

#include "base/constants.h"
#include "base/half.h"
#include "base/pool.h"
#include "base/sink.h"

/* exp2 of a difference; a NaN goes round it, because its payload would be read. */
static float exp2_or_nan(double x)
{
    const float rounded = ordo_f32_from_f64(x);
    return rounded != rounded ? rounded : ordo_exp2(rounded);
}

ordo_row_end ordo_cpu_row_end(float m, float l, float sink, float keep_scale)
{
    if (l == 0)
        return (ordo_row_end) { 0, sink };
    float shrink = 1;
    if (sink != -INFINITY) { /* one more term of the sum, and maybe a new maximum */
        const double sink2 = (double)sink * ORDO_LOG2_E;
        const float top = ordo_merge_top(m, ordo_f32_from_f64(sink2));
        shrink = exp2_or_nan((double)m - (double)top);
        l = fmaf(l, shrink, exp2_or_nan(sink2 - (double)top));
        m = top;
    }
    const double lse = l != l ? (double)l : ordo_log(l) + (double)m * ORDO_LN_2;
    return (ordo_row_end) { keep_scale * shrink / l, ordo_f32_from_f64(lse) };
}

/* ---- gradient ---- */

typedef struct sink_job {
    const ordo_query_side *rows;
    atomic_llong next; /* head */
} sink_job;

/* Row `row` of a sequence: lse from the call, delta from the workspace. */
static double term(const ordo_query_side *side, int64_t b, int64_t head, int64_t row)
{
    const ordo_cpu_pass *p = side->pass;
    const int64_t bq = p->plan->backward_tile.q;
    const int64_t place = ordo_query_place(side, b, head, (int32_t)(row / bq));
    return ordo_sink_term(ordo_cpu_sink(p, head), p->call->lse[ordo_cpu_lse_at(p, b, head, row)],
                          ordo_query_tile_at(side, place).delta[row % bq]);
}

/* The sum of one sequence. */
static float part(const ordo_query_side *side, int64_t b, int64_t head)
{
    const int64_t rows = side->pass->sequences[b].q_len;
    double sum = 0;
    for (int64_t first = 0; first < rows; first += ORDO_SINK_ROWS) {
        double terms[ORDO_SINK_ROWS] = { 0 };
        for (int64_t r = 0; r < ORDO_SINK_ROWS && first + r < rows; r++)
            terms[r] = term(side, b, head, first + r);
        sum += ordo_sink_tree(terms);
    }
    return ordo_f32_from_f64(sum);
}

static void work(void *context, int worker, int workers, void *scratch)
{
    sink_job *job = context;
    const ordo_cpu_pass *p = job->rows->pass;
    const int64_t heads = p->problem->heads;
    (void)worker;
    (void)workers;
    (void)scratch;
    for (;;) {
        const int64_t head = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        double sum = 0;
        if (head >= heads)
            return;
        for (int64_t b = 0; b < p->problem->batch; b++) {
            const float own = part(job->rows, b, head);
            sum += own;
            if (p->call->dsink_parts)
                p->call->dsink_parts[b * heads + head] = own;
        }
        if (p->call->dsink)
            p->call->dsink[head] = ordo_f32_from_f64(sum);
    }
}

ordo_status ordo_cpu_sink_gradient(const ordo_query_side *rows)
{
    sink_job job = { .rows = rows };
    const ordo_call *call = rows->pass->call;
    const int64_t heads = rows->pass->problem->heads;
    const int threads = ordo_pool_threads(call->threads);
    if (!call->dsink && !call->dsink_parts)
        return ORDO_OK;
    return ordo_pool_run(heads < threads ? (int)heads : threads, 0, work, &job);
}
