/* grid_bounds.h: how far from the oracle the results of a grid_case may be.
 *
 * Bounds are a priori, for kernels that multiply 16-bit numbers and add in f32. u is half a unit of
 * the element type, 2^-8 or 2^-11; e = 2^-22.
 *
 * Every element of o, dq, dk and dv is a sum of terms. P (in o and dv) and dS (in dq and dk) are
 * rounded to the element type before they are multiplied: u of each term; f16 has subnormals, so
 * no term of P or dS is closer than 2^-25, times what kept elements are multiplied by, for that may
 * happen after the sum. P itself is off by
 *
 *   r = e (D/16 + 4) scale sum|q||k| + e (|logit| + |lse| + |bias| + 4 softcap + 8)      relative:
 *
 * sixteen products are added at once, and then in f32 with an error of a few units; exp2 and
 * tanh are approximations. tanh is a polynomial up to 1/2, off by 6.8e-7 of itself, so by 3.2e-7 of
 * softcap at most, and then an exponential form, off by 2^-22 of softcap: 4 e is 9.5e-7. The slope
 * of ALiBi is rounded twice before its fma: e |bias|. dP and delta = <dout, o> - dlse are off by e
 * (D/16 + 4) of the sum of their terms' magnitudes; the slope of the soft cap by 4 r / softcap. A
 * sum of n terms is off by e (n/16 + 8) of their magnitudes, and the result is rounded once: u.
 * In chains and by phases dS is computed from P, times the slope of the soft cap, after its
 * rounding: u of each term once more, and in f16 never closer than 2^-25 |dP - delta|, however
 * small the slope.
 *
 * An element of dbias is a sum of dS that were not rounded to the element type, over the sequences
 * and heads that share it.
 *
 * A sink has a P of its own, off by e (|sink| + |lse| + 8), which is a term of the row's sum; dsink
 * adds its products with delta over the rows.
 *
 * The sum of these is a limit for each element. It is a worst case: errors of roundings have
 * random signs. So the errors of a whole tensor are held to 1.5 times their expected root mean
 * square too, where a rounding counts as u / sqrt(3): one wrong term among hundreds shows there. */
#ifndef TESTS_CUDA_GRID_BOUNDS_H
#define TESTS_CUDA_GRID_BOUNDS_H

#include "grid_oracle.h"
#include "visible.h"

#define GRID_E    0x1p-22
#define GRID_TINY 0x1p-126 /* smaller probabilities become 0 */

/* Sums over the terms of each element. */
typedef struct grid_sums {
    float *worst;  /* limits */
    float *f32;    /* limits, without roundings to the element type */
    float *square; /* squares of these roundings, in units of u */
} grid_sums;

/* One head of one sequence. */
typedef struct grid_head {
    const ordo_problem *p; /* resolved */
    const grid_blocks *blocks;
    const grid_bias *bias; /* NULL: none */
    ordo_dtype dtype;
    int64_t sequence, head; /* indices in the problem */
    int64_t rows, cols, group, diagonal, dim, v_dim;
    double u, floor, slope, keep_scale;
    double sink;               /* -inf: none */
    const unsigned char *keep; /* rows x cols; NULL: all */
    float *q, *k, *v, *o, *dout, *lse, *dlse;
    grid_sums b_o, b_dq, b_dk, b_dv;
    float *b_lse;
    double b_dsink;
    double *b_dbias; /* of the whole case */
} grid_head;

typedef struct grid_pair { /* a row and a column */
    double x, r;           /* logit and relative error of P */
    double slope, slope_error;
} grid_pair;

static inline float grid_dot(const float *a, const float *b, int64_t n, float *magnitude)
{
    float sum[8] = { 0 }, size[8] = { 0 };
    for (int64_t d = 0; d < n; d += 8) /* head sizes are multiples of 8 */
        for (int i = 0; i < 8; i++) {
            const float x = a[d + i] * b[d + i];
            sum[i] += x;
            size[i] += fabsf(x);
        }
    float all = 0;
    *magnitude = 0;
    for (int i = 0; i < 8; i++) {
        all += sum[i];
        *magnitude += size[i];
    }
    return all;
}

static inline double grid_bias_of(const grid_head *h, int64_t i, int64_t j)
{
    return h->bias && h->bias->on
               ? (double)grid_bias_value(h->bias, h->dtype, h->sequence, h->head, i, j)
               : 0;
}

static inline bool grid_visible(const grid_head *h, int64_t i, int64_t j)
{
    const int64_t right = j - i - h->diagonal;
    return rules_see(h->p, right) && grid_block_sees(h->blocks, h->sequence, h->head, i, j) &&
           grid_bias_of(h, i, j) > -INFINITY;
}

static inline grid_pair grid_pair_at(const grid_head *h, int64_t i, int64_t j)
{
    float size;
    const double dot = (double)grid_dot(h->q + i * h->dim, h->k + j * h->dim, h->dim, &size);
    const double scale = h->p->scale, cap = h->p->softcap, steps = (double)h->dim / 16 + 4;
    grid_pair z = { .x = scale * dot, .slope = 1 };
    z.r = GRID_E * steps * fabs(scale) * (double)size;
    if (cap > 0) {
        const double t = tanh(z.x / cap);
        z.slope = 1 - t * t;
        z.x = cap * t;
    }
    const double bias = h->p->alibi ? h->slope * fabs((double)(j - i - h->diagonal)) : 0;
    const double own = grid_bias_of(h, i, j);
    z.x += own - bias;
    z.r +=
        GRID_E * (fabs(z.x) + fabs((double)h->lse[i]) + fabs(bias) + 2 * fabs(own) + 4 * cap + 8);
    z.slope_error = cap > 0 ? 4 * z.r / cap + GRID_E : 0;
    return z;
}

/* One term a * x[d] of each element d, where a is rounded to the element type (as a / unit), and
 * is off by `error` already. */
static inline void grid_add(grid_sums *to, int64_t at, const float *x, int64_t n, double rounding,
                            double error)
{
    const float worst = (float)(rounding + error), f32 = (float)error;
    const float square = (float)(rounding * rounding);
    for (int64_t d = 0; d < n; d++) {
        const float y = fabsf(x[d]);
        to->worst[at + d] += worst * y;
        to->f32[at + d] += f32 * y;
        to->square[at + d] += square * y * y;
    }
}

/* P of the sink, and how far it is off. */
static inline double grid_sink_share(const grid_head *h, int64_t i)
{
    return h->sink == -INFINITY ? 0 : exp(h->sink - (double)h->lse[i]);
}
static inline double grid_sink_error(const grid_head *h, int64_t i)
{
    const double p = grid_sink_share(h, i);
    return p == 0 ? 0 : p * GRID_E * (fabs(h->sink) + fabs((double)h->lse[i]) + 8) + GRID_TINY;
}

static inline void grid_forward_row(grid_head *h, int64_t i, const grid_pair *pairs)
{
    double most = -INFINITY, sum = grid_sink_error(h, i);
    const double lse = (double)h->lse[i], chain = GRID_E * ((double)h->cols / 16 + 8) + sum;
    for (int64_t j = 0; j < h->cols; j++)
        if (grid_visible(h, i, j))
            most = fmax(most, pairs[j].x);
    for (int64_t j = 0; j < h->cols; j++) {
        if (!grid_visible(h, i, j))
            continue;
        const double p = exp(pairs[j].x - lse), kept = h->keep && !h->keep[i * h->cols + j] ? 0 : 1;
        const double rounding = fmax(h->u * p, h->floor * exp(most - lse));
        sum += p * pairs[j].r;
        if (kept > 0)
            grid_add(&h->b_o, i * h->v_dim, h->v + j * h->v_dim, h->v_dim, rounding * h->keep_scale,
                     (p * (2 * pairs[j].r + chain) + GRID_TINY * exp(most - lse)) * h->keep_scale);
    }
    h->b_lse[i] = (float)(sum + chain + GRID_E * fabs(lse));
}

static inline void grid_backward_row(grid_head *h, int64_t i, const grid_pair *pairs)
{
    float size, delta_size;
    const float *dout = h->dout + i * h->v_dim;
    const double lse = (double)h->lse[i], dlse = h->dlse ? (double)h->dlse[i] : 0;
    const double steps = (double)h->v_dim / 16 + 4, scale = fabs(h->p->scale);
    const double delta = (double)grid_dot(dout, h->o + i * h->v_dim, h->v_dim, &delta_size) - dlse;
    const double delta_error = GRID_E * (steps * (double)delta_size + 2 * fabs(dlse));
    h->b_dsink +=
        grid_sink_share(h, i) * (delta_error + GRID_E * ((double)h->rows / 16 + 8) * fabs(delta)) +
        grid_sink_error(h, i) * (fabs(delta) + delta_error);
    const double row_chain = GRID_E * ((double)h->cols / 16 + 8);
    const double terms = (double)((h->p->bias.per_sequence ? 1 : h->p->batch) *
                                  (h->p->bias.per_head ? 1 : h->p->heads));
    const double bias_chain = GRID_E * (terms / 4 + 8); /* of products in f32, one by one */
    const double key_chain = GRID_E * ((double)(h->rows * h->group) / 16 + 8);
    for (int64_t j = 0; j < h->cols; j++) {
        if (!grid_visible(h, i, j))
            continue;
        const grid_pair *z = &pairs[j];
        const double p = exp(z->x - lse);
        const double kept = h->keep && !h->keep[i * h->cols + j] ? 0 : h->keep_scale;
        const double dp = kept * (double)grid_dot(dout, h->v + j * h->v_dim, h->v_dim, &size);
        const double w = fabs(dp - delta), ds = p * w * z->slope;
        const double w_error =
            GRID_E * (steps * (kept * (double)size + (double)delta_size) + 2 * fabs(dlse));
        const double ds_error = (ds * z->r + GRID_TINY * w * z->slope) +
                                p * (z->slope + z->slope_error) * w_error + p * w * z->slope_error;
        if (h->p->bias.on) {
            double *const to = h->b_dbias + grid_bias_at(h->p, h->sequence, h->head, i, j);
            *to += p * w * (z->r + bias_chain) + GRID_TINY * w + p * w_error;
            if (grid_rounds_p(h->p))
                *to += fmax(h->u * p, h->floor) * w;
        }
        const double rounding = scale * fmax(h->u * ds, h->floor * h->keep_scale);
        grid_add(&h->b_dq, i * h->dim, h->k + j * h->dim, h->dim, rounding,
                 scale * (ds_error + ds * row_chain));
        grid_add(&h->b_dk, j * h->dim, h->q + i * h->dim, h->dim, rounding,
                 scale * (ds_error + ds * key_chain));
        if (grid_rounds_p(h->p)) {
            const double first = scale * fmax(h->u * ds, h->floor * w);
            grid_add(&h->b_dq, i * h->dim, h->k + j * h->dim, h->dim, first, 0);
            grid_add(&h->b_dk, j * h->dim, h->q + i * h->dim, h->dim, first, 0);
        }
        if (kept > 0)
            grid_add(&h->b_dv, j * h->v_dim, dout, h->v_dim, kept * fmax(h->u * p, h->floor),
                     kept * (p * (z->r + key_chain) + GRID_TINY));
    }
}

static inline void grid_bound_rows(grid_head *h)
{
    grid_pair *pairs = calloc((size_t)h->cols + 1, sizeof *pairs);
    if (!pairs)
        abort();
    for (int64_t i = 0; i < h->rows; i++) {
        if (h->lse[i] == -INFINITY)
            continue;
        for (int64_t j = 0; j < h->cols; j++)
            if (grid_visible(h, i, j))
                pairs[j] = grid_pair_at(h, i, j);
        grid_forward_row(h, i, pairs);
        grid_backward_row(h, i, pairs);
    }
    free(pairs);
}

/* ---- bounds of a whole case ---- */

typedef struct grid_bounds {
    grid_sums at[GRID_TENSORS]; /* outputs only, laid out as the case's; lse has `worst` only */
    double dsink_parts[GRID_BATCH_MAX * GRID_HEADS_MAX];
    double *dbias;
} grid_bounds;

static inline grid_sums grid_sums_open(size_t count)
{
    const grid_sums s = { calloc(count + 1, sizeof *s.worst), calloc(count + 1, sizeof *s.f32),
                          calloc(count + 1, sizeof *s.square) };
    if (!s.worst || !s.f32 || !s.square)
        abort();
    return s;
}

static inline void grid_sums_close(grid_sums *s)
{
    free(s->worst);
    free(s->f32);
    free(s->square);
}

/* A head's rows of a tensor, contiguous. */
static inline float *grid_gather(const grid_case *c, const float *from, int tensor, int64_t b,
                                 int64_t head)
{
    const int64_t rows = grid_length(c, grid_tensors[tensor].keys, b), dim = grid_dim(c, tensor);
    float *x = calloc((size_t)(rows * dim) + 1, sizeof *x);
    if (!x)
        abort();
    for (int64_t r = 0; r < rows; r++)
        memcpy(x + r * dim, from + grid_at(c, tensor, b, r, head) / grid_width(tensor),
               (size_t)dim * sizeof *x);
    return x;
}

static inline void grid_scatter(const grid_case *c, float *to, int tensor, int64_t b, int64_t head,
                                const float *from)
{
    const int64_t rows = grid_length(c, grid_tensors[tensor].keys, b), dim = grid_dim(c, tensor);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + grid_at(c, tensor, b, r, head) / grid_width(tensor), from + r * dim,
               (size_t)dim * sizeof *to);
}

static inline void grid_scatter_sums(const grid_case *c, grid_bounds *to, int tensor, int64_t b,
                                     int64_t head, const grid_sums *from)
{
    grid_scatter(c, to->at[tensor].worst, tensor, b, head, from->worst);
    grid_scatter(c, to->at[tensor].f32, tensor, b, head, from->f32);
    grid_scatter(c, to->at[tensor].square, tensor, b, head, from->square);
}

/* Which elements of a head are kept, a byte each; NULL without dropout. */
static inline unsigned char *grid_kept(const grid_case *c, int64_t b, int64_t head)
{
    const int64_t rows = c->q_lens[b], cols = c->kv_lens[b];
    const ordo_dropout_call call = grid_dropout_call(c);
    ordo_dropout_part part = ORDO_DROPOUT_PART_INIT;
    if (c->problem.dropout.p == 0 || rows == 0 || cols == 0)
        return NULL;
    unsigned char *kept = malloc((size_t)(rows * cols));
    if (!kept)
        abort();
    part.sequence = b, part.head = head, part.rows = rows, part.cols = cols;
    grid_must(
        ordo_dropout_export(&c->problem, &call, NULL, &part, kept, (size_t)(rows * cols), NULL),
        "ordo_dropout_export");
    return kept;
}

/* Column of row 0 that lies on the diagonal. */
static inline int64_t grid_diagonal(const grid_case *c, int64_t b)
{
    const ordo_shard *s = &c->problem.shard;
    const int64_t rows = grid_cut(c) ? s->q_total : c->q_lens[b];
    const int64_t cols = grid_cut(c) ? s->kv_total : c->kv_lens[b];
    const bool top = c->problem.mask == ORDO_MASK_CAUSAL_TOP_LEFT;
    return (top ? 0 : cols - rows) + s->row0 - s->col0;
}

static inline void grid_bound_head(const grid_case *c, const grid_exact *exact, int64_t b,
                                   int64_t head, grid_sums *b_dk, grid_sums *b_dv, grid_bounds *to)
{
    const ordo_problem *p = &exact->problem;
    const int64_t group = p->heads / p->kv_heads, rows = c->q_lens[b], cols = c->kv_lens[b];
    const bool f16 = c->problem.dtype == ORDO_F16;
    ordo_dropout_info info = { .scale = 1 };
    const ordo_dropout_call call = grid_dropout_call(c);
    if (p->dropout.p > 0)
        grid_must(ordo_dropout_query(&c->problem, &call, &info), "ordo_dropout_query");
    unsigned char *kept = grid_kept(c, b, head);
    grid_head h = {
        .p = p,
        .blocks = &c->blocks,
        .bias = &c->bias,
        .dtype = c->problem.dtype,
        .b_dbias = to->dbias,
        .sequence = b,
        .head = head,
        .rows = rows,
        .cols = cols,
        .group = group,
        .diagonal = grid_diagonal(c, b),
        .dim = p->head_dim,
        .v_dim = p->v_head_dim,
        .u = f16 ? 0x1p-11 : 0x1p-8,
        .floor = f16 ? 0x1p-25 : 0,
        .slope = (double)c->slopes[(c->slopes_each ? b * p->heads : 0) + head],
        .sink = c->sinks ? (double)c->sink[head] : -INFINITY,
        .keep_scale = info.scale,
        .keep = kept,
        .q = grid_gather(c, exact->data[GRID_Q], GRID_Q, b, head),
        .k = grid_gather(c, exact->data[GRID_K], GRID_K, b, head / group),
        .v = grid_gather(c, exact->data[GRID_V], GRID_V, b, head / group),
        .o = grid_gather(c, exact->o_written, GRID_O, b, head),
        .dout = grid_gather(c, exact->data[GRID_DOUT], GRID_DOUT, b, head),
        .lse = grid_gather(c, exact->data[GRID_LSE], GRID_LSE, b, head),
        .dlse = c->dlse ? grid_gather(c, exact->data[GRID_DLSE], GRID_DLSE, b, head) : NULL,
        .b_o = grid_sums_open((size_t)(rows * p->v_head_dim)),
        .b_dq = grid_sums_open((size_t)(rows * p->head_dim)),
        .b_dk = *b_dk,
        .b_dv = *b_dv,
        .b_lse = calloc((size_t)rows + 1, sizeof(float)),
    };
    if (!h.b_lse)
        abort();
    grid_bound_rows(&h);
    grid_scatter_sums(c, to, GRID_O, b, head, &h.b_o);
    grid_scatter_sums(c, to, GRID_DQ, b, head, &h.b_dq);
    grid_scatter(c, to->at[GRID_LSE].worst, GRID_LSE, b, head, h.b_lse);
    to->dsink_parts[b * p->heads + head] = h.b_dsink;
    grid_sums_close(&h.b_o);
    grid_sums_close(&h.b_dq);
    void *const pieces[] = { kept, h.q, h.k, h.v, h.o, h.dout, h.lse, h.dlse, h.b_lse };
    for (size_t x = 0; x < sizeof pieces / sizeof pieces[0]; x++)
        free(pieces[x]);
}

static inline void grid_bound(const grid_case *c, const grid_exact *exact, grid_bounds *to)
{
    const ordo_problem *p = &c->problem;
    const int64_t group = p->heads / p->kv_heads;
    for (int t = GRID_OUTPUTS; t < GRID_TENSORS; t++)
        to->at[t] = grid_sums_open(grid_bytes(c, t) / grid_width(t));
    to->dbias = calloc((size_t)ordo_bias_count(p) + 1, sizeof *to->dbias);
    if (!to->dbias)
        abort();
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t kv = 0; kv < p->kv_heads; kv++) {
            grid_sums b_dk = grid_sums_open((size_t)(c->kv_lens[b] * p->head_dim));
            grid_sums b_dv = grid_sums_open((size_t)(c->kv_lens[b] * p->v_head_dim));
            for (int64_t head = kv * group; head < (kv + 1) * group; head++)
                grid_bound_head(c, exact, b, head, &b_dk, &b_dv, to);
            grid_scatter_sums(c, to, GRID_DK, b, kv, &b_dk);
            grid_scatter_sums(c, to, GRID_DV, b, kv, &b_dv);
            grid_sums_close(&b_dk);
            grid_sums_close(&b_dv);
        }
}

static inline void grid_bounds_close(grid_bounds *bounds)
{
    for (int t = GRID_OUTPUTS; t < GRID_TENSORS; t++)
        grid_sums_close(&bounds->at[t]);
    free(bounds->dbias);
}

#endif
