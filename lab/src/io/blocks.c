/* blocks.c: arithmetic on blocks in fast memory. Each function fails if a block is not in fast
 * memory.
 *
 * A cache sees the order of accesses, so that order is fixed: products are plain triple loops, one
 * element of the result after the other. */
#include <math.h>

#include "io/job.h"

#define get ordo_io_get
#define put ordo_io_put

static bool ready(ordo_io_fast *fast, ordo_io_view a, ordo_io_view b, ordo_io_view c)
{
    return ordo_io_resident(fast, a) && ordo_io_resident(fast, b) && ordo_io_resident(fast, c);
}

/* c += a b, of which either may be read transposed. */
static inline void product(ordo_io_fast *fast, ordo_io_view c, ordo_io_view a, bool a_transposed,
                           ordo_io_view b, bool b_transposed)
{
    const int64_t inner = a_transposed ? a.rows : a.cols;
    if (!ready(fast, a, b, c))
        return;
    for (int64_t i = 0; i < c.rows; i++)
        for (int64_t j = 0; j < c.cols; j++) {
            double sum = get(fast, c, i, j);
            for (int64_t t = 0; t < inner; t++)
                sum += (a_transposed ? get(fast, a, t, i) : get(fast, a, i, t)) *
                       (b_transposed ? get(fast, b, j, t) : get(fast, b, t, j));
            put(fast, c, i, j, sum);
        }
}

void ordo_io_nt(ordo_io_fast *fast, ordo_io_view c, ordo_io_view a, ordo_io_view b)
{
    product(fast, c, a, false, b, true);
}

void ordo_io_nn(ordo_io_fast *fast, ordo_io_view c, ordo_io_view a, ordo_io_view b)
{
    product(fast, c, a, false, b, false);
}

void ordo_io_tn(ordo_io_fast *fast, ordo_io_view c, ordo_io_view a, ordo_io_view b)
{
    product(fast, c, a, true, b, false);
}

void ordo_io_strip_product(const ordo_io_job *job, ordo_io_view s, const ordo_io_matrix *a,
                           int64_t i, const ordo_io_matrix *b, int64_t j)
{
    for (int64_t c = 0; c < a->cols; c += job->shape->strip) {
        const int64_t mark = ordo_io_mark(job->fast);
        const int64_t width = ordo_io_least(job->shape->strip, a->cols - c);
        const ordo_io_view left = ordo_io_load(job->fast, a, i, c, s.rows, width);
        const ordo_io_view right = ordo_io_load(job->fast, b, j, c, s.cols, width);
        ordo_io_nt(job->fast, s, left, right);
        ordo_io_release(job->fast, mark);
    }
}

void ordo_io_gemm(const ordo_io_job *job, const ordo_io_matrix *c, const ordo_io_matrix *a,
                  bool transposed, const ordo_io_matrix *b, int64_t tile_rows, int64_t tile_cols)
{
    ordo_io_fast *fast = job->fast;
    const int64_t inner = transposed ? a->rows : a->cols;
    for (int64_t i = 0; i < c->rows; i += tile_rows)
        for (int64_t j = 0; j < c->cols; j += tile_cols) {
            const int64_t mark = ordo_io_mark(fast);
            const int64_t rows = ordo_io_least(tile_rows, c->rows - i);
            const int64_t cols = ordo_io_least(tile_cols, c->cols - j);
            const ordo_io_view out = ordo_io_fresh(fast, c, i, j, rows, cols);
            for (int64_t t = 0; t < inner; t += job->shape->strip) {
                const int64_t strip = ordo_io_mark(fast);
                const int64_t depth = ordo_io_least(job->shape->strip, inner - t);
                const ordo_io_view right = ordo_io_load(fast, b, t, j, depth, cols);
                if (transposed)
                    ordo_io_tn(fast, out, ordo_io_load(fast, a, t, i, depth, rows), right);
                else
                    ordo_io_nn(fast, out, ordo_io_load(fast, a, i, t, rows, depth), right);
                ordo_io_release(fast, strip);
            }
            ordo_io_store(fast, out, c, i, j);
            ordo_io_release(fast, mark);
        }
}

/* ---- softmax ---- */

void ordo_io_logits(const ordo_io_job *job, ordo_io_view s, int64_t i, int64_t j)
{
    if (!ordo_io_resident(job->fast, s))
        return;
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t c = 0; c < s.cols; c++)
            put(job->fast, s, r, c,
                ordo_io_visible(job->shape, i + r, j + c) ? job->scale * get(job->fast, s, r, c)
                                                          : -INFINITY);
}

/* exp(x - m); 0 if both are -inf, as in a row without a visible element. */
static double exp_below(double x, double m)
{
    return x == -INFINITY ? 0 : exp(x - m);
}

/* Store the new maximum of row r; return alpha, the factor for sums over the old maximum. */
static double raise_maximum(ordo_io_fast *fast, ordo_io_view s, ordo_io_view m, int64_t r,
                            double *alpha)
{
    const double before = get(fast, m, r, 0);
    double largest = before;
    for (int64_t c = 0; c < s.cols; c++) {
        const double x = get(fast, s, r, c);
        largest = x > largest ? x : largest;
    }
    put(fast, m, r, 0, largest);
    *alpha = exp_below(before, largest);
    return largest;
}

double ordo_io_online(const ordo_io_job *job, ordo_io_view s, ordo_io_view m, ordo_io_view l,
                      int64_t r)
{
    ordo_io_fast *fast = job->fast;
    double factor, sum = 0;
    if (!ready(fast, s, m, l))
        return 0;
    const double largest = raise_maximum(fast, s, m, r, &factor);
    for (int64_t c = 0; c < s.cols; c++)
        sum += exp_below(get(fast, s, r, c), largest);
    put(fast, l, r, 0, factor * get(fast, l, r, 0) + sum);
    return factor;
}

double ordo_io_online_soften(const ordo_io_job *job, ordo_io_view s, ordo_io_view m, ordo_io_view l,
                             int64_t r, int64_t i, int64_t j)
{
    ordo_io_fast *fast = job->fast;
    double factor, sum = 0;
    if (!ready(fast, s, m, l))
        return 0;
    const double largest = raise_maximum(fast, s, m, r, &factor);
    for (int64_t c = 0; c < s.cols; c++) {
        const double e = exp_below(get(fast, s, r, c), largest);
        sum += e; /* dropout acts after the softmax, so dropped elements count in this sum */
        put(fast, s, r, c, e * ordo_io_kept(job, i + r, j + c));
    }
    put(fast, l, r, 0, factor * get(fast, l, r, 0) + sum);
    return factor;
}

void ordo_io_scale_row(ordo_io_fast *fast, ordo_io_view o, int64_t r, double factor)
{
    if (!ordo_io_resident(fast, o))
        return;
    for (int64_t c = 0; c < o.cols; c++)
        put(fast, o, r, c, get(fast, o, r, c) * factor);
}

void ordo_io_rescale(ordo_io_fast *fast, ordo_io_view o, ordo_io_view alpha)
{
    if (!ready(fast, o, alpha, alpha))
        return;
    for (int64_t r = 0; r < o.rows; r++)
        for (int64_t c = 0; c < o.cols; c++)
            put(fast, o, r, c, get(fast, o, r, c) * get(fast, alpha, r, 0));
}

void ordo_io_normalise(ordo_io_fast *fast, ordo_io_view o, ordo_io_view l)
{
    if (!ready(fast, o, l, l))
        return;
    for (int64_t r = 0; r < o.rows; r++)
        for (int64_t c = 0; c < o.cols; c++) {
            const double sum = get(fast, l, r, 0);
            put(fast, o, r, c, sum > 0 ? get(fast, o, r, c) / sum : 0);
        }
}

void ordo_io_finish_lse(ordo_io_fast *fast, ordo_io_view m, ordo_io_view l)
{
    if (!ready(fast, m, l, l))
        return;
    for (int64_t r = 0; r < m.rows; r++) {
        const double sum = get(fast, l, r, 0);
        put(fast, m, r, 0, sum > 0 ? get(fast, m, r, 0) + log(sum) : -INFINITY);
    }
}

void ordo_io_probabilities(const ordo_io_job *job, ordo_io_view s, ordo_io_view lse, int64_t i,
                           int64_t j)
{
    ordo_io_fast *fast = job->fast;
    if (!ready(fast, s, lse, lse))
        return;
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t c = 0; c < s.cols; c++)
            put(fast, s, r, c,
                ordo_io_visible(job->shape, i + r, j + c)
                    ? exp(job->scale * get(fast, s, r, c) - get(fast, lse, r, 0))
                    : 0);
}

/* ---- gradients ---- */

void ordo_io_score_gradient(const ordo_io_job *job, ordo_io_view dp, ordo_io_view p,
                            ordo_io_view delta, int64_t i, int64_t j)
{
    ordo_io_fast *fast = job->fast;
    if (!ready(fast, dp, p, delta))
        return;
    for (int64_t r = 0; r < dp.rows; r++)
        for (int64_t c = 0; c < dp.cols; c++) {
            const double kept = ordo_io_kept(job, i + r, j + c) * get(fast, dp, r, c);
            put(fast, dp, r, c, job->scale * get(fast, p, r, c) * (kept - get(fast, delta, r, 0)));
        }
}

void ordo_io_value_gradient(const ordo_io_job *job, ordo_io_view dv, ordo_io_view p,
                            ordo_io_view dout, int64_t i, int64_t j)
{
    ordo_io_fast *fast = job->fast;
    if (!ready(fast, dv, p, dout))
        return;
    for (int64_t c = 0; c < dv.rows; c++)
        for (int64_t d = 0; d < dv.cols; d++) {
            double sum = get(fast, dv, c, d);
            for (int64_t r = 0; r < p.rows; r++)
                sum += get(fast, p, r, c) * ordo_io_kept(job, i + r, j + c) * get(fast, dout, r, d);
            put(fast, dv, c, d, sum);
        }
}

void ordo_io_delta(const ordo_io_job *job)
{
    ordo_io_fast *fast = job->fast;
    ordo_io_loop(fast, "delta");
    for (int64_t i = 0; i < job->shape->rows; i++) {
        const int64_t mark = ordo_io_mark(fast);
        const ordo_io_view sum = ordo_io_fresh(fast, &job->delta, i, 0, 1, 1);
        for (int64_t c = 0; c < job->shape->dv; c++) {
            const int64_t words = ordo_io_mark(fast);
            const ordo_io_view o = ordo_io_load(fast, &job->o, i, c, 1, 1);
            const ordo_io_view dout = ordo_io_load(fast, &job->dout, i, c, 1, 1);
            ordo_io_nn(fast, sum, o, dout);
            ordo_io_release(fast, words);
        }
        ordo_io_store(fast, sum, &job->delta, i, 0);
        ordo_io_release(fast, mark);
    }
}
