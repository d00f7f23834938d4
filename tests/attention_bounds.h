/* attention_bounds.h: how far from the exact answer a result in single precision may be.
 *
 * An a priori bound for every element of o, lse, dq, dk and dv, from the inputs of a case. It holds
 * for any kernel that computes as docs/guide/promise.md's cpu family does: f32 sums of fused
 * multiply-adds, a running maximum, an exp2 of relative error EXP2, one rounding on the way out.
 * With u = 2^-24 and gamma(n) = n u / (1 - n u), Higham's bound for a sum of n terms in any fixed
 * order is gamma(n) times the sum of their magnitudes.
 *
 * Logit, natural units. s = <q, k> is off by gamma(D) sum |q||k|; scale * log2(e) and the product
 * with it are each rounded, and so is s itself: 3 u |scale s|. A soft cap divides (4 u), takes a
 * tanh off by 8 u |tanh| (cap_error() below), and multiplies again (4 u). ALiBi adds 2 u |bias| and
 * a rounding of the sum; so does a bias. Call the total x_error.
 *
 * Forward. p = exp(x - m) for a running maximum m, later multiplied by exp(m - m') once a key
 * tile. Both subtractions round, and since x <= m <= max they cost at most 3 u (max - x) together;
 * each of the N tiles costs another exp2 and two products. So p is off by
 *
 *   r = x_error + 3 u (max - x) + (N + 1)(EXP2 + 2 u)       relative,
 *
 * or vanishes below 2^-126. l = sum p, by one chain per tile and one over tiles: r averaged by P,
 * plus gamma(Bk + 6 + N). lse = log l + m: that, and u |lse|. o = sum p v / l: each term off by r +
 * r_l, the chain by gamma(kv + 2 N + 5).
 *
 * Backward, given lse and o: P = exp2(x log2(e) - lse2) is off by r = x_error + 2 u |lse| +
 * 2 u |x - lse| + EXP2. dP is off by gamma(Dv) sum |dout||v| + 2 u |dP|, delta by gamma(Dv / 16 +
 * 6) sum |dout||o| and a rounding; dS multiplies the errors of P, of dP - delta and of the cap's
 * slope. dq sums over one key tile, then over tiles in turn: gamma(Bk + N + 2); dk and dv over all
 * rows and all query heads of a key head, in one chain.
 *
 * dbias adds dS before the cap's slope over the heads and sequences that share an element, in two
 * chains: gamma(heads + sequences + 2).
 *
 * A sink is one more term of l, with one more change of the maximum. Its term of a row's dsink is
 * p delta: p is off by 2 u |sink - lse| + EXP2, and the sum is in double.
 *
 * Each result is rounded once to its type: half a unit of that type. Gradual underflow adds a
 * fixed amount an operation. Second-order terms are covered by SLACK. */
#ifndef TESTS_ATTENTION_BOUNDS_H
#define TESTS_ATTENTION_BOUNDS_H

#include "attention_case.h"
#include "base/blocks.h"
#include "visible.h"

#define U     0x1p-24
#define EXP2  (1.25 * U)   /* tests/base/exp2_test.c */
#define GONE  0x1p-125     /* a probability that underflows */
#define TINY  0x1p-148     /* one operation among subnormals */
#define SLACK (1 + 0x1p-8) /* terms of second order */

typedef struct attention_bounds {
    double *at[CASE_OUTPUTS]; /* o, lse, dq, dk, dv: as many as the case has elements */
    double dsink_parts[CASE_BATCH_MAX * CASE_SLOPES];
    double *dbias;
} attention_bounds;

static inline double gamma_of(double n)
{
    return n * U / (1 - n * U);
}

/* A logit, natural units. */
typedef struct bound_logit {
    double x, x_error;
    double slope, slope_error; /* derivative of the soft cap */
} bound_logit;

/* One head of one sequence, in double. */
typedef struct bound_head {
    const ordo_problem *p; /* resolved */
    int64_t rows, cols, row_tile, col_tile;
    int64_t diagonal; /* row i is aligned with column i + diagonal */
    double slope, keep_scale;
    double sink; /* -inf: none */
    const uint32_t *bits;
    int64_t bits_cols;
    ordo_keep keep;
    uint32_t bh;
    ordo_block_view blocks; /* start NULL: no block mask */
    double *q, *k, *v, *o, *dout, *lse, *dlse;
    double *b_o, *b_lse, *b_dq;
    double *bias;                  /* rows x cols, NULL: none */
    double *b_dk, *b_dv, *b_dsink; /* bounds that are added to */
    double *b_dbias;               /* likewise, rows kv_len apart */
    bound_logit *z;                /* cols of scratch */
} bound_head;

/* Key tiles, and one more for where the first begins inside. */
static inline double tiles_of(const bound_head *h)
{
    const int64_t tiles = (h->cols + h->col_tile - 1) / h->col_tile + 1;
    return (double)tiles;
}

static inline bool bound_visible(const bound_head *h, int64_t i, int64_t j)
{
    const int64_t right = j + h->p->shard.col0 - i - h->p->shard.row0 - h->diagonal;
    if (h->bias && h->bias[i * h->cols + j] < (double)ORDO_BIAS_LEAST)
        return false;
    return rules_see(h->p, right) && (!h->blocks.start || ordo_block_sees(&h->blocks, i, j));
}

static inline double bound_kept(const bound_head *h, int64_t i, int64_t j)
{
    if (h->p->dropout.p == 0)
        return 1;
    const bool keep = h->bits ? ordo_keep_stored(h->bits, h->bits_cols, i, j)
                              : ordo_keep_element(&h->keep, h->bh, (uint32_t)(i + h->p->shard.row0),
                                                  (uint32_t)(j + h->p->shard.col0));
    return keep ? h->keep_scale : 0;
}

/* tanh, relative. Below 0.625, y g(y^2): y^2 g' is at most 0.13, so g is off by 2 u and a third of
 * what y is, and two products round. Above, (1 - e) / (1 + e): e = exp(-2 |y|) < 0.29 is off by
 * (4 |y| + 1.25) u e, which makes 2.4 u of the quotient, and four operations round: 7 u. Its
 * derivative grows by no more than exp(2 y_error), and 4 e / (1 + e)^2 is off by 1.5 times what e
 * is, and 7 u. No logit is past the cap, however wrong y. */
static inline void cap_error(double cap, bound_logit *z)
{
    const double y = z->x / cap;
    const double x_error = isinf(y) ? 0 : z->x_error + 4 * U * fabs(z->x);
    z->slope = 1 / (cosh(y) * cosh(y));
    z->slope_error = fmin(
        1, z->slope * (expm1(2 * x_error / cap) + (6 * fmin(fabs(y), 60) + 12) * U) + 4 * GONE);
    z->x = cap * tanh(y);
    z->x_error = fmin(x_error + 12 * U * fabs(z->x), 2.1 * cap);
}

static inline bound_logit bound_logit_of(const bound_head *h, int64_t i, int64_t j)
{
    const int64_t dim = h->p->head_dim;
    const double scale = h->p->scale;
    double s = 0, magnitude = 0;
    for (int64_t d = 0; d < dim; d++) {
        const double term = h->q[i * dim + d] * h->k[j * dim + d];
        s += term;
        magnitude += fabs(term);
    }
    bound_logit z = { .x = scale * s, .slope = 1 };
    const double underflow = (double)(dim + 1) * TINY * (1 + fabs(scale));
    z.x_error = fabs(scale) * gamma_of((double)dim) * magnitude + underflow + 3 * U * fabs(z.x);
    if (h->p->softcap > 0)
        cap_error(h->p->softcap, &z);
    if (h->p->alibi) {
        const double bias =
            h->slope * fabs((double)(i + h->p->shard.row0 + h->diagonal - j - h->p->shard.col0));
        z.x -= bias;
        z.x_error += 2 * U * fabs(bias) + U * fabs(z.x);
    }
    if (h->bias) {
        const double bias = h->bias[i * h->cols + j];
        z.x += bias;
        z.x_error += 2 * U * fabs(bias) + U * fabs(z.x);
    }
    return z;
}

/* How far a probability p is off whose logit is off by r. */
static inline double error_of(double p, double r)
{
    return p > 0 ? p * expm1(SLACK * r) + GONE : GONE;
}

/* Bounds of row i of o and of its lse, before they are rounded to their types. */
static inline void bound_forward_row(const bound_head *h, int64_t i)
{
    const int64_t dim = h->p->v_head_dim;
    const double tiles = tiles_of(h) + (h->sink != -INFINITY);
    double most = -INFINITY, sum = 0, l_error = 0;
    for (int64_t j = 0; j < h->cols; j++)
        if (bound_visible(h, i, j)) {
            h->z[j] = bound_logit_of(h, i, j);
            most = fmax(most, h->z[j].x);
        }
    double *b_o = h->b_o + i * dim;
    for (int64_t d = 0; d < dim; d++)
        b_o[d] = 0;
    h->b_lse[i] = 0;
    if (most == -INFINITY) /* exact: 0, and -inf or the sink */
        return;
    if (h->sink != -INFINITY) {
        most = fmax(most, h->sink);
        sum = exp(h->sink - most);
        l_error = error_of(sum, 3 * U * (most - h->sink) + EXP2 + 2 * U);
    }
    for (int64_t j = 0; j < h->cols; j++)
        if (bound_visible(h, i, j)) {
            bound_logit *z = &h->z[j];
            const double p = exp(z->x - most);
            const double r =
                SLACK * (z->x_error + 3 * U * (most - z->x) + (tiles + 1) * (EXP2 + 2 * U));
            z->x_error = p > 0 ? p * expm1(r) + GONE : 0; /* from here on: of p */
            z->x = p;
            sum += p;
            l_error += z->x_error;
        }
    l_error = SLACK * (l_error / sum + gamma_of((double)h->col_tile + 6 + tiles));
    h->b_lse[i] = SLACK * l_error + 1e-15 * fabs(most) + TINY;
    const double chain = gamma_of((double)h->cols + 2 * tiles + 5);
    for (int64_t j = 0; j < h->cols; j++) {
        const double kept = bound_visible(h, i, j) ? bound_kept(h, i, j) : 0;
        if (kept > 0)
            for (int64_t d = 0; d < dim; d++)
                b_o[d] += SLACK * kept *
                          (fabs(h->v[j * dim + d]) *
                               (h->z[j].x_error + h->z[j].x * (l_error + chain)) / sum +
                           TINY);
    }
}

static inline double dot_of(const double *a, const double *b, int64_t n, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (int64_t d = 0; d < n; d++) {
        sum += a[d] * b[d];
        *magnitude += fabs(a[d] * b[d]);
    }
    return sum;
}

/* What row i adds to the bounds of dq, dk and dv, given lse and o as the kernel wrote them.
 * `shared`: terms in the chains of dk and dv. */
static inline void bound_backward_row(const bound_head *h, int64_t i, double shared)
{
    const int64_t dim = h->p->head_dim, v_dim = h->p->v_head_dim;
    const double tiles = tiles_of(h);
    const double scale = fabs(h->p->scale), lse = h->lse[i];
    const double *dout = h->dout + i * v_dim;
    double *b_dq = h->b_dq + i * dim;
    for (int64_t d = 0; d < dim; d++)
        b_dq[d] = 0;
    if (lse == -INFINITY)
        return;
    double magnitude;
    const double delta = dot_of(dout, h->o + i * v_dim, v_dim, &magnitude) - h->dlse[i];
    const double delta_error =
        gamma_of((double)v_dim / 16 + 6) * magnitude + U * fabs(delta) + (double)(v_dim + 1) * TINY;
    const double p_sink = exp(h->sink - lse); /* 0 without one */
    const double p_sink_error = error_of(p_sink, 2 * U * fabs(h->sink - lse) + EXP2);
    if (h->sink != -INFINITY)
        *h->b_dsink += p_sink * delta_error + p_sink_error * (fabs(delta) + delta_error);
    const double dq_chain = gamma_of((double)h->col_tile + tiles + 4);
    const double shared_chain = gamma_of(shared + 5);
    const double bias_chain = gamma_of((double)(h->p->heads + h->p->batch + 2));
    for (int64_t j = 0; j < h->cols; j++) {
        if (!bound_visible(h, i, j))
            continue;
        const bound_logit z = bound_logit_of(h, i, j);
        const double p = exp(z.x - lse), kept = bound_kept(h, i, j);
        const double r = z.x_error + 2 * U * fabs(lse) + 2 * U * fabs(z.x - lse) + EXP2;
        const double p_error = z.x == -INFINITY ? 0 : p * expm1(SLACK * r) + GONE;
        const double dp = kept * dot_of(dout, h->v + j * v_dim, v_dim, &magnitude);
        const double w = fabs(dp - delta);
        const double w_error = kept * gamma_of((double)v_dim) * magnitude + 2 * U * fabs(dp) +
                               delta_error + U * w + (double)(v_dim + 1) * TINY * (1 + kept);
        const double most = (p + p_error) * (w + w_error) * (z.slope + z.slope_error);
        const double ds = p * w * z.slope;
        const double ds_error = SLACK * (most - ds + 2 * U * most) + TINY;
        if (h->b_dbias) {
            const double all = (p + p_error) * (w + w_error);
            const double error = SLACK * (all - p * w + 2 * U * all) + TINY;
            h->b_dbias[i * h->p->kv_len + j] += error + bias_chain * (p * w + error);
        }
        const double pd_error = SLACK * kept * (p_error + 2 * U * p);
        for (int64_t d = 0; d < dim; d++) {
            const double k = fabs(h->k[j * dim + d]), q = fabs(h->q[i * dim + d]);
            b_dq[d] += scale * (k * (ds_error + dq_chain * (ds + ds_error)) + TINY);
            h->b_dk[j * dim + d] +=
                scale * (q * (ds_error + shared_chain * (ds + ds_error)) + TINY);
        }
        for (int64_t d = 0; d < v_dim; d++)
            h->b_dv[j * v_dim + d] +=
                fabs(dout[d]) * (pd_error + shared_chain * (kept * p + pd_error)) + TINY;
    }
}

/* ---- a whole case ---- */

/* Half a unit of the type at x, rounded from a value that is itself off by `error`. */
static inline double bound_stored(ordo_dtype type, double x, double error)
{
    const double unit = type == ORDO_F32 ? U : type == ORDO_BF16 ? 0x1p-8 : 0x1p-11;
    const double least = type == ORDO_F32 ? 0x1p-149 : type == ORDO_BF16 ? 0x1p-133 : 0x1p-24;
    return SLACK * error + (unit + 3 * U) * (fabs(x) + error) + least;
}

static inline double *bound_gather(const attention_case *c, const void *data, bool keys, int64_t b,
                                   int64_t head, int64_t dim)
{
    const int64_t rows = case_length(c, keys, b);
    double *x = calloc((size_t)(rows * dim + 1), sizeof *x);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < dim; d++)
            x[r * dim + d] = case_get(c, data, case_at(c, keys, dim, b, r, head) + (size_t)d);
    return x;
}

static inline void bound_scatter(const attention_case *c, double *to, bool keys, int64_t b,
                                 int64_t head, int64_t dim, const double *from)
{
    for (int64_t r = 0; r < case_length(c, keys, b); r++)
        for (int64_t d = 0; d < dim; d++)
            to[case_at(c, keys, dim, b, r, head) + (size_t)d] = from[r * dim + d];
}

static inline bound_head bound_open(const attention_case *c, const ordo_plan *plan,
                                    const ordo_problem *p, int64_t b, int64_t head)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    CHECK(ordo_plan_query(plan, &info) == ORDO_OK);
    const bool dense = p->layout == ORDO_DENSE;
    bound_head h = { .p = p,
                     .rows = case_length(c, false, b),
                     .cols = case_length(c, true, b),
                     .col_tile = info.backward_tile.k,
                     .sink = c->call.sink ? (double)c->call.sink[head] : -INFINITY };
    if (info.forward_tile.k > h.col_tile)
        h.col_tile = info.forward_tile.k;
    if (p->mask != ORDO_MASK_CAUSAL_TOP_LEFT)
        h.diagonal = dense ? p->shard.kv_total - p->shard.q_total : h.cols - h.rows;
    if (p->alibi)
        h.slope = (double)c->call.slopes[b * c->call.slopes_batch_stride + head];
    if (p->dropout.p > 0) {
        h.keep_scale = ordo_keep_scale(&p->dropout);
        h.keep = ordo_keep_of(&p->dropout, c->call.seed, c->call.offset);
        h.bh = (uint32_t)(c->ids[b] * p->shard.heads_total + p->shard.head0 + head);
        h.bits_cols = case_space(c, true, b);
        h.bits = c->bits;
        for (int64_t a = 0; h.bits && a <= b; a++)
            h.bits += (a < b ? p->heads : head) * ORDO_KEEP_WORDS *
                      ordo_keep_blocks(case_space(c, false, a), case_space(c, true, a));
    }
    h.q = bound_gather(c, c->call.q.data, false, b, head, p->head_dim);
    h.o = bound_gather(c, c->call.o.data, false, b, head, p->v_head_dim);
    h.dout = bound_gather(c, c->call.dout.data, false, b, head, p->v_head_dim);
    const int64_t group = p->heads / p->kv_heads;
    h.k = bound_gather(c, c->call.k.data, true, b, head / group, p->head_dim);
    h.v = bound_gather(c, c->call.v.data, true, b, head / group, p->v_head_dim);
    if (p->bias.on) {
        h.bias = calloc((size_t)(h.rows * h.cols) + 1, sizeof *h.bias);
        for (int64_t i = 0; i < h.rows; i++)
            for (int64_t j = 0; j < h.cols; j++)
                h.bias[i * h.cols + j] =
                    case_get_as(p->bias.dtype, c->call.bias.data,
                                case_bias_at(p, b, head) + (size_t)(i * p->kv_len + j));
    }
    if (c->blocks || c->call.seen)
        h.blocks = ordo_block_view_of(c->call.seen ? c->call.seen : c->blocks, b, head);
    h.lse = calloc((size_t)h.rows + 1, sizeof *h.lse);
    h.dlse = calloc((size_t)h.rows + 1, sizeof *h.dlse);
    for (int64_t i = 0; i < h.rows; i++) {
        h.lse[i] = (double)c->call.lse[case_lse_at(c, b, i, head)];
        h.dlse[i] = c->dlse ? (double)c->dlse[case_lse_at(c, b, i, head)] : 0;
    }
    h.b_o = calloc((size_t)(h.rows * p->v_head_dim) + 1, sizeof *h.b_o);
    h.b_dq = calloc((size_t)(h.rows * p->head_dim) + 1, sizeof *h.b_dq);
    h.b_lse = calloc((size_t)h.rows + 1, sizeof *h.b_lse);
    h.z = calloc((size_t)h.cols + 1, sizeof *h.z);
    return h;
}

static inline void bound_close(bound_head *h)
{
    void *const pieces[] = { h->q,    h->k,   h->v,    h->o,     h->dout, h->lse,
                             h->dlse, h->b_o, h->b_dq, h->b_lse, h->z,    h->bias };
    for (size_t x = 0; x < sizeof pieces / sizeof pieces[0]; x++)
        free(pieces[x]);
}

static inline void bounds_of_group(const attention_case *c, const ordo_plan *plan,
                                   const ordo_problem *p, int64_t b, int64_t kv_head,
                                   attention_bounds *bounds)
{
    const int64_t group = p->heads / p->kv_heads, cols = case_length(c, true, b);
    double *b_dk = calloc((size_t)(cols * p->head_dim) + 1, sizeof *b_dk);
    double *b_dv = calloc((size_t)(cols * p->v_head_dim) + 1, sizeof *b_dv);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        bound_head h = bound_open(c, plan, p, b, head);
        h.b_dk = b_dk;
        h.b_dv = b_dv;
        h.b_dsink = &bounds->dsink_parts[b * p->heads + head];
        h.b_dbias = bounds->dbias ? bounds->dbias + case_bias_at(p, b, head) : NULL;
        for (int64_t i = 0; i < h.rows; i++) {
            bound_forward_row(&h, i);
            bound_backward_row(&h, i, (double)(h.rows * group));
            bounds->at[1][case_lse_at(c, b, i, head)] = h.b_lse[i];
        }
        bound_scatter(c, bounds->at[0], false, b, head, p->v_head_dim, h.b_o);
        bound_scatter(c, bounds->at[2], false, b, head, p->head_dim, h.b_dq);
        bound_close(&h);
    }
    bound_scatter(c, bounds->at[3], true, b, kv_head, p->head_dim, b_dk);
    bound_scatter(c, bounds->at[4], true, b, kv_head, p->v_head_dim, b_dv);
    free(b_dk);
    free(b_dv);
}

/* Bounds of a case that has run: before rounding to the element type. Padding stays 0: exact. */
static inline attention_bounds bounds_of(const attention_case *c, const ordo_plan *plan,
                                         const ordo_problem *resolved)
{
    const size_t counts[] = { c->o_count, c->lse_count, c->q_count, c->k_count, c->v_count };
    attention_bounds bounds = { .dsink_parts = { 0 } };
    for (int x = 0; x < CASE_OUTPUTS; x++)
        bounds.at[x] = calloc(counts[x] + 1, sizeof(double));
    if (c->call.dbias)
        bounds.dbias = calloc(c->bias_count + 1, sizeof(double));
    for (int64_t b = 0; b < resolved->batch; b++)
        for (int64_t h = 0; h < resolved->kv_heads; h++)
            bounds_of_group(c, plan, resolved, b, h, &bounds);
    return bounds;
}

static inline void bounds_close(attention_bounds *bounds)
{
    for (int x = 0; x < CASE_OUTPUTS; x++)
        free(bounds->at[x]);
    free(bounds->dbias);
}

/* ---- against the oracle ---- */

/* Largest error in units of its bound, by output; 1 and more is a failure. */
typedef struct bound_worst {
    double at[CASE_OUTPUTS], dsink, dbias;
} bound_worst;

static inline void bound_compare(const attention_case *c, int output, const double *exact,
                                 const double *bound, bound_worst *worst)
{
    const case_results r = case_outputs(c);
    const bool lse = output == 1;
    bool said = false;
    for (size_t at = 0; at < r.count[output]; at++) {
        const double got = lse ? (double)c->call.lse[at] : case_get(c, r.data[output], at),
                     e = exact[at];
        const double limit = bound_stored(lse ? ORDO_F32 : c->problem.dtype, e, bound[at]);
        bool fine;
        if (isfinite(e)) {
            const double error = fabs(got - e);
            fine = error <= limit || (e == got && isnan(limit));
            if (error / limit > worst->at[output])
                worst->at[output] = error / limit;
        } else { /* infinities turn to NaN where single precision gives out first: e.g. 0 * inf */
            fine = isinf(e) && lse ? got == e : !isfinite(got);
        }
        if (!fine && !said) {
            CHECK_FAIL("%s[%zu] is %.9g, exactly %.9g, allowed %.3g off", case_output_names[output],
                       at, got, e, limit);
            if (check_failures <= 20)
                case_print(c);
            said = true;
        }
    }
}

/* dsink_parts against the oracle's, and dsink against their sum as the header describes it. */
static inline void bound_compare_sinks(const attention_case *c, const double *exact,
                                       const double *bound, bound_worst *worst)
{
    const int64_t heads = c->problem.heads;
    for (int64_t h = 0; c->call.sink && h < heads; h++) {
        double sum = 0;
        for (int64_t b = 0; b < c->problem.batch; b++) {
            const int64_t at = b * heads + h;
            const double got = (double)c->dsink_parts[at], e = exact[at];
            const double limit = bound_stored(ORDO_F32, e, bound[at]), error = fabs(got - e);
            sum += got;
            if (isfinite(e) ? !(error <= limit) : isfinite(got))
                CHECK_FAIL("dsink_parts[%d] is %.9g, exactly %.9g, allowed %.3g off", (int)at, got,
                           e, limit);
            else if (isfinite(e) && error / limit > worst->dsink)
                worst->dsink = error / limit;
        }
        const float all = ordo_f32_from_f64(sum);
        CHECK_BITS(&c->dsink[h], &all, 1);
    }
}

static inline void bound_compare_bias(const attention_case *c, const double *exact,
                                      const double *bound, bound_worst *worst)
{
    for (size_t at = 0; c->call.dbias && at < c->bias_count; at++) {
        const double got = (double)c->call.dbias[at], e = exact[at];
        const double limit = bound_stored(ORDO_F32, e, bound[at]), error = fabs(got - e);
        if (isfinite(e) ? !(error <= limit) : isfinite(got)) {
            CHECK_FAIL("dbias[%zu] is %.9g, exactly %.9g, allowed %.3g off", at, got, e, limit);
            if (check_failures <= 20)
                case_print(c);
            return;
        }
        if (isfinite(e) && error / limit > worst->dbias)
            worst->dbias = error / limit;
    }
}

/* Run a case and hold it to the oracle: forward from its inputs, backward from the o and lse that
 * the kernel wrote. */
static inline void bound_check(attention_case *c, const ordo_plan *plan, int threads,
                               bound_worst *worst)
{
    ordo_problem p = { .size = sizeof p };
    if (case_run(c, plan, threads) != ORDO_OK || ordo_plan_problem(plan, &p) != ORDO_OK) {
        CHECK_FAIL("%s", ordo_last_error());
        return;
    }
    static const ordo_ref_role roles[CASE_OUTPUTS] = { ORDO_REF_O, ORDO_REF_LSE, ORDO_REF_Q,
                                                       ORDO_REF_K, ORDO_REF_V };
    double *exact[CASE_OUTPUTS];
    ordo_ref_call oracle = ordo_ref_view(&p, &c->call);
    ordo_ref_tensor *const outputs[CASE_OUTPUTS] = { &oracle.o, &oracle.lse, &oracle.dq, &oracle.dk,
                                                     &oracle.dv };
    for (int x = 0; x < CASE_OUTPUTS; x++) {
        exact[x] = calloc((size_t)ordo_ref_count(&p, roles[x]) + 1, sizeof(double));
        *outputs[x] = ordo_ref_array(&p, roles[x], exact[x]);
    }
    double parts[CASE_BATCH_MAX * CASE_SLOPES] = { 0 };
    oracle.dsink_parts = (ordo_ref_tensor) { parts, ORDO_REF_F64, { p.heads, 0, 1, 0 } };
    oracle.dsink.data = NULL;
    double *dbias = c->call.dbias ? calloc(c->bias_count + 1, sizeof *dbias) : NULL;
    oracle.dbias.data = dbias;
    oracle.dbias.type = ORDO_REF_F64;
    CHECK(ordo_ref_forward_f64(&p, &oracle) == ORDO_OK);
    const ordo_ref_call given = ordo_ref_view(&p, &c->call);
    oracle.o = given.o;
    oracle.lse = given.lse;
    CHECK(ordo_ref_backward_f64(&p, &oracle) == ORDO_OK);
    attention_bounds bounds = bounds_of(c, plan, &p);
    for (int x = 0; x < CASE_OUTPUTS; x++) {
        bound_compare(c, x, exact[x], bounds.at[x], worst);
        free(exact[x]);
    }
    bound_compare_sinks(c, parts, bounds.dsink_parts, worst);
    bound_compare_bias(c, dbias, bounds.dbias, worst);
    free(dbias);
    bounds_close(&bounds);
}

#endif
