/* head.c: attention of one head, forward and backward, in double. */
#include "ref/head.h"

#include "base/bias.h"

#include <math.h>

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++)
        sum += a[d] * b[d];
    return sum;
}

/* y += a * x */
static void add(double *y, double a, const double *x, int64_t n)
{
    for (int64_t d = 0; d < n; d++)
        y[d] += a * x[d];
}

/* The larger of the two, and NaN if either is. */
static double larger(double a, double b)
{
    return isnan(a) || a >= b ? a : b;
}

/* How far column j lies right of the diagonal of row i, in the whole sequence. */
static int64_t offset(const ordo_ref_head *h, int64_t i, int64_t j)
{
    return (h->col0 + j) - (h->row0 + i) - h->diagonal;
}

static bool visible(const ordo_ref_head *h, int64_t i, int64_t j)
{
    const ordo_problem *p = h->problem;
    const int64_t right_of = offset(h, i, j);

    if (j < h->start || (p->mask != ORDO_MASK_FULL && right_of > 0))
        return false;
    if (p->window.on && p->window.left >= 0 && right_of < -p->window.left)
        return false;
    if (p->window.on && p->window.right >= 0 && right_of > p->window.right)
        return false;
    if (h->bias && h->bias[i * h->cols + j] < (double)ORDO_BIAS_LEAST)
        return false;
    return !h->blocks.start || ordo_block_sees(&h->blocks, i, j);
}

static double product(const ordo_ref_head *h, int64_t i, int64_t j)
{
    const int64_t dim = h->problem->head_dim;
    return h->problem->scale * dot(h->q + i * dim, h->k + j * dim, dim);
}

static double cap(const ordo_ref_head *h, double x)
{
    const double c = h->problem->softcap;
    return c > 0 ? c * tanh(x / c) : x;
}

/* Derivative of cap: 1 - tanh^2, written so that it does not cancel where tanh is near 1. */
static double cap_slope(const ordo_ref_head *h, double x)
{
    const double c = h->problem->softcap;
    return c > 0 ? 1 / (cosh(x / c) * cosh(x / c)) : 1;
}

static double logit(const ordo_ref_head *h, int64_t i, int64_t j)
{
    double x = cap(h, product(h, i, j));
    if (h->problem->alibi)
        x -= h->slope * fabs((double)offset(h, i, j));
    return h->bias ? x + h->bias[i * h->cols + j] : x;
}

/* What dropout multiplies P_ij by: 0, or the scale of what is kept. */
static double kept(const ordo_ref_head *h, int64_t i, int64_t j)
{
    if (h->keep_scale == 0)
        return 1;
    const bool keep = h->bits ? ordo_keep_stored(h->bits, h->bits_cols, i, j)
                              : ordo_keep_element(&h->keep, h->bh, (uint32_t)(h->row0 + i),
                                                  (uint32_t)(h->col0 + j));
    return keep ? h->keep_scale : 0;
}

void ordo_ref_head_forward(const ordo_ref_head *h)
{
    const int64_t v_dim = h->problem->v_head_dim;

    for (int64_t i = 0; i < h->rows; i++) {
        double *o = h->o + i * v_dim;
        double largest = -INFINITY, sum = 0;

        for (int64_t j = 0; j < h->cols; j++)
            if (visible(h, i, j)) {
                h->logits[j] = logit(h, i, j);
                largest = larger(largest, h->logits[j]);
            }

        const double sink = h->sink ? *h->sink : -INFINITY;
        h->lse[i] = sink;
        for (int64_t d = 0; d < v_dim; d++)
            o[d] = 0;
        if (largest == -INFINITY) /* sees nothing: o = 0 */
            continue;
        if (sink != -INFINITY) {
            largest = larger(largest, sink);
            sum = exp(sink - largest);
        }

        for (int64_t j = 0; j < h->cols; j++)
            if (visible(h, i, j)) {
                const double e = exp(h->logits[j] - largest);
                sum += e; /* dropout acts after the softmax: dropped terms count here */
                add(o, e * kept(h, i, j), h->v + j * v_dim, v_dim);
            }
        for (int64_t d = 0; d < v_dim; d++)
            o[d] /= sum;
        h->lse[i] = largest + log(sum);
    }
}

/* With O = (P * keep) V and S the logits:
 *
 *   dV = (P * keep)^T dO        dP = keep * (dO V^T)
 *   dS = P * (dP - rowsum(dO * O) + dlse)
 *
 * and back through cap and scale to q and k; dS is the gradient of a bias. The sink's share of the
 * softmax is p_i with no value: dsink = -sum p_i (rowsum(dO * O) - dlse). P is recomputed from lse:
 * with keys split over shards, lse and o are those of the whole row, and each shard's gradients add
 * up. */
void ordo_ref_head_backward(const ordo_ref_head *h)
{
    const int64_t dim = h->problem->head_dim, v_dim = h->problem->v_head_dim;

    for (int64_t i = 0; i < h->rows; i++) {
        const double *q = h->q + i * dim, *dout = h->dout + i * v_dim;
        double *dq = h->dq + i * dim;

        for (int64_t d = 0; d < dim; d++)
            dq[d] = 0;
        if (h->lse[i] == -INFINITY) /* saw nothing: gradients 0 */
            continue;

        const double delta = dot(dout, h->o + i * v_dim, v_dim);
        if (h->dsink && h->sink && *h->sink != -INFINITY)
            *h->dsink -= exp(*h->sink - h->lse[i]) * (delta - (h->dlse ? h->dlse[i] : 0));
        for (int64_t j = 0; j < h->cols; j++)
            if (visible(h, i, j)) {
                const double *k = h->k + j * dim, *v = h->v + j * v_dim;
                const double p = exp(logit(h, i, j) - h->lse[i]), keep = kept(h, i, j);
                const double dp = keep * dot(dout, v, v_dim);
                const double ds = p * (dp - delta + (h->dlse ? h->dlse[i] : 0));
                const double dx = h->problem->scale * cap_slope(h, product(h, i, j)) * ds;

                if (h->dbias)
                    h->dbias[i * h->dbias_row + j] += ds;
                add(dq, dx, k, dim);
                add(h->dk + j * dim, dx, q, dim);
                add(h->dv + j * v_dim, p * keep, dout, v_dim);
            }
    }
}
