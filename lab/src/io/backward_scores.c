/* backward_scores.c: the backward algorithms that keep scores in slow memory.
 *
 * phase is the algorithm for small caches: five products, each with its result resident and thin
 * strips of its operands streamed, so that each moves 2 n^2 d / sqrt(M) words. Li et al. show that
 * no algorithm has a lower order of growth if M is below d^2. This is a reconstruction of their
 * algorithm that also gives dk and dv. Panels of rows bound the workspace. */
#include <math.h>

#include "io/job.h"

/* ---- naive: one word at a time ---- */

/* word += a b for single words. */
static void add_product(const ordo_io_job *job, ordo_io_view sum, const ordo_io_matrix *a,
                        int64_t ai, int64_t aj, const ordo_io_matrix *b, int64_t bi, int64_t bj,
                        double factor)
{
    ordo_io_fast *fast = job->fast;
    const int64_t mark = ordo_io_mark(fast);
    const ordo_io_view x = ordo_io_load(fast, a, ai, aj, 1, 1);
    const ordo_io_view y = ordo_io_load(fast, b, bi, bj, 1, 1);
    if (ordo_io_resident(fast, x) && ordo_io_resident(fast, y))
        ordo_io_put(fast, sum, 0, 0,
                    ordo_io_get(fast, sum, 0, 0) +
                        ordo_io_get(fast, x, 0, 0) * factor * ordo_io_get(fast, y, 0, 0));
    ordo_io_release(fast, mark);
}

static void naive_scores(const ordo_io_job *job, int64_t i, int64_t j)
{
    ordo_io_fast *fast = job->fast;
    const int64_t mark = ordo_io_mark(fast);
    const ordo_io_view p = ordo_io_fresh(fast, &job->p, i, j, 1, 1);
    for (int64_t c = 0; c < job->shape->dk; c++)
        add_product(job, p, &job->q, i, c, &job->k, j, c, 1);
    ordo_io_probabilities(job, p, ordo_io_load(fast, &job->lse, i, 0, 1, 1), i, j);
    ordo_io_store(fast, p, &job->p, i, j);
    ordo_io_release(fast, mark);

    const ordo_io_view ds = ordo_io_fresh(fast, &job->ds, i, j, 1, 1);
    for (int64_t c = 0; c < job->shape->dv; c++)
        add_product(job, ds, &job->dout, i, c, &job->v, j, c, 1);
    const ordo_io_view again = ordo_io_load(fast, &job->p, i, j, 1, 1);
    ordo_io_score_gradient(job, ds, again, ordo_io_load(fast, &job->delta, i, 0, 1, 1), i, j);
    ordo_io_store(fast, ds, &job->ds, i, j);
    ordo_io_release(fast, mark);
}

/* One row of dq, dk or dv: `scores` times rows of b, over the visible elements. */
static void naive_rows(const ordo_io_job *job, int64_t i, const ordo_io_matrix *dq)
{
    for (int64_t c = 0; c < dq->cols; c++) {
        const int64_t mark = ordo_io_mark(job->fast);
        const ordo_io_view sum = ordo_io_fresh(job->fast, dq, i, c, 1, 1);
        for (int64_t j = 0; j < job->shape->cols; j++)
            if (ordo_io_visible(job->shape, i, j))
                add_product(job, sum, &job->ds, i, j, &job->k, j, c, 1);
        ordo_io_store(job->fast, sum, dq, i, c);
        ordo_io_release(job->fast, mark);
    }
}
static void naive_cols(const ordo_io_job *job, int64_t j, const ordo_io_matrix *grad,
                       const ordo_io_matrix *scores, const ordo_io_matrix *b, bool dropped)
{
    for (int64_t c = 0; c < grad->cols; c++) {
        const int64_t mark = ordo_io_mark(job->fast);
        const ordo_io_view sum = ordo_io_fresh(job->fast, grad, j, c, 1, 1);
        for (int64_t i = 0; i < job->shape->rows; i++)
            if (ordo_io_visible(job->shape, i, j))
                add_product(job, sum, scores, i, j, b, i, c, dropped ? ordo_io_kept(job, i, j) : 1);
        ordo_io_store(job->fast, sum, grad, j, c);
        ordo_io_release(job->fast, mark);
    }
}

void ordo_io_backward_naive(const ordo_io_job *job)
{
    const ordo_io_shape *shape = job->shape;
    ordo_io_delta(job);
    ordo_io_loop(job->fast, "scores");
    for (int64_t i = 0; i < shape->rows; i++)
        for (int64_t j = 0; j < shape->cols; j++)
            if (ordo_io_visible(shape, i, j))
                naive_scores(job, i, j);
    ordo_io_loop(job->fast, "dv");
    for (int64_t j = 0; j < shape->cols; j++)
        naive_cols(job, j, &job->dv, &job->p, &job->dout, true);
    ordo_io_loop(job->fast, "dq");
    for (int64_t i = 0; i < shape->rows; i++)
        naive_rows(job, i, &job->dq);
    ordo_io_loop(job->fast, "dk");
    for (int64_t j = 0; j < shape->cols; j++)
        naive_cols(job, j, &job->dk, &job->ds, &job->q, false);
}

/* ---- phase: five products with the result resident ---- */

typedef struct panel {
    int64_t top, bottom; /* rows */
} panel;

static void phase_p(const ordo_io_job *job, panel at, int64_t i, int64_t rows, int64_t j,
                    int64_t cols)
{
    ordo_io_fast *fast = job->fast;
    const int64_t mark = ordo_io_mark(fast);
    const ordo_io_view p = ordo_io_fill(fast, rows, cols, 0);
    ordo_io_strip_product(job, p, &job->q, i, &job->k, j);
    ordo_io_probabilities(job, p, ordo_io_load(fast, &job->lse, i, 0, rows, 1), i, j);
    ordo_io_store(fast, p, &job->p, i - at.top, j);
    ordo_io_release(fast, mark);
}

/* p is loaded row by row: fast memory holds one row of p, one delta and the tile of dp. */
static void phase_ds(const ordo_io_job *job, panel at, int64_t i, int64_t rows, int64_t j,
                     int64_t cols)
{
    ordo_io_fast *fast = job->fast;
    const int64_t mark = ordo_io_mark(fast);
    const ordo_io_view dp = ordo_io_fill(fast, rows, cols, 0);
    ordo_io_strip_product(job, dp, &job->dout, i, &job->v, j);
    for (int64_t r = 0; r < dp.rows; r++) {
        const int64_t words = ordo_io_mark(fast);
        const ordo_io_view row = { dp.data + r * dp.ld, dp.ld, 1, cols };
        const ordo_io_view p = ordo_io_load(fast, &job->p, i - at.top + r, j, 1, cols);
        const ordo_io_view delta = ordo_io_load(fast, &job->delta, i + r, 0, 1, 1);
        ordo_io_score_gradient(job, row, p, delta, i + r, j);
        ordo_io_release(fast, words);
    }
    ordo_io_store(fast, dp, &job->ds, i - at.top, j);
    ordo_io_release(fast, mark);
}

static void phase_tiles(const ordo_io_job *job, panel at,
                        void (*tile)(const ordo_io_job *job, panel at, int64_t i, int64_t rows,
                                     int64_t j, int64_t cols))
{
    const ordo_io_shape *shape = job->shape;
    for (int64_t i = at.top; i < at.bottom; i += job->tiles.rows)
        for (int64_t j = 0; j < shape->cols; j += job->tiles.cols) {
            const int64_t rows = ordo_io_least(job->tiles.rows, at.bottom - i);
            const int64_t cols = ordo_io_least(job->tiles.cols, shape->cols - j);
            if (ordo_io_live(shape, i, i + rows, j, j + cols))
                tile(job, at, i, rows, j, cols);
        }
}

/* A product of stored scores, transposed, with q or dout, for dk and dv. */
typedef struct output {
    const ordo_io_matrix *grad, *scores, *operand;
    bool dropped; /* the scores are p: dropout applies */
} output;

/* grad += scores' operand over rows i.. of a strip. Masked entries are skipped: they may be
 * uninitialised. */
static void update_cols(const ordo_io_job *job, const output *out, ordo_io_view grad,
                        ordo_io_view scores, ordo_io_view operand, int64_t i, int64_t j)
{
    ordo_io_fast *fast = job->fast;
    if (!ordo_io_resident(fast, grad) || !ordo_io_resident(fast, scores) ||
        !ordo_io_resident(fast, operand))
        return;
    for (int64_t x = 0; x < grad.rows; x++)
        for (int64_t t = 0; t < scores.rows; t++) {
            if (!ordo_io_visible(job->shape, i + t, j + x))
                continue;
            const double p = ordo_io_get(fast, scores, t, x) *
                             (out->dropped ? ordo_io_kept(job, i + t, j + x) : 1);
            for (int64_t c = 0; c < grad.cols; c++)
                ordo_io_put(fast, grad, x, c,
                            ordo_io_get(fast, grad, x, c) + p * ordo_io_get(fast, operand, t, c));
        }
}

static void phase_col_tile(const ordo_io_job *job, panel at, const output *out, int64_t j,
                           int64_t cols, int64_t c)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    const int64_t mark = ordo_io_mark(fast);
    const int64_t width = ordo_io_least(job->tiles.out_cols, out->grad->cols - c);
    const bool first = !ordo_io_live(shape, 0, at.top, j, j + cols);
    const ordo_io_view grad = ordo_io_modify(fast, out->grad, j, c, cols, width, first);
    for (ordo_io_span run = { at.top, at.top };;) {
        run = ordo_io_next_rows(shape, j, j + cols, run.end, at.bottom);
        if (run.begin >= run.end)
            break;
        for (int64_t i = run.begin; i < run.end; i += shape->strip) {
            const int64_t strip = ordo_io_mark(fast);
            const int64_t depth = ordo_io_least(shape->strip, run.end - i);
            const ordo_io_view s = ordo_io_load(fast, out->scores, i - at.top, j, depth, cols);
            const ordo_io_view x = ordo_io_load(fast, out->operand, i, c, depth, width);
            update_cols(job, out, grad, s, x, i, j);
            ordo_io_release(fast, strip);
        }
    }
    ordo_io_store(fast, grad, out->grad, j, c);
    ordo_io_release(fast, mark);
}

static void phase_cols(const ordo_io_job *job, panel at, const output *out)
{
    const ordo_io_shape *shape = job->shape;
    for (int64_t j = 0; j < shape->cols; j += job->tiles.out_keys) {
        const int64_t cols = ordo_io_least(job->tiles.out_keys, shape->cols - j);
        if (ordo_io_live(shape, at.top, at.bottom, j, j + cols))
            for (int64_t c = 0; c < out->grad->cols; c += job->tiles.out_cols)
                phase_col_tile(job, at, out, j, cols, c);
        else if (at.bottom == shape->rows && !ordo_io_live(shape, 0, shape->rows, j, j + cols))
            ordo_io_store_value(job->fast, 0, out->grad, j, 0, cols, out->grad->cols);
    }
}

void ordo_io_backward_phase(const ordo_io_job *job)
{
    const output dv = { &job->dv, &job->p, &job->dout, true };
    const output dk = { &job->dk, &job->ds, &job->q, false };
    ordo_io_delta(job);
    for (int64_t top = 0; top < job->shape->rows; top += job->tiles.panel) {
        const panel at = { top, ordo_io_least(job->shape->rows, top + job->tiles.panel) };
        ordo_io_loop(job->fast, "p");
        phase_tiles(job, at, phase_p);
        ordo_io_loop(job->fast, "ds");
        phase_tiles(job, at, phase_ds);
        ordo_io_loop(job->fast, "dv");
        phase_cols(job, at, &dv);
        ordo_io_loop(job->fast, "dq");
        ordo_io_rows_product(job, &job->dq, &job->ds, NULL, &job->k, at.top, at.bottom);
        ordo_io_loop(job->fast, "dk");
        phase_cols(job, at, &dk);
    }
}
