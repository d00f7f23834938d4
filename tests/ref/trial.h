/* trial.h: a problem with its tensors, in double, for tests of the oracle.
 *
 * trial_create() takes any problem and fills its inputs at random; trial_draw() makes one with
 * features drawn at random: every mask, window, layout, shard, head sharing, cap, slope, sinks,
 * biases, and dropout both stored and generated. */
#ifndef TESTS_REF_TRIAL_H
#define TESTS_REF_TRIAL_H

#include "api/problem.h"
#include "base/bias.h"
#include "base/keep.h"
#include "check.h"
#include "ref/attention.h"

enum { TRIAL_BATCH = 4 };

typedef struct trial {
    ordo_problem p; /* resolved */
    ordo_ref_call c;
    double *q, *k, *v, *o, *lse, *dout, *dlse, *dq, *dk, *dv;
    int32_t cu_q[TRIAL_BATCH + 1], cu_kv[TRIAL_BATCH + 1];
    int32_t q_lens[TRIAL_BATCH], kv_lens[TRIAL_BATCH];
    float slopes[64];
    double sink[64], dsink[64], dsink_parts[64];
    double *bias, *dbias;
    uint32_t *bits;
} trial;

/* Room for a tensor, at random if `state`, else NaN: what is not written shows. */
static inline double *trial_array(const ordo_problem *p, ordo_ref_role role, uint64_t *state)
{
    const int64_t count = ordo_ref_count(p, role);
    double *x = calloc((size_t)count, sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = state ? 2 * check_uniform(state) : (double)NAN;
    return x;
}

static inline void trial_connect(trial *t)
{
    const ordo_problem *p = &t->p;
    t->c.q = ordo_ref_array(p, ORDO_REF_Q, t->q);
    t->c.k = ordo_ref_array(p, ORDO_REF_K, t->k);
    t->c.v = ordo_ref_array(p, ORDO_REF_V, t->v);
    t->c.o = ordo_ref_array(p, ORDO_REF_O, t->o);
    t->c.lse = ordo_ref_array(p, ORDO_REF_LSE, t->lse);
    t->c.dout = ordo_ref_array(p, ORDO_REF_O, t->dout);
    t->c.dlse = ordo_ref_array(p, ORDO_REF_LSE, t->dlse);
    t->c.dq = ordo_ref_array(p, ORDO_REF_Q, t->dq);
    t->c.dk = ordo_ref_array(p, ORDO_REF_K, t->dk);
    t->c.dv = ordo_ref_array(p, ORDO_REF_V, t->dv);
    t->c.cu_q = t->cu_q;
    t->c.cu_kv = t->cu_kv;
    t->c.q_lens = t->q_lens;
    t->c.kv_lens = t->kv_lens;
    t->c.slopes = t->slopes;
    t->c.keep_bits = t->bits;
}

/* A sink for each head, with its gradients. */
static inline void trial_add_sinks(trial *t, uint64_t *state)
{
    t->c.sink = (ordo_ref_tensor) { t->sink, ORDO_REF_F64, { 0, 0, 1, 0 } };
    t->c.dsink = (ordo_ref_tensor) { t->dsink, ORDO_REF_F64, { 0, 0, 1, 0 } };
    t->c.dsink_parts = (ordo_ref_tensor) { t->dsink_parts, ORDO_REF_F64, { t->p.heads, 0, 1, 0 } };
    for (int h = 0; h < 64; h++)
        t->sink[h] = 2 * check_uniform(state);
}

/* A bias, some of it -inf, and its gradient. */
static inline void trial_add_bias(trial *t, uint64_t *state)
{
    const int64_t count = ordo_bias_count(&t->p);
    const ordo_tensor tight = { NULL, { 0 } };
    const ordo_bias_strides s = ordo_bias_strides_of(&t->p, &tight);
    t->bias = calloc((size_t)count + 1, sizeof *t->bias);
    t->dbias = calloc((size_t)count + 1, sizeof *t->dbias);
    for (int64_t i = 0; i < count; i++) {
        t->bias[i] = check_between(state, 0, 4) ? check_uniform(state) : -INFINITY;
        t->dbias[i] = (double)NAN;
    }
    t->c.bias = (ordo_ref_tensor) { t->bias, ORDO_REF_F64, { s.sequence, s.row, s.head, 1 } };
    t->c.dbias = (ordo_ref_tensor) { t->dbias, ORDO_REF_F64, { s.sequence, s.row, s.head, 1 } };
}

/* The lengths of packed and padded sequences must be set before. */
static inline trial *trial_create(const ordo_problem *problem, uint64_t seed)
{
    trial *t = calloc(1, sizeof *t);
    uint64_t state = seed;
    ordo_problem p = *problem;
    p.size = sizeof p;
    if (ordo_problem_resolve(&p, &t->p) != ORDO_OK) {
        CHECK_FAIL("%s", ordo_last_error());
        exit(1);
    }
    t->q = trial_array(&t->p, ORDO_REF_Q, &state);
    t->k = trial_array(&t->p, ORDO_REF_K, &state);
    t->v = trial_array(&t->p, ORDO_REF_V, &state);
    t->dout = trial_array(&t->p, ORDO_REF_O, &state);
    t->dlse = trial_array(&t->p, ORDO_REF_LSE, &state);
    t->o = trial_array(&t->p, ORDO_REF_O, NULL);
    t->lse = trial_array(&t->p, ORDO_REF_LSE, NULL);
    t->dq = trial_array(&t->p, ORDO_REF_Q, NULL);
    t->dk = trial_array(&t->p, ORDO_REF_K, NULL);
    t->dv = trial_array(&t->p, ORDO_REF_V, NULL);
    for (int h = 0; h < 64; h++)
        t->slopes[h] = (float)fabs(check_uniform(&state));
    t->c.seed = check_random(&state);
    t->c.offset = check_random(&state) >> 32;
    trial_connect(t);
    return t;
}

static inline void trial_destroy(trial *t)
{
    double *arrays[] = { t->q,    t->k,  t->v,  t->o,  t->lse,  t->dout,
                         t->dlse, t->dq, t->dk, t->dv, t->bias, t->dbias };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
    free(t->bits);
    free(t);
}

static inline void trial_run(trial *t)
{
    CHECK(ordo_ref_forward_f64(&t->p, &t->c) == ORDO_OK);
    CHECK(ordo_ref_backward_f64(&t->p, &t->c) == ORDO_OK);
}

/* Features of a problem, one draw each. */
static inline ordo_problem trial_problem(uint64_t *s)
{
    ordo_problem p = { .size = sizeof p, .head_dim = check_between(s, 1, 5) };
    p.batch = check_between(s, 1, 2);
    p.kv_heads = check_between(s, 1, 2);
    p.heads = p.kv_heads * check_between(s, 1, 3);
    p.q_len = check_between(s, 1, 7);
    p.kv_len = check_between(s, 1, 7);
    p.v_head_dim = check_between(s, 0, 5);
    p.layout = (ordo_layout)check_between(s, 0, 2);
    p.mask = (ordo_mask)check_between(s, 0, 2);
    p.scale = check_between(s, 0, 1) ? check_uniform(s) : 0;
    p.softcap = check_between(s, 0, 1) ? 0.5 + fabs(check_uniform(s)) : 0;
    p.alibi = check_between(s, 0, 1);
    if (check_between(s, 0, 1))
        p.window = (ordo_window) { true, check_between(s, -1, 4), check_between(s, -1, 4) };
    if (check_between(s, 0, 1)) {
        p.dropout.p = 0.3;
        p.dropout.bits = (int)check_between(s, 1, 16);
        p.dropout.rounds = check_between(s, 0, 1) ? 7 : 10;
    }
    if (p.layout == ORDO_DENSE && check_between(s, 0, 1)) {
        const int64_t row_step = p.dropout.p > 0 ? 16 : 1, col_step = p.dropout.p > 0 ? 128 : 1;
        p.shard.row0 = check_between(s, 0, 3) * row_step;
        p.shard.col0 = check_between(s, 0, 3) * col_step;
        p.shard.q_total = p.shard.row0 + p.q_len + check_between(s, 0, 3);
        p.shard.kv_total = p.shard.col0 + p.kv_len + check_between(s, 0, 3);
    }
    p.shard.batch0 = check_between(s, 0, 9);
    if (p.layout != ORDO_PACKED && check_between(s, 0, 1))
        p.bias = (ordo_bias) { true, check_between(s, 0, 1), check_between(s, 0, 1), ORDO_F32 };
    return p;
}

static inline trial *trial_draw(uint64_t seed)
{
    uint64_t state = seed, *s = &state;
    ordo_problem p = trial_problem(s);
    int32_t q_lens[TRIAL_BATCH], kv_lens[TRIAL_BATCH];
    for (int64_t b = 0; b < p.batch; b++) {
        q_lens[b] = (int32_t)check_between(s, 0, p.q_len);
        kv_lens[b] = (int32_t)check_between(s, 0, p.kv_len);
        if (p.layout == ORDO_PACKED) {
            q_lens[b] += q_lens[b] == 0; /* totals must not be 0 */
            kv_lens[b] += kv_lens[b] == 0;
            p.total_q += q_lens[b];
            p.total_kv += kv_lens[b];
        }
    }
    trial *t = trial_create(&p, check_random(s));
    for (int64_t b = 0; b < p.batch; b++) {
        t->q_lens[b] = q_lens[b];
        t->kv_lens[b] = kv_lens[b];
        t->cu_q[b + 1] = t->cu_q[b] + q_lens[b];
        t->cu_kv[b + 1] = t->cu_kv[b] + kv_lens[b];
    }
    if (p.dropout.p > 0 && check_between(s, 0, 1)) {
        const int64_t blocks = p.batch * p.heads * ordo_keep_blocks(p.q_len, p.kv_len);
        t->bits = calloc((size_t)(blocks * ORDO_KEEP_WORDS), sizeof *t->bits);
        for (int64_t i = 0; i < blocks * ORDO_KEEP_WORDS; i++)
            t->bits[i] = (uint32_t)check_random(s);
        trial_connect(t);
    }
    if (p.shard.col0 == 0 && seed % 2 == 0)
        trial_add_sinks(t, s);
    if (p.bias.on)
        trial_add_bias(t, s);
    return t;
}

#endif
