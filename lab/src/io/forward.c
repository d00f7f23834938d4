/* forward.c: the forward algorithms that keep no scores in slow memory. */
#include <math.h>

#include "io/job.h"

/* Rows without a visible column. */
static void store_blind(const ordo_io_job *job, int64_t i, int64_t rows)
{
    ordo_io_store_value(job->fast, 0, &job->o, i, 0, rows, job->shape->dv);
    ordo_io_store_value(job->fast, -INFINITY, &job->lse, i, 0, rows, 1);
}

/* Every tile of rows that sees a column. */
static void visit_rows(const ordo_io_job *job, const char *loop,
                       void (*visit)(const ordo_io_job *job, int64_t i, int64_t rows))
{
    const ordo_io_shape *shape = job->shape;
    ordo_io_loop(job->fast, loop);
    for (int64_t i = 0; i < shape->rows; i += job->tiles.rows) {
        const int64_t rows = ordo_io_least(job->tiles.rows, shape->rows - i);
        if (ordo_io_live(shape, i, i + rows, 0, shape->cols))
            visit(job, i, rows);
        else
            store_blind(job, i, rows);
    }
}

/* What is resident while a block of rows visits its columns. */
typedef struct row_block {
    int64_t i, rows;
    ordo_io_view q, o, m, l;
} row_block;

/* ---- flash: a block of rows is resident, keys and values are streamed ---- */

/* Add the logits of a tile to the row statistics and rescale o row by row, at once. */
static void absorb(const ordo_io_job *job, const row_block *b, ordo_io_view s, int64_t j)
{
    ordo_io_logits(job, s, b->i, j);
    for (int64_t r = 0; r < s.rows; r++)
        ordo_io_scale_row(job->fast, b->o, r,
                          ordo_io_online_soften(job, s, b->m, b->l, r, b->i, j));
}

static void flash_tile(const ordo_io_job *job, const row_block *b, int64_t j, int64_t cols)
{
    ordo_io_fast *fast = job->fast;
    const int64_t mark = ordo_io_mark(fast);
    const ordo_io_view s = ordo_io_fill(fast, b->rows, cols, 0);
    const int64_t keys = ordo_io_mark(fast);
    ordo_io_nt(fast, s, b->q, ordo_io_load(fast, &job->k, j, 0, cols, job->shape->dk));
    ordo_io_release(fast, keys); /* values replace the keys in fast memory */
    absorb(job, b, s, j);
    ordo_io_nn(fast, b->o, s, ordo_io_load(fast, &job->v, j, 0, cols, job->shape->dv));
    ordo_io_release(fast, mark);
}

static void flash_rows(const ordo_io_job *job, int64_t i, int64_t rows)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    const int64_t mark = ordo_io_mark(fast), width = job->tiles.cols;
    const row_block b = { i,
                          rows,
                          ordo_io_load(fast, &job->q, i, 0, rows, shape->dk),
                          ordo_io_fresh(fast, &job->o, i, 0, rows, shape->dv),
                          ordo_io_fill(fast, rows, 1, -INFINITY),
                          ordo_io_fill(fast, rows, 1, 0) };
    for (int64_t j = 0; j < shape->cols; j += width) {
        const int64_t cols = ordo_io_least(width, shape->cols - j);
        if (ordo_io_live(shape, i, i + rows, j, j + cols))
            flash_tile(job, &b, j, cols);
    }
    ordo_io_normalise(fast, b.o, b.l);
    ordo_io_finish_lse(fast, b.m, b.l);
    ordo_io_store(fast, b.o, &job->o, i, 0);
    ordo_io_store(fast, b.m, &job->lse, i, 0);
    ordo_io_release(fast, mark);
}

void ordo_io_forward_flash(const ordo_io_job *job)
{
    visit_rows(job, "rows", flash_rows);
}

/* ---- flash1: keys and values are resident, rows are streamed; o, m and l are read and written
 * ---- */

static void flash1_tile(const ordo_io_job *job, ordo_io_view k, ordo_io_view v, int64_t i,
                        int64_t rows, int64_t j)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    const int64_t mark = ordo_io_mark(fast);
    const bool first = !ordo_io_live(shape, i, i + rows, 0, j);
    const bool last = !ordo_io_live(shape, i, i + rows, j + k.rows, shape->cols);
    const row_block b = { i,
                          rows,
                          ordo_io_load(fast, &job->q, i, 0, rows, shape->dk),
                          ordo_io_modify(fast, &job->o, i, 0, rows, shape->dv, first),
                          ordo_io_modify(fast, &job->lse, i, 0, rows, 1, first),
                          ordo_io_modify(fast, &job->sum, i, 0, rows, 1, first) };
    for (int64_t r = 0; first && r < b.m.rows; r++)
        ordo_io_put(fast, b.m, r, 0, -INFINITY);
    const ordo_io_view s = ordo_io_fill(fast, rows, k.rows, 0);
    ordo_io_nt(fast, s, b.q, k);
    absorb(job, &b, s, j);
    ordo_io_nn(fast, b.o, s, v);
    if (last) {
        ordo_io_normalise(fast, b.o, b.l);
        ordo_io_finish_lse(fast, b.m, b.l);
    }
    ordo_io_store(fast, b.o, &job->o, i, 0);
    ordo_io_store(fast, b.m, &job->lse, i, 0);
    ordo_io_store(fast, b.l, &job->sum, i, 0);
    ordo_io_release(fast, mark);
}

static void flash1_cols(const ordo_io_job *job, int64_t j, int64_t cols)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    const int64_t mark = ordo_io_mark(fast);
    const ordo_io_view k = ordo_io_load(fast, &job->k, j, 0, cols, shape->dk);
    const ordo_io_view v = ordo_io_load(fast, &job->v, j, 0, cols, shape->dv);
    for (int64_t i = 0; i < shape->rows; i += job->tiles.rows) {
        const int64_t rows = ordo_io_least(job->tiles.rows, shape->rows - i);
        if (ordo_io_live(shape, i, i + rows, j, j + cols))
            flash1_tile(job, k, v, i, rows, j);
    }
    ordo_io_release(fast, mark);
}

void ordo_io_forward_flash1(const ordo_io_job *job)
{
    const ordo_io_shape *shape = job->shape;
    ordo_io_loop(job->fast, "columns");
    for (int64_t j = 0; j < shape->cols; j += job->tiles.cols) {
        const int64_t cols = ordo_io_least(job->tiles.cols, shape->cols - j);
        if (ordo_io_live(shape, 0, shape->rows, j, j + cols))
            flash1_cols(job, j, cols);
    }
    for (int64_t i = 0; i < shape->rows; i += job->tiles.rows) {
        const int64_t rows = ordo_io_least(job->tiles.rows, shape->rows - i);
        if (!ordo_io_live(shape, i, i + rows, 0, shape->cols))
            store_blind(job, i, rows);
    }
}

/* ---- fused: a tile of scores is resident, strips of everything else are streamed ---- */

static void fused_output(const ordo_io_job *job, const row_block *b, ordo_io_view s,
                         ordo_io_view alpha, int64_t j, bool first, bool last)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    for (int64_t c = 0; c < shape->dv; c += shape->strip) {
        const int64_t mark = ordo_io_mark(fast);
        const int64_t width = ordo_io_least(shape->strip, shape->dv - c);
        const ordo_io_view o = ordo_io_modify(fast, &job->o, b->i, c, b->rows, width, first);
        const ordo_io_view v = ordo_io_load(fast, &job->v, j, c, s.cols, width);
        ordo_io_rescale(fast, o, alpha);
        ordo_io_nn(fast, o, s, v);
        if (last)
            ordo_io_normalise(fast, o, b->l);
        ordo_io_store(fast, o, &job->o, b->i, c);
        ordo_io_release(fast, mark);
    }
}

static void fused_rows(const ordo_io_job *job, int64_t i, int64_t rows)
{
    ordo_io_fast *fast = job->fast;
    const ordo_io_shape *shape = job->shape;
    const int64_t mark = ordo_io_mark(fast), width = job->tiles.cols;
    const row_block b = { .i = i,
                          .rows = rows,
                          .m = ordo_io_fill(fast, rows, 1, -INFINITY),
                          .l = ordo_io_fill(fast, rows, 1, 0) };
    const ordo_io_view alpha = ordo_io_fill(fast, rows, 1, 0);
    bool first = true;
    for (int64_t j = 0; j < shape->cols; j += width) {
        const int64_t cols = ordo_io_least(width, shape->cols - j), tile = ordo_io_mark(fast);
        if (!ordo_io_live(shape, i, i + rows, j, j + cols))
            continue;
        const ordo_io_view s = ordo_io_fill(fast, rows, cols, 0);
        ordo_io_strip_product(job, s, &job->q, i, &job->k, j);
        ordo_io_logits(job, s, i, j);
        for (int64_t r = 0; r < s.rows; r++)
            ordo_io_put(fast, alpha, r, 0, ordo_io_online_soften(job, s, b.m, b.l, r, i, j));
        fused_output(job, &b, s, alpha, j, first,
                     !ordo_io_live(shape, i, i + rows, j + cols, shape->cols));
        ordo_io_release(fast, tile);
        first = false;
    }
    ordo_io_finish_lse(fast, b.m, b.l);
    ordo_io_store(fast, b.m, &job->lse, i, 0);
    ordo_io_release(fast, mark);
}

void ordo_io_forward_fused(const ordo_io_job *job)
{
    visit_rows(job, "tiles", fused_rows);
}
