/* shard_test.c: a dense sequence cut by rows or by columns has the bits of the whole, with every
 * rule that looks at global positions: causal masks, windows, ALiBi, dropout.
 *
 *   rows held    all keys given: o, lse and dq of those rows
 *   columns held all queries given, with o and lse of the whole: dk and dv of those columns */
#include "check.h"
#include "ordo/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 300, COLS = 384, HEADS = 2, DIM = 24, WORKSPACE = 1 << 22 };

typedef struct tensors {
    float q[ROWS * HEADS * DIM], dout[ROWS * HEADS * DIM], o[ROWS * HEADS * DIM];
    float dq[ROWS * HEADS * DIM], lse[HEADS * ROWS];
    float k[COLS * HEADS * DIM], v[COLS * HEADS * DIM];
    float dk[COLS * HEADS * DIM], dv[COLS * HEADS * DIM];
} tensors;

static const float slopes[HEADS] = { 0.25f, 0.03125f };

static void fill(float *x, size_t count, uint64_t *seed)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)check_uniform(seed);
}

/* Run both passes, or the backward pass alone from the given o and lse. */
static void run(const ordo_problem *p, tensors *t, bool forward)
{
    static char memory[WORKSPACE + 256];
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_call call = ORDO_CALL_INIT;
    ordo_plan *plan = NULL;
    options.backend = ORDO_BACKEND_CPU;
    CHECK_INT(ordo_plan_create(&plan, p, NULL, &options), ORDO_OK);
    call.q.data = t->q;
    call.k.data = t->k;
    call.v.data = t->v;
    call.o.data = t->o;
    call.lse = t->lse;
    call.dout.data = t->dout;
    call.dq.data = t->dq;
    call.dk.data = t->dk;
    call.dv.data = t->dv;
    call.slopes = p->alibi ? slopes : NULL;
    call.seed = 11;
    call.offset = 5;
    call.threads = 2;
    call.workspace = memory + (256 - (uintptr_t)memory % 256) % 256;
    call.workspace_bytes = WORKSPACE;
    if (forward && ordo_attention_forward(plan, &call) != ORDO_OK)
        CHECK_FAIL("forward: %s", ordo_last_error());
    if (ordo_attention_backward(plan, &call) != ORDO_OK)
        CHECK_FAIL("backward: %s", ordo_last_error());
    ordo_plan_destroy(plan);
}

static size_t row(int64_t r)
{
    return (size_t)r * HEADS * DIM;
}

/* Rows first .. end - 1 of the whole, against all keys. */
static void check_rows(const ordo_problem *whole, const tensors *w, tensors *part, int first,
                       int end)
{
    const size_t count = row(end - first);
    ordo_problem p = *whole;
    p.q_len = end - first;
    p.shard.row0 = first;
    p.shard.q_total = ROWS;
    p.shard.kv_total = COLS;
    *part = *w;
    memcpy(part->q, w->q + row(first), count * sizeof(float));
    memcpy(part->dout, w->dout + row(first), count * sizeof(float));
    run(&p, part, true);
    CHECK_BITS(part->o, w->o + row(first), count);
    CHECK_BITS(part->dq, w->dq + row(first), count);
    for (int h = 0; h < HEADS; h++)
        CHECK_BITS(part->lse + (size_t)h * (size_t)(end - first), w->lse + h * ROWS + first,
                   (size_t)(end - first));
}

/* Columns first .. end - 1 of the whole, against all queries. */
static void check_columns(const ordo_problem *whole, const tensors *w, tensors *part, int first,
                          int end)
{
    const size_t count = row(end - first);
    ordo_problem p = *whole;
    p.kv_len = end - first;
    p.shard.col0 = first;
    p.shard.q_total = ROWS;
    p.shard.kv_total = COLS;
    *part = *w;
    memcpy(part->k, w->k + row(first), count * sizeof(float));
    memcpy(part->v, w->v + row(first), count * sizeof(float));
    run(&p, part, false);
    CHECK_BITS(part->dk, w->dk + row(first), count);
    CHECK_BITS(part->dv, w->dv + row(first), count);
}

static void check_cuts(ordo_mask mask, int64_t left, int64_t right, bool alibi, double dropout)
{
    static tensors whole, part;
    ordo_problem p = ORDO_PROBLEM_INIT;
    uint64_t seed = 17;
    p.dtype = ORDO_F32;
    p.batch = 1;
    p.heads = HEADS;
    p.q_len = ROWS;
    p.kv_len = COLS;
    p.head_dim = DIM;
    p.mask = mask;
    p.window = (ordo_window) { left >= 0 || right >= 0, left, right };
    p.alibi = alibi;
    p.dropout.p = dropout;
    fill(whole.q, row(ROWS), &seed);
    fill(whole.dout, row(ROWS), &seed);
    fill(whole.k, row(COLS), &seed);
    fill(whole.v, row(COLS), &seed);
    run(&p, &whole, true);
    check_rows(&p, &whole, &part, 0, 64);
    check_rows(&p, &whole, &part, 64, 208);
    check_rows(&p, &whole, &part, 208, ROWS);
    check_columns(&p, &whole, &part, 0, 128);
    check_columns(&p, &whole, &part, 128, COLS);
    check_columns(&p, &whole, &part, 256, COLS);
}

TEST(full)
{
    check_cuts(ORDO_MASK_FULL, -1, -1, false, 0);
    check_cuts(ORDO_MASK_FULL, -1, -1, false, 0.25);
}

TEST(causal)
{
    check_cuts(ORDO_MASK_CAUSAL, -1, -1, false, 0);
    check_cuts(ORDO_MASK_CAUSAL_TOP_LEFT, -1, -1, false, 0.25);
}

TEST(windows)
{
    check_cuts(ORDO_MASK_CAUSAL, 70, -1, false, 0);
    check_cuts(ORDO_MASK_FULL, 40, 90, false, 0.25);
}

TEST(alibi)
{
    check_cuts(ORDO_MASK_FULL, -1, -1, true, 0);
    check_cuts(ORDO_MASK_CAUSAL, -1, -1, true, 0.25);
}

CHECK_MAIN(RUN(full), RUN(causal), RUN(windows), RUN(alibi))
