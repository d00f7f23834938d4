/* gradient.c: dL/dX of L = |D^-1 exp(A1 X A2') A3 Y - E|^2 / 2, the backward pass that Li et al.
 * analyse ("Fine-grained Attention I/O Complexity", 2024). With q = A1 X, k = A2, v = A3 Y and dout
 * = o - E it is A1' dq. q, v, o and dq are computed here and stay in slow memory. */
#include <math.h>

#include "io/job.h"
#include "io/words.h"

/* dout = o - E and delta = row sums of o dout, in one pass over the rows. */
static void residual(const ordo_io_job *job)
{
    ordo_io_fast *fast = job->fast;
    ordo_io_loop(fast, "residual");
    for (int64_t i = 0; i < job->shape->rows; i++) {
        const int64_t mark = ordo_io_mark(fast);
        const ordo_io_view sum = ordo_io_fresh(fast, &job->delta, i, 0, 1, 1);
        for (int64_t c = 0; c < job->shape->dv; c++) {
            const int64_t words = ordo_io_mark(fast);
            const ordo_io_view o = ordo_io_load(fast, &job->o, i, c, 1, 1);
            const ordo_io_view e = ordo_io_load(fast, &job->e, i, c, 1, 1);
            const ordo_io_view dout = ordo_io_fresh(fast, &job->dout, i, c, 1, 1);
            if (ordo_io_resident(fast, dout))
                ordo_io_put(fast, dout, 0, 0,
                            ordo_io_get(fast, o, 0, 0) - ordo_io_get(fast, e, 0, 0));
            ordo_io_nn(fast, sum, o, dout);
            ordo_io_store(fast, dout, &job->dout, i, c);
            ordo_io_release(fast, words);
        }
        ordo_io_store(fast, sum, &job->delta, i, 0);
        ordo_io_release(fast, mark);
    }
}

/* One row of dp and of its logits: dp = p (dp - delta). */
static void score_row(const ordo_io_job *job, ordo_io_view dp, int64_t i, int64_t j)
{
    ordo_io_fast *fast = job->fast;
    const int64_t mark = ordo_io_mark(fast);
    const ordo_io_view s = ordo_io_load(fast, &job->p, i, j, 1, dp.cols);
    const ordo_io_view lse = ordo_io_load(fast, &job->lse, i, 0, 1, 1);
    const ordo_io_view delta = ordo_io_load(fast, &job->delta, i, 0, 1, 1);
    if (ordo_io_resident(fast, delta))
        for (int64_t c = 0; c < dp.cols; c++)
            ordo_io_put(fast, dp, 0, c,
                        exp(ordo_io_get(fast, s, 0, c) - ordo_io_get(fast, lse, 0, 0)) *
                            (ordo_io_get(fast, dp, 0, c) - ordo_io_get(fast, delta, 0, 0)));
    ordo_io_release(fast, mark);
}

/* Replace the logits in slow memory by score gradients, tile by tile. */
static void scores(const ordo_io_job *job, int64_t height, int64_t width)
{
    ordo_io_fast *fast = job->fast;
    ordo_io_loop(fast, "ds");
    for (int64_t i = 0; i < job->shape->rows; i += height)
        for (int64_t j = 0; j < job->shape->cols; j += width) {
            const int64_t mark = ordo_io_mark(fast);
            const int64_t rows = ordo_io_least(height, job->shape->rows - i);
            const int64_t cols = ordo_io_least(width, job->shape->cols - j);
            const ordo_io_view dp = ordo_io_fill(fast, rows, cols, 0);
            ordo_io_strip_product(job, dp, &job->dout, i, &job->v, j);
            for (int64_t r = 0; r < dp.rows; r++)
                score_row(job, (ordo_io_view) { dp.data + r * dp.ld, dp.ld, 1, cols }, i + r, j);
            ordo_io_store(fast, dp, &job->p, i, j);
            ordo_io_release(fast, mark);
        }
}

static void run(const ordo_io_job *job, ordo_io_algorithm algorithm)
{
    ordo_io_gradient st;
    if (!ordo_io_gradient_tiles(job->shape, algorithm, &st)) {
        job->fast->wrong = "fast memory overflows";
        return;
    }
    ordo_io_job inner = *job;
    inner.shape = &st.inner;
    inner.tiles = st.forward;
    ordo_io_loop(job->fast, "project");
    ordo_io_gemm(job, &job->q, &job->a1, false, &job->x, st.project.tile_rows,
                 st.project.tile_cols);
    ordo_io_gemm(job, &job->v, &job->a3, false, &job->y, st.project.tile_rows,
                 st.project.tile_cols);
    if (algorithm == ORDO_IO_FLASH)
        ordo_io_forward_flash(&inner);
    else
        ordo_io_forward_mat(&inner);
    residual(job);
    if (algorithm == ORDO_IO_FLASH) {
        ordo_io_backward_rows(&inner, st.rows, st.cols);
    } else {
        scores(job, st.rows, st.cols);
        ordo_io_loop(job->fast, "dq");
        ordo_io_gemm(job, &job->dq, &job->p, false, &job->k, st.dq.tile_rows, st.dq.tile_cols);
    }
    ordo_io_loop(job->fast, "g");
    ordo_io_gemm(job, &job->g, &job->a1, true, &job->dq, st.g.tile_rows, st.g.tile_cols);
}

void ordo_io_gradient_phase(const ordo_io_job *job)
{
    run(job, ORDO_IO_PHASE);
}

void ordo_io_gradient_flash(const ordo_io_job *job)
{
    run(job, ORDO_IO_FLASH);
}
