/* backward.c: the backward algorithms that keep no scores in slow memory. */
#include "io/job.h"

/* ---- flash: keys, values and their gradients are resident, rows are streamed ---- */

typedef struct col_block {
    int64_t j, cols;
    ordo_io_view k, v, dk, dv;
} col_block;

/* The blocks of a tile: streamed rows, and p and ds of these rows with a block of columns. */
typedef struct row_visit {
    ordo_io_view q, dout, lse, delta, p, ds;
} row_visit;

static row_visit load_rows(const ordo_io_job *job, int64_t i, int64_t rows)
{
    ordo_io_fast *fast = job->fast;
    return (row_visit) { .q = ordo_io_load(fast, &job->q, i, 0, rows, job->shape->dk),
                         .dout = ordo_io_load(fast, &job->dout, i, 0, rows, job->shape->dv),
                         .lse = ordo_io_load(fast, &job->lse, i, 0, rows, 1),
                         .delta = ordo_io_load(fast, &job->delta, i, 0, rows, 1) };
}

static void flash_tile(const ordo_io_job *job, const col_block *b, int64_t i, int64_t rows,
                       bool with_dq)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    const int64_t mark = ordo_io_mark(fast);
    row_visit r = load_rows(job, i, rows);
    r.p = ordo_io_fill(fast, rows, b->cols, 0);
    r.ds = ordo_io_fill(fast, rows, b->cols, 0);
    ordo_io_nt(fast, r.p, r.q, b->k);
    ordo_io_probabilities(job, r.p, r.lse, i, b->j);
    ordo_io_value_gradient(job, b->dv, r.p, r.dout, i, b->j);
    ordo_io_nt(fast, r.ds, r.dout, b->v);
    ordo_io_score_gradient(job, r.ds, r.p, r.delta, i, b->j);
    ordo_io_tn(fast, b->dk, r.ds, r.q);
    if (with_dq) {
        const bool first = !ordo_io_live(shape, i, i + rows, 0, b->j);
        const ordo_io_view dq = ordo_io_modify(fast, &job->dq, i, 0, rows, shape->dk, first);
        ordo_io_nn(fast, dq, r.ds, b->k);
        ordo_io_store(fast, dq, &job->dq, i, 0);
    }
    ordo_io_release(fast, mark);
}

static void flash_cols(const ordo_io_job *job, int64_t j, int64_t cols, bool with_dq)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    const int64_t mark = ordo_io_mark(fast);
    const col_block b = { j,
                          cols,
                          ordo_io_load(fast, &job->k, j, 0, cols, shape->dk),
                          ordo_io_load(fast, &job->v, j, 0, cols, shape->dv),
                          ordo_io_fresh(fast, &job->dk, j, 0, cols, shape->dk),
                          ordo_io_fresh(fast, &job->dv, j, 0, cols, shape->dv) };
    for (int64_t i = 0; i < shape->rows; i += job->tiles.rows) {
        const int64_t rows = ordo_io_least(job->tiles.rows, shape->rows - i);
        if (ordo_io_live(shape, i, i + rows, j, j + cols))
            flash_tile(job, &b, i, rows, with_dq);
    }
    ordo_io_store(fast, b.dk, &job->dk, j, 0);
    ordo_io_store(fast, b.dv, &job->dv, j, 0);
    ordo_io_release(fast, mark);
}

/* Store zero gradients of hidden columns and of rows without a visible column, tile by tile. */
static void store_unseen_cols(const ordo_io_job *job, int64_t j, int64_t cols)
{
    ordo_io_store_value(job->fast, 0, &job->dk, j, 0, cols, job->shape->dk);
    ordo_io_store_value(job->fast, 0, &job->dv, j, 0, cols, job->shape->dv);
}
static void store_blind_rows(const ordo_io_job *job, int64_t height)
{
    const ordo_io_shape *shape = job->shape;
    for (int64_t i = 0; i < shape->rows; i += height) {
        const int64_t rows = ordo_io_least(height, shape->rows - i);
        if (!ordo_io_live(shape, i, i + rows, 0, shape->cols))
            ordo_io_store_value(job->fast, 0, &job->dq, i, 0, rows, shape->dk);
    }
}

static void flash_columns(const ordo_io_job *job, bool with_dq)
{
    const ordo_io_shape *shape = job->shape;
    ordo_io_loop(job->fast, "columns");
    for (int64_t j = 0; j < shape->cols; j += job->tiles.cols) {
        const int64_t cols = ordo_io_least(job->tiles.cols, shape->cols - j);
        if (ordo_io_live(shape, 0, shape->rows, j, j + cols))
            flash_cols(job, j, cols, with_dq);
        else
            store_unseen_cols(job, j, cols);
    }
}

void ordo_io_backward_flash(const ordo_io_job *job)
{
    ordo_io_delta(job);
    flash_columns(job, true);
    store_blind_rows(job, job->tiles.rows);
}

/* ---- apart: dk and dv as above, then dq with rows resident ---- */

static void rows_tile(const ordo_io_job *job, const row_visit *r, ordo_io_view dq, int64_t i,
                      int64_t j, int64_t cols)
{
    ordo_io_fast *fast = job->fast;
    const int64_t mark = ordo_io_mark(fast);
    const ordo_io_view p = ordo_io_fill(fast, dq.rows, cols, 0);
    const ordo_io_view ds = ordo_io_fill(fast, dq.rows, cols, 0);
    const int64_t values = ordo_io_mark(fast);
    ordo_io_nt(fast, ds, r->dout, ordo_io_load(fast, &job->v, j, 0, cols, job->shape->dv));
    ordo_io_release(fast, values); /* keys replace the values in fast memory */
    const ordo_io_view k = ordo_io_load(fast, &job->k, j, 0, cols, job->shape->dk);
    ordo_io_nt(fast, p, r->q, k);
    ordo_io_probabilities(job, p, r->lse, i, j);
    ordo_io_score_gradient(job, ds, p, r->delta, i, j);
    ordo_io_nn(fast, dq, ds, k);
    ordo_io_release(fast, mark);
}

void ordo_io_backward_rows(const ordo_io_job *job, int64_t height, int64_t width)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    ordo_io_loop(fast, "rows");
    for (int64_t i = 0; i < shape->rows; i += height) {
        const int64_t mark = ordo_io_mark(fast), rows = ordo_io_least(height, shape->rows - i);
        if (!ordo_io_live(shape, i, i + rows, 0, shape->cols))
            continue;
        const row_visit r = load_rows(job, i, rows);
        const ordo_io_view dq = ordo_io_fresh(fast, &job->dq, i, 0, rows, shape->dk);
        for (int64_t j = 0; j < shape->cols; j += width) {
            const int64_t cols = ordo_io_least(width, shape->cols - j);
            if (ordo_io_live(shape, i, i + rows, j, j + cols))
                rows_tile(job, &r, dq, i, j, cols);
        }
        ordo_io_store(fast, dq, &job->dq, i, 0);
        ordo_io_release(fast, mark);
    }
    store_blind_rows(job, height);
}

void ordo_io_backward_apart(const ordo_io_job *job)
{
    ordo_io_delta(job);
    flash_columns(job, false);
    ordo_io_backward_rows(job, job->tiles.out_rows, job->tiles.out_cols);
}

/* ---- fused: tiles of p and dp are resident, strips of everything else are streamed ---- */

/* dp += dout v' and dv += p' dout in one sweep: a strip of dout serves both. */
static void fused_values(const ordo_io_job *job, ordo_io_view p, ordo_io_view dp, int64_t i,
                         int64_t j, bool first)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    for (int64_t c = 0; c < shape->dv; c += shape->strip) {
        const int64_t mark = ordo_io_mark(fast);
        const int64_t width = ordo_io_least(shape->strip, shape->dv - c);
        const ordo_io_view dout = ordo_io_load(fast, &job->dout, i, c, p.rows, width);
        const ordo_io_view v = ordo_io_load(fast, &job->v, j, c, p.cols, width);
        const ordo_io_view dv = ordo_io_modify(fast, &job->dv, j, c, p.cols, width, first);
        ordo_io_nt(fast, dp, dout, v);
        ordo_io_value_gradient(job, dv, p, dout, i, j);
        ordo_io_store(fast, dv, &job->dv, j, c);
        ordo_io_release(fast, mark);
    }
}

static void fused_keys(const ordo_io_job *job, ordo_io_view ds, int64_t i, int64_t j,
                       bool first_rows, bool first_cols)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    for (int64_t c = 0; c < shape->dk; c += shape->strip) {
        const int64_t mark = ordo_io_mark(fast);
        const int64_t width = ordo_io_least(shape->strip, shape->dk - c);
        const ordo_io_view k = ordo_io_load(fast, &job->k, j, c, ds.cols, width);
        const ordo_io_view dq = ordo_io_modify(fast, &job->dq, i, c, ds.rows, width, first_rows);
        ordo_io_nn(fast, dq, ds, k);
        ordo_io_store(fast, dq, &job->dq, i, c);
        ordo_io_release(fast, mark);
        const ordo_io_view q = ordo_io_load(fast, &job->q, i, c, ds.rows, width);
        const ordo_io_view dk = ordo_io_modify(fast, &job->dk, j, c, ds.cols, width, first_cols);
        ordo_io_tn(fast, dk, ds, q);
        ordo_io_store(fast, dk, &job->dk, j, c);
        ordo_io_release(fast, mark);
    }
}

static void fused_tile(const ordo_io_job *job, int64_t i, int64_t rows, int64_t j, int64_t cols)
{
    ordo_io_fast *fast = job->fast;
    const int64_t mark = ordo_io_mark(fast);
    const bool first_rows = !ordo_io_live(job->shape, i, i + rows, 0, j);
    const bool first_cols = !ordo_io_live(job->shape, 0, i, j, j + cols);
    const ordo_io_view p = ordo_io_fill(fast, rows, cols, 0);
    const ordo_io_view dp = ordo_io_fill(fast, rows, cols, 0);
    ordo_io_strip_product(job, p, &job->q, i, &job->k, j);
    const ordo_io_view lse = ordo_io_load(fast, &job->lse, i, 0, rows, 1);
    const ordo_io_view delta = ordo_io_load(fast, &job->delta, i, 0, rows, 1);
    ordo_io_probabilities(job, p, lse, i, j);
    fused_values(job, p, dp, i, j, first_cols);
    ordo_io_score_gradient(job, dp, p, delta, i, j);
    fused_keys(job, dp, i, j, first_rows, first_cols);
    ordo_io_release(fast, mark);
}

void ordo_io_backward_fused(const ordo_io_job *job)
{
    const ordo_io_shape *shape = job->shape;
    ordo_io_delta(job);
    ordo_io_loop(job->fast, "tiles");
    for (int64_t j = 0; j < shape->cols; j += job->tiles.cols) {
        const int64_t cols = ordo_io_least(job->tiles.cols, shape->cols - j);
        for (int64_t i = 0; i < shape->rows; i += job->tiles.rows) {
            const int64_t rows = ordo_io_least(job->tiles.rows, shape->rows - i);
            if (ordo_io_live(shape, i, i + rows, j, j + cols))
                fused_tile(job, i, rows, j, cols);
        }
        if (!ordo_io_live(shape, 0, shape->rows, j, j + cols))
            store_unseen_cols(job, j, cols);
    }
    store_blind_rows(job, job->tiles.rows);
}
