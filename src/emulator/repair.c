/* repair.c: computes rows again as a device does. 32 lanes of a warp share a row: each computes
 * every 32nd score, and the weighted rows are added in ascending order. A score of NaN or +inf
 * makes the row NaN. */
#include "emulator/repair.h"

#include <math.h>

#include "base/bias.h"
#include "base/half.h"
#include "emulator/double.h"

enum { MOST = 576 };

/* A row or key of one head that is computed again. */
typedef struct place {
    const ordo_emulator_pass *pass;
    int64_t b;
    const ordo_emulator_sequence *s;
} place;

static place place_of(const ordo_emulator_pass *pass, int64_t b)
{
    return (place) { pass, b, &pass->sequences[b] };
}

bool ordo_emulator_broken(const ordo_emulator_pass *pass, const uint16_t *row, int columns)
{
    const uint16_t infinity = pass->f16 ? 0x7c00 : 0x7f80;
    for (int c = 0; c < columns; c++)
        if ((row[c] & infinity) == infinity)
            return true;
    return false;
}

/* ---- rows ---- */

static double value(const place *at, uint16_t x)
{
    return at->pass->f16 ? (double)ordo_f32_from_f16(x) : (double)ordo_f32_from_bf16(x);
}

static double dot(const place *at, const uint16_t *a, const uint16_t *b, int columns)
{
    double sum = 0;
    for (int c = 0; c < columns; c++)
        sum = fma(value(at, a[c]), value(at, b[c]), sum);
    return sum;
}

static void add(const place *at, double *sum, double weight, const uint16_t *row, int columns)
{
    for (int c = 0; c < columns; c++)
        sum[c] = fma(weight, value(at, row[c]), sum[c]);
}

static void fill(double *sum, double x, int columns)
{
    for (int c = 0; c < columns; c++)
        sum[c] = x;
}

static void write(const place *at, uint16_t *to, const double *sum, int columns)
{
    for (int c = 0; c < columns; c++)
        to[c] = at->pass->f16 ? ordo_f16_from_f64(sum[c]) : ordo_bf16_from_f64(sum[c]);
}

static const uint16_t *query(const place *at, const ordo_tensor *tensor, int dim, int64_t head,
                             int32_t row)
{
    return ordo_emulator_row(at->pass, tensor, ORDO_EMULATOR_QUERIES, dim, at->b, head, row);
}

static const uint16_t *key_of(const place *at, const ordo_tensor *tensor, int dim, int64_t kv_head,
                              int32_t key)
{
    return ordo_emulator_row(at->pass, tensor, ORDO_EMULATOR_KEYS, dim, at->b, kv_head, key);
}

/* ---- one element ---- */

/* Whether a block mask and a bias, if there are any, let a row of a query head see a key. */
static bool listed(const place *at, int64_t head, int32_t row, int32_t key)
{
    if (ordo_bias_hides(ordo_emulator_bias(at->pass, at->b, head, row, key)))
        return false;
    if (!at->pass->lists)
        return true;
    const ordo_block_view view = ordo_block_view_of(at->pass->call->block_mask, at->b, head);
    return ordo_block_sees(&view, row, key);
}

/* What dropout makes of an element: 0, or what kept ones are multiplied by. */
static double keep_of(const place *at, int64_t head, int32_t row, int32_t key)
{
    uint32_t words[8];
    if (!at->pass->dropout)
        return 1;
    ordo_emulator_kept(at->pass, at->b, head, row, key / 64 * 64, 64, words);
    return ordo_emulator_bit(words, key % 64) ? (double)at->pass->keep_scale : 0;
}

static double logit_of(const place *at, int64_t head, double qk, int32_t row, int32_t key)
{
    const ordo_problem *p = at->pass->problem;
    const double x = (double)(float)p->scale * qk, cap = (double)(float)p->softcap;
    const double capped = cap > 0 ? cap * ordo_emulator_tanh64(x / cap) : x;
    const double bias = (double)ordo_emulator_bias(at->pass, at->b, head, row, key);
    if (!p->alibi)
        return capped + bias;
    return bias + capped -
           (double)ordo_emulator_slope(at->pass, at->b, head) *
               fabs((double)((int64_t)row + at->s->diagonal - key));
}

/* ---- o ---- */

static double score_of(const place *at, int64_t head, int32_t row, int32_t key, int32_t last,
                       const uint16_t *q)
{
    const ordo_emulator_pass *pass = at->pass;
    if (key > last || !listed(at, head, row, key))
        return -INFINITY;
    const uint16_t *k = key_of(at, &pass->call->k, pass->dim, head / pass->group, key);
    return logit_of(at, head, dot(at, k, q, pass->dim), row, key);
}

bool ordo_emulator_repair_output(const ordo_emulator_pass *pass, int64_t b, int64_t head,
                                 int32_t row, uint16_t *o, float *lse)
{
    const place at = place_of(pass, b);
    const ordo_call *c = pass->call;
    const ordo_span keys = ordo_band_meets(row, row, at.s->low, at.s->high, at.s->kv_len, 1);
    const uint16_t *q = query(&at, &c->q, pass->dim, head, row);
    double sum[MOST] = { 0 }, largest = -INFINITY;
    double end = c->sink ? (double)c->sink[head] : -INFINITY; /* lse; of a row without keys */
    bool lost = false;
    for (int32_t key = ordo_max32(keys.first, at.s->kv_start); key <= keys.last && !lost; key++) {
        const double score = score_of(&at, head, row, key, keys.last, q);
        lost = !(score < INFINITY);
        largest = fmax(largest, score);
    }
    fill(sum, 0, pass->v_dim);
    const bool sees = lost || largest > -INFINITY;
    lost = lost || (sees && !(end < INFINITY)); /* a sink of NaN or +inf */
    if (!lost && sees)
        return false;
    if (lost) {
        fill(sum, NAN, pass->v_dim);
        end = NAN;
    }
    write(&at, o, sum, pass->v_dim);
    *lse = ordo_f32_from_f64(end);
    return true;
}

/* ---- gradients ---- */

/* P, and scale * dS, of one pair of row and key, from their products; `dp` after dropout. */
typedef struct pair_gradient {
    double p, dx;
} pair_gradient;

static pair_gradient gradient_of(const place *at, int64_t head, double qk, double dp, double lse,
                                 double delta, int32_t row, int32_t key)
{
    const ordo_problem *problem = at->pass->problem;
    const double scale = (double)(float)problem->scale, cap = (double)(float)problem->softcap;
    const double p = ordo_emulator_exp64(logit_of(at, head, qk, row, key) - lse);
    double dx = scale * (p * (dp - delta));
    if (cap > 0) {
        const double c = ordo_emulator_cosh64(scale * qk / cap);
        dx *= 1 / (c * c);
    }
    return (pair_gradient) { p, dx };
}

static double lse_of(const place *at, int64_t head, int32_t row)
{
    return (double)at->pass->call->lse[ordo_emulator_lse(at->pass, at->b, head) + row];
}

static double delta_of(const place *at, int64_t head, int32_t row)
{
    const ordo_emulator_pass *pass = at->pass;
    const ordo_call *c = pass->call;
    const double sum = dot(at, query(at, &c->dout, pass->v_dim, head, row),
                           query(at, &c->o, pass->v_dim, head, row), pass->v_dim);
    return c->dlse ? sum - (double)c->dlse[ordo_emulator_lse(pass, at->b, head) + row] : sum;
}

/* What a row of a query head and a key give each other. */
static pair_gradient pair_of(const place *at, int64_t head, int32_t row, int32_t key, double lse,
                             double delta, double keep)
{
    const ordo_emulator_pass *pass = at->pass;
    const ordo_call *c = pass->call;
    const int64_t kv_head = head / pass->group;
    const double qk = dot(at, query(at, &c->q, pass->dim, head, row),
                          key_of(at, &c->k, pass->dim, kv_head, key), pass->dim);
    const double dp = dot(at, query(at, &c->dout, pass->v_dim, head, row),
                          key_of(at, &c->v, pass->v_dim, kv_head, key), pass->v_dim);
    return gradient_of(at, head, qk, keep * dp, lse, delta, row, key);
}

bool ordo_emulator_repair_query(const ordo_emulator_pass *pass, int64_t b, int64_t head,
                                int32_t row, uint16_t *dq)
{
    const place at = place_of(pass, b);
    const ordo_span keys = ordo_band_meets(row, row, at.s->low, at.s->high, at.s->kv_len, 1);
    const double lse = lse_of(&at, head, row), delta = delta_of(&at, head, row);
    const int32_t last = lse == -INFINITY ? -1 : keys.last; /* saw nothing: 0 */
    double sum[MOST];
    bool lost = false;
    fill(sum, 0, pass->dim);
    for (int32_t key = keys.first; key <= last && !lost; key++) {
        if (!listed(&at, head, row, key))
            continue;
        const double dx = pair_of(&at, head, row, key, lse, delta, keep_of(&at, head, row, key)).dx;
        lost = isnan(dx);
        add(&at, sum, dx, key_of(&at, &pass->call->k, pass->dim, head / pass->group, key),
            pass->dim);
    }
    if (!lost && last >= keys.first)
        return false;
    if (lost)
        fill(sum, NAN, pass->dim);
    write(&at, dq, sum, pass->dim);
    return true;
}

/* ---- dk and dv ---- */

/* Whether a row that sees the key has an lse of NaN: dk and dv are NaN then. */
static bool sees_nan(const place *at, int64_t head, int32_t key, ordo_span rows)
{
    for (int32_t row = rows.first; row <= rows.last; row++)
        if (isnan(lse_of(at, head, row)) && listed(at, head, row, key))
            return true;
    return false;
}

static void begin_sum(double *sum, const float *in, float scale, int columns)
{
    for (int c = 0; c < columns; c++)
        sum[c] = in ? (double)in[c] * (double)scale : 0;
}

static void leave_sum(float *to, const double *sum, float scale, int columns)
{
    for (int c = 0; c < columns; c++)
        to[c] = ordo_f32_from_f64(sum[c] / (double)scale);
}

/* Add all rows of one query head. A NaN among P ends it. */
static void add_rows(const place *at, int64_t head, int32_t key, ordo_span rows, double *dk,
                     double *dv, bool *dk_lost, bool *dv_lost)
{
    const ordo_emulator_pass *pass = at->pass;
    const ordo_call *c = pass->call;
    for (int32_t row = rows.first; row <= rows.last && !*dv_lost; row++) {
        const double lse = lse_of(at, head, row);
        if (lse == -INFINITY || !listed(at, head, row, key))
            continue;
        const double keep = keep_of(at, head, row, key);
        const pair_gradient x = pair_of(at, head, row, key, lse, delta_of(at, head, row), keep);
        *dk_lost = *dk_lost || isnan(x.dx);
        *dv_lost = isnan(x.p * keep);
        add(at, dk, x.dx, query(at, &c->q, pass->dim, head, row), pass->dim);
        add(at, dv, x.p * keep, query(at, &c->dout, pass->v_dim, head, row), pass->v_dim);
    }
}

bool ordo_emulator_repair_key(const ordo_emulator_pass *pass, int64_t b, int64_t kv_head,
                              int32_t key, const float *dk_in, const float *dv_in, uint16_t *dk,
                              uint16_t *dv, float *dk_sums, float *dv_sums)
{
    const place at = place_of(pass, b);
    const float scale = (float)pass->problem->scale;
    const float dk_scale = pass->dropout ? scale * pass->keep_scale : scale;
    const ordo_span rows = ordo_band_meets(key, key, -at.s->high, -at.s->low, at.s->q_len, 1);
    const int64_t head0 = kv_head * pass->group, end = head0 + pass->group;
    double dk_sum[MOST], dv_sum[MOST];
    bool dk_lost = false, dv_lost = false;
    for (int64_t head = head0; head < end && !dv_lost; head++)
        dv_lost = sees_nan(&at, head, key, rows);
    begin_sum(dk_sum, dk_in, dk_scale, pass->dim);
    begin_sum(dv_sum, dv_in, pass->keep_scale, pass->v_dim);
    for (int64_t head = head0; head < end; head++)
        add_rows(&at, head, key, rows, dk_sum, dv_sum, &dk_lost, &dv_lost);
    if (!dv_lost && ((dv || dv_sums) || !dk_lost) && rows.first <= rows.last)
        return false;
    if (dv_lost)
        fill(dv_sum, NAN, pass->v_dim);
    if (dk_lost || dv_lost) /* P of NaN is dS of NaN */
        fill(dk_sum, NAN, pass->dim);
    if (dk)
        write(&at, dk, dk_sum, pass->dim);
    if (dv)
        write(&at, dv, dv_sum, pass->v_dim);
    if (dk_sums)
        leave_sum(dk_sums, dk_sum, dk_scale, pass->dim);
    if (dv_sums)
        leave_sum(dv_sums, dv_sum, pass->keep_scale, pass->v_dim);
    return true;
}
