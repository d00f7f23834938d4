/* combine.c: merge attention over disjoint sets of keys, part by part in their order.
 *
 * A row is independent of all others, so threads change no bit. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/merge.h"
#include "base/pool.h"
#include "cpu/pass.h"

typedef struct combine_job {
    ordo_cpu_pass pass; /* for addresses: a packed batch is one sequence of total_q rows */
    ordo_problem problem;
    const ordo_combine *combine;
    int64_t rows;
    atomic_llong next;
} combine_job;

/* One worker's panels, a row each. */
typedef struct panels {
    float *sum, *part;
} panels;

static size_t lay_out(const combine_job *job, void *memory, panels *w)
{
    ordo_arena arena = { memory, 0 };
    w->sum = ordo_arena_take(&arena, (size_t)job->pass.v_ld);
    w->part = ordo_arena_take(&arena, (size_t)job->pass.v_ld);
    return arena.used;
}

/* One row: weights of the parts, then their sum. */
static void merge(const combine_job *job, int64_t b, int64_t head, int64_t row, const panels *w)
{
    const ordo_cpu_pass *p = &job->pass;
    const ordo_combine *c = job->combine;
    const int64_t at = ordo_cpu_lse_at(p, b, head, row);
    float *sum = w->sum, *part = w->part;
    float top = -INFINITY, total = 0;
    for (int64_t x = 0; x < c->parts; x++)
        top = ordo_merge_top(top, c->lse_parts[x][at]);
    memset(sum, 0, sizeof *sum * (size_t)p->v_ld);
    for (int64_t x = 0; x < c->parts && top != -INFINITY; x++) {
        const float lse = c->lse_parts[x][at];
        if (lse == -INFINITY) /* its o is 0, but need not be trusted */
            continue;
        const float weight = ordo_merge_weight(lse, top);
        const ordo_rows o = ordo_cpu_rows(p, &c->o_parts[x], ORDO_QUERIES, p->v_dim, b, row, head);
        p->kernels->load(part, p->v_ld, o.data, p->problem->dtype, o.stride, 1, p->v_dim);
        for (int d = 0; d < p->v_dim; d++)
            sum[d] = fmaf(weight, part[d], sum[d]);
        total += weight;
    }
    const ordo_rows to = ordo_cpu_rows(p, &c->o, ORDO_QUERIES, p->v_dim, b, row, head);
    p->kernels->store(to.data, p->problem->dtype, to.stride, sum, p->v_ld, 1, p->v_dim,
                      ordo_merge_factor(top, total), NULL);
    c->lse[at] = ordo_merge_lse(top, total);
}

static void work(void *context, int worker, int workers, void *scratch)
{
    combine_job *job = context;
    panels w;
    (void)worker;
    (void)workers;
    lay_out(job, scratch, &w);
    for (;;) {
        const int64_t item = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (item >= job->problem.batch * job->problem.heads)
            return;
        for (int64_t row = 0; row < job->rows; row++)
            merge(job, item / job->problem.heads, item % job->problem.heads, row, &w);
    }
}

ordo_status ordo_cpu_combine(const ordo_plan *plan, const ordo_combine *combine)
{
    combine_job job = { .problem = plan->problem, .combine = combine };
    ordo_problem *p = &job.problem;
    const bool packed = p->layout == ORDO_PACKED;
    ordo_sequence whole = { 0 }; /* begins at row 0; dense addresses do not look at it */
    job.rows = packed ? p->total_q : p->q_len;
    if (packed)
        p->batch = 1;
    job.pass = (ordo_cpu_pass) { .plan = plan,
                                 .problem = p,
                                 .sequences = &whole,
                                 .v_dim = (int)p->v_head_dim,
                                 .v_ld = ordo_panel_row(p->v_head_dim) };
    const ordo_status status = ordo_cpu_kernels(&job.pass.kernels);
    if (status != ORDO_OK)
        return status;
    panels none;
    return ordo_pool_run(combine->threads, lay_out(&job, NULL, &none), work, &job);
}
