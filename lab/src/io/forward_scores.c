/* forward_scores.c: the forward algorithms that keep scores in slow memory. */
#include <math.h>

#include "io/job.h"

/* ---- naive: one word at a time ---- */

static void naive_scores(const ordo_io_job *job, int64_t i)
{
    ordo_io_fast *fast = job->fast;
    for (int64_t j = 0; j < job->shape->cols; j++) {
        const int64_t mark = ordo_io_mark(fast);
        if (!ordo_io_visible(job->shape, i, j))
            continue;
        const ordo_io_view s = ordo_io_fresh(fast, &job->p, i, j, 1, 1);
        for (int64_t c = 0; c < job->shape->dk; c++) {
            const int64_t words = ordo_io_mark(fast);
            const ordo_io_view q = ordo_io_load(fast, &job->q, i, c, 1, 1);
            ordo_io_nt(fast, s, q, ordo_io_load(fast, &job->k, j, c, 1, 1));
            ordo_io_release(fast, words);
        }
        ordo_io_logits(job, s, i, j);
        ordo_io_store(fast, s, &job->p, i, j);
        ordo_io_release(fast, mark);
    }
}

/* A first pass finds the maximum and the sum of the row, a second turns logits into
 * probabilities. */
static void naive_softmax(const ordo_io_job *job, int64_t i)
{
    ordo_io_fast *fast = job->fast;
    const int64_t mark = ordo_io_mark(fast);
    const ordo_io_view m = ordo_io_fill(fast, 1, 1, -INFINITY), l = ordo_io_fill(fast, 1, 1, 0);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t j = 0; j < job->shape->cols; j++) {
            const int64_t word = ordo_io_mark(fast);
            if (!ordo_io_visible(job->shape, i, j))
                continue;
            const ordo_io_view s = ordo_io_load(fast, &job->p, i, j, 1, 1);
            if (pass == 0)
                ordo_io_online(job, s, m, l, 0);
            else if (ordo_io_resident(fast, s)) {
                ordo_io_put(fast, s, 0, 0,
                            exp(ordo_io_get(fast, s, 0, 0) - ordo_io_get(fast, m, 0, 0)));
                ordo_io_store(fast, s, &job->p, i, j);
            }
            ordo_io_release(fast, word);
        }
        if (pass == 0)
            ordo_io_finish_lse(fast, m, l);
    }
    ordo_io_store(fast, m, &job->lse, i, 0);
    ordo_io_release(fast, mark);
}

static void naive_output(const ordo_io_job *job, int64_t i)
{
    ordo_io_fast *fast = job->fast;
    for (int64_t c = 0; c < job->shape->dv; c++) {
        const int64_t mark = ordo_io_mark(fast);
        const ordo_io_view o = ordo_io_fresh(fast, &job->o, i, c, 1, 1);
        for (int64_t j = 0; j < job->shape->cols; j++) {
            const int64_t words = ordo_io_mark(fast);
            if (!ordo_io_visible(job->shape, i, j))
                continue;
            const ordo_io_view p = ordo_io_load(fast, &job->p, i, j, 1, 1);
            const ordo_io_view v = ordo_io_load(fast, &job->v, j, c, 1, 1);
            if (ordo_io_resident(fast, p) && ordo_io_resident(fast, v))
                ordo_io_put(fast, o, 0, 0,
                            ordo_io_get(fast, o, 0, 0) + ordo_io_get(fast, p, 0, 0) *
                                                             ordo_io_kept(job, i, j) *
                                                             ordo_io_get(fast, v, 0, 0));
            ordo_io_release(fast, words);
        }
        ordo_io_store(fast, o, &job->o, i, c);
        ordo_io_release(fast, mark);
    }
}

void ordo_io_forward_naive(const ordo_io_job *job)
{
    ordo_io_loop(job->fast, "scores");
    for (int64_t i = 0; i < job->shape->rows; i++)
        naive_scores(job, i);
    ordo_io_loop(job->fast, "softmax");
    for (int64_t i = 0; i < job->shape->rows; i++)
        naive_softmax(job, i);
    ordo_io_loop(job->fast, "output");
    for (int64_t i = 0; i < job->shape->rows; i++)
        naive_output(job, i);
}

/* ---- mat: two products with the result resident, by panels of rows ---- */

/* Logits of one tile of rows, and their log-sum-exp. `top` is the first row of the panel. */
static void mat_scores(const ordo_io_job *job, int64_t top, int64_t i, int64_t rows)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    const int64_t mark = ordo_io_mark(fast), width = job->tiles.cols;
    const ordo_io_view m = ordo_io_fill(fast, rows, 1, -INFINITY);
    const ordo_io_view l = ordo_io_fill(fast, rows, 1, 0);
    for (int64_t j = 0; j < shape->cols; j += width) {
        const int64_t cols = ordo_io_least(width, shape->cols - j), tile = ordo_io_mark(fast);
        if (!ordo_io_live(shape, i, i + rows, j, j + cols))
            continue;
        const ordo_io_view s = ordo_io_fill(fast, rows, cols, 0);
        ordo_io_strip_product(job, s, &job->q, i, &job->k, j);
        ordo_io_logits(job, s, i, j);
        for (int64_t r = 0; r < s.rows; r++)
            ordo_io_online(job, s, m, l, r);
        ordo_io_store(fast, s, &job->p, i - top, j);
        ordo_io_release(fast, tile);
    }
    ordo_io_finish_lse(fast, m, l);
    ordo_io_store(fast, m, &job->lse, i, 0);
    ordo_io_release(fast, mark);
}

/* The product of a panel of stored scores, with the result resident. */
typedef struct rows_product {
    const ordo_io_matrix *out, *scores, *lse, *operand;
    int64_t top;
} rows_product;

/* out += S operand for a strip of columns. Masked entries are skipped: they may be uninitialised.
 */
static void update(const ordo_io_job *job, bool logits, ordo_io_view out, ordo_io_view s,
                   ordo_io_view lse, ordo_io_view operand, int64_t i, int64_t j)
{
    ordo_io_fast *fast = job->fast;
    if (!ordo_io_resident(fast, out) || !ordo_io_resident(fast, s) ||
        (logits && !ordo_io_resident(fast, lse)) || !ordo_io_resident(fast, operand))
        return;
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t t = 0; t < s.cols; t++) {
            if (!ordo_io_visible(job->shape, i + r, j + t))
                continue;
            double p = ordo_io_get(fast, s, r, t);
            if (logits)
                p = exp(p - ordo_io_get(fast, lse, r, 0)) * ordo_io_kept(job, i + r, j + t);
            for (int64_t c = 0; c < out.cols; c++)
                ordo_io_put(fast, out, r, c,
                            ordo_io_get(fast, out, r, c) + p * ordo_io_get(fast, operand, t, c));
        }
}

static void product_tile(const ordo_io_job *job, const rows_product *x, int64_t i, int64_t rows,
                         int64_t c)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    const int64_t mark = ordo_io_mark(fast),
                  width = ordo_io_least(job->tiles.out_cols, x->out->cols - c);
    const ordo_io_view out = ordo_io_fresh(fast, x->out, i, c, rows, width);
    const ordo_io_view lse = x->lse ? ordo_io_load(fast, x->lse, i, 0, rows, 1) : out;
    for (ordo_io_span run = { 0, 0 };;) {
        run = ordo_io_next_cols(shape, i, i + rows, run.end, shape->cols);
        if (run.begin >= run.end)
            break;
        for (int64_t j = run.begin; j < run.end; j += shape->strip) {
            const int64_t strip = ordo_io_mark(fast);
            const int64_t depth = ordo_io_least(shape->strip, run.end - j);
            const ordo_io_view s = ordo_io_load(fast, x->scores, i - x->top, j, rows, depth);
            const ordo_io_view y = ordo_io_load(fast, x->operand, j, c, depth, width);
            update(job, x->lse != NULL, out, s, lse, y, i, j);
            ordo_io_release(fast, strip);
        }
    }
    ordo_io_store(fast, out, x->out, i, c);
    ordo_io_release(fast, mark);
}

void ordo_io_rows_product(const ordo_io_job *job, const ordo_io_matrix *out,
                          const ordo_io_matrix *scores, const ordo_io_matrix *lse,
                          const ordo_io_matrix *operand, int64_t top, int64_t bottom)
{
    const rows_product x = { out, scores, lse, operand, top };
    for (int64_t i = top; i < bottom; i += job->tiles.out_rows) {
        const int64_t rows = ordo_io_least(job->tiles.out_rows, bottom - i);
        if (ordo_io_live(job->shape, i, i + rows, 0, job->shape->cols))
            for (int64_t c = 0; c < out->cols; c += job->tiles.out_cols)
                product_tile(job, &x, i, rows, c);
        else
            ordo_io_store_value(job->fast, 0, out, i, 0, rows, out->cols);
    }
}

static void mat_panel(const ordo_io_job *job, int64_t top, int64_t bottom)
{
    ordo_io_loop(job->fast, "scores");
    for (int64_t i = top; i < bottom; i += job->tiles.rows) {
        const int64_t rows = ordo_io_least(job->tiles.rows, bottom - i);
        mat_scores(job, top, i, rows);
    }
    ordo_io_loop(job->fast, "output");
    ordo_io_rows_product(job, &job->o, &job->p, &job->lse, &job->v, top, bottom);
}

void ordo_io_forward_mat(const ordo_io_job *job)
{
    for (int64_t top = 0; top < job->shape->rows; top += job->tiles.panel)
        mat_panel(job, top, ordo_io_least(job->shape->rows, top + job->tiles.panel));
}
