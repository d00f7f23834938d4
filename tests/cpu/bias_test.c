/* bias_test.c: what a bias hides, the order of its gradient, and its memory.
 *
 * Accuracy, threads, places in a batch and shards of heads are tested with every other feature:
 * tests/attention_case.h draws biases too. Here is what only biases have. */
#include "bias_case.h"
#include "cpu/kernels.h"

static attention_case plain(int64_t rows, int64_t cols)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT, .ids = { 0, 1, 2 }, .dlse = (float *)1 };
    ordo_problem *p = &c.problem;
    p->batch = 3;
    p->heads = 6;
    p->kv_heads = 2;
    p->q_len = rows;
    p->kv_len = cols;
    p->head_dim = 24;
    p->v_head_dim = 40;
    p->bias.on = true;
    return c;
}

/* The order of every mask. */
static const ordo_plan_options upwards = { .size = sizeof upwards, .order = ORDO_ORDER_ASCENDING };

/* The bits of a causal mask are those of a bias that hides the same keys, by whatever number, also
 * if the keys and values that nobody sees are NaN or infinite. */
TEST(what_is_hidden_is_masked)
{
    static const float hiding[] = { -INFINITY, -0x1.000002p100f, -3.4e38f };
    for (int x = 0; x < 12; x++) {
        attention_case c = plain(x % 4 == 2 ? 200 : x % 2 ? 70 : 150, 200);
        ordo_problem *p = &c.problem;
        p->mask = ORDO_MASK_CAUSAL_TOP_LEFT;
        p->softcap = x % 4 == 3 ? 5 : 0;
        p->alibi = x % 4 == 2;
        p->dropout.p = x % 3 ? 0.1 : 0;
        p->bias.per_head = x % 2;
        c.sinks = x % 5 == 4;
        case_open(&c, 90 + (uint64_t)x);
        float *bias = c.call.bias.data;
        const float wild[] = { NAN, INFINITY, -INFINITY };
        for (int64_t b = 0; b < p->batch; b++)
            for (int y = 0; x >= 3 && y < 24; y++) {
                ((float *)c.call.k.data)[case_at(&c, true, 24, b, 180, 1) + (size_t)y] =
                    wild[y % 3];
                ((float *)c.call.v.data)[case_at(&c, true, 40, b, 199, 0) + (size_t)y] =
                    wild[y % 3];
            }
        case_compute(&c, &upwards, 2);
        case_results masked = case_keep(&c);
        p->mask = ORDO_MASK_FULL;
        for (int64_t h = 0; h < ordo_bias_heads(p); h++)
            for (int64_t r = 0; r < p->q_len; r++)
                for (int64_t j = r + 1; j < p->kv_len; j++)
                    bias[case_bias_at(p, 0, h) + (size_t)(r * p->kv_len + j)] =
                        hiding[(r + j + x) % 3];
        case_compute(&c, &upwards, 2);
        case_same(&c, &masked, "a bias that hides");
        case_drop(&masked);
        case_close(&c);
    }
}

static ordo_plan *own_plan(const attention_case *c)
{
    return case_plan(c, NULL);
}

TEST(gradient_is_summed_by_heads_then_sequences)
{
    for (int x = 0; x < 16; x++) {
        attention_case c = plain(97, 130);
        ordo_problem *p = &c.problem;
        p->bias.per_sequence = x & 1;
        p->bias.per_head = x & 2;
        p->layout = x & 4 ? ORDO_PADDED : ORDO_DENSE;
        p->mask = x & 8 ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
        p->softcap = x % 3 == 1 ? 4 : 0;
        p->dropout.p = x % 3 == 2 ? 0.17 : 0;
        for (int b = 0; b < 3; b++) {
            c.q_lens[b] = 97 - 40 * b;
            c.kv_lens[b] = 10 + 60 * b;
        }
        case_open(&c, 40 + (uint64_t)x);
        ordo_plan *plan = case_plan(&c, NULL);
        float *ds = bias_separate(&c, own_plan);
        for (int threads = 1; threads <= 4; threads++)
            bias_compare_sums(&c, plan, threads, ds);
        free(ds);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

TEST(targets_give_the_same_bits)
{
    static const char *const names[] = { "generic", "neon", "avx2", "avx512" };
    attention_case c = plain(75, 140);
    c.problem.dtype = c.problem.bias.dtype = ORDO_BF16;
    c.problem.dropout.p = 0.1;
    c.problem.softcap = 6;
    case_open(&c, 8);
    case_compute(&c, NULL, 2);
    case_results one = case_keep(&c);
    for (int x = 0; x < 4; x++) {
        const ordo_kernels *kernels = ordo_cpu_kernels_named(names[x]);
        if (!kernels)
            continue;
        ordo_cpu_kernels_force(kernels);
        case_compute(&c, NULL, 1 + x);
        case_same(&c, &one, names[x]);
    }
    ordo_cpu_kernels_force(NULL);
    case_drop(&one);
    case_close(&c);
}

/* Without dbias the other gradients have the same bits, and without the others dbias has. */
TEST(only_what_is_wanted_is_computed)
{
    attention_case c = plain(80, 100);
    case_open(&c, 12);
    case_compute(&c, NULL, 2);
    case_results all = case_keep(&c);
    float *const dbias = c.call.dbias;
    c.call.dbias = NULL;
    case_compute(&c, NULL, 2);
    case_same(&c, &all, "without dbias");
    c.call.dbias = dbias;

    ordo_plan *plan = case_plan(&c, NULL);
    ordo_call alone = c.call;
    alone.dq.data = alone.dk.data = alone.dv.data = NULL;
    alone.workspace_bytes = ordo_plan_workspace(plan);
    alone.workspace = aligned_alloc(256, (alone.workspace_bytes + 255) / 256 * 256);
    memset(dbias, CASE_POISON, c.bias_count * 4);
    CHECK(ordo_attention_backward(plan, &alone) == ORDO_OK);
    CHECK_BITS(dbias, all.dbias, c.bias_count);
    free(alone.workspace);
    ordo_plan_destroy(plan);
    case_drop(&all);
    case_close(&c);
}

/* Rows that are further apart than they are long, and an axis that repeats. */
TEST(strides)
{
    attention_case c = plain(33, 50);
    ordo_problem *p = &c.problem;
    p->bias.per_head = true;
    case_open(&c, 13);
    float *const tight = c.call.bias.data;
    for (int64_t h = 1; h < p->heads; h++) /* every head has the first one's */
        memcpy(tight + case_bias_at(p, 0, h), tight, 33 * 50 * 4);
    case_compute(&c, NULL, 2);
    case_results one = case_keep(&c);
    float wide[33 * 61];
    for (int r = 0; r < 33; r++)
        for (int j = 0; j < 61; j++)
            wide[r * 61 + j] = j < 50 ? tight[r * 50 + j] : NAN;
    c.call.bias = (ordo_tensor) { wide, { 12345, 0, 61, 1 } };
    case_compute(&c, NULL, 2);
    case_same(&c, &one, "strides");
    c.call.bias = (ordo_tensor) { tight, { 0 } };
    case_drop(&one);
    case_close(&c);
}

/* A part of the case: `rows` rows from row0 and `cols` columns from col0. Its outputs are its own.
 */
static void compare_part(const attention_case *whole, int64_t row0, int64_t rows, int64_t col0,
                         int64_t cols)
{
    const ordo_problem *p = &whole->problem;
    const int64_t dim = p->head_dim, v_dim = p->v_head_dim, heads = p->heads;
    attention_case part = { .problem = *p };
    ordo_problem *own = &part.problem;
    own->q_len = rows;
    own->kv_len = cols;
    own->shard =
        (ordo_shard) { .row0 = row0, .col0 = col0, .q_total = p->q_len, .kv_total = p->kv_len };
    case_open(&part, 15);
    ordo_call *c = &part.call;
    const ordo_tensor empty = { NULL, { 0 } };
    void *const made[] = { c->dq.data, c->dk.data, c->dv.data };
    const bool by_rows = cols == p->kv_len;
    for (int64_t r = 0; r < rows; r++) {
        memcpy((float *)c->q.data + r * heads * dim,
               (const float *)whole->call.q.data + (row0 + r) * heads * dim,
               4 * (size_t)(heads * dim));
        memcpy((float *)c->dout.data + r * heads * v_dim,
               (const float *)whole->call.dout.data + (row0 + r) * heads * v_dim,
               4 * (size_t)(heads * v_dim));
        memcpy((float *)c->o.data + r * heads * v_dim,
               (const float *)whole->call.o.data + (row0 + r) * heads * v_dim,
               4 * (size_t)(heads * v_dim));
        for (int64_t h = 0; h < heads; h++)
            c->lse[h * rows + r] = whole->call.lse[h * p->q_len + row0 + r];
    }
    memcpy(c->k.data, (const float *)whole->call.k.data + col0 * p->kv_heads * dim,
           4 * (size_t)(cols * p->kv_heads * dim));
    memcpy(c->v.data, (const float *)whole->call.v.data + col0 * p->kv_heads * v_dim,
           4 * (size_t)(cols * p->kv_heads * v_dim));
    void *const bias = c->bias.data;
    c->bias.data = (float *)whole->call.bias.data + row0 * p->kv_len + col0;
    const int64_t matrix = p->q_len * p->kv_len, strides[] = { matrix, matrix, p->kv_len, 1 };
    memcpy(c->bias.stride, strides, sizeof strides);
    if (by_rows)
        c->dk = c->dv = empty;
    else
        c->dq = empty;
    ordo_plan *plan = case_plan(&part, &upwards);
    c->workspace_bytes = ordo_plan_workspace(plan);
    c->workspace = aligned_alloc(256, (c->workspace_bytes + 255) / 256 * 256);
    CHECK(ordo_attention_backward(plan, c) == ORDO_OK);
    for (int64_t r = 0; r < rows; r++)
        CHECK_BITS(c->dbias + r * cols, whole->call.dbias + (row0 + r) * p->kv_len + col0,
                   (size_t)cols);
    if (by_rows)
        CHECK_BITS((float *)c->dq.data, (float *)whole->call.dq.data + row0 * heads * dim,
                   (size_t)(rows * heads * dim));
    else
        CHECK_BITS((float *)c->dk.data, (float *)whole->call.dk.data + col0 * p->kv_heads * dim,
                   (size_t)(cols * p->kv_heads * dim));
    free(c->workspace);
    ordo_plan_destroy(plan);
    c->bias.data = bias;
    c->dq.data = made[0], c->dk.data = made[1], c->dv.data = made[2];
    case_close(&part);
}

TEST(parts_have_the_bits_of_the_whole)
{
    attention_case c = plain(97, 200);
    c.dlse = NULL;
    c.problem.batch = 1;
    c.problem.mask = ORDO_MASK_CAUSAL;
    case_open(&c, 15);
    case_compute(&c, &upwards, 2);
    compare_part(&c, 0, 37, 0, 200);
    compare_part(&c, 37, 60, 0, 200);
    compare_part(&c, 0, 97, 0, 128);
    compare_part(&c, 0, 97, 128, 72);
    case_close(&c);
}

/* A row whose bias is NaN or +inf is NaN, and no other row. Its gradient is the one NaN of ordo,
 * and so is that of a row to which two heads add opposite infinities. */
TEST(not_finite)
{
    const float bad[] = { NAN, INFINITY }, nan = ordo_f32_of_bits(ORDO_F32_NAN);
    for (int x = 0; x < 2; x++) {
        attention_case c = plain(60, 90);
        ordo_problem *p = &c.problem;
        case_open(&c, 14);
        float *const bias = c.call.bias.data;
        for (int j = 0; j < 90; j++) /* which see something */
            bias[17 * 90 + j] = bias[20 * 90 + j] = 0;
        c.dlse[case_lse_at(&c, 0, 20, 0)] = INFINITY;
        c.dlse[case_lse_at(&c, 0, 20, 1)] = -INFINITY;
        case_compute(&c, NULL, 2);
        case_results fine = case_keep(&c);
        bias[17 * 90 + 60] = bad[x];
        case_compute(&c, NULL, 2);
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t r = 0; r < p->q_len; r++) {
                const size_t at = case_at(&c, false, p->v_head_dim, 1, r, h);
                const float *o = (const float *)c.call.o.data + at;
                const float *was = (const float *)(const void *)fine.data[0] + at;
                for (int64_t d = 0; d < p->v_head_dim && r == 17; d++)
                    CHECK(isnan(o[d]));
                if (r != 17)
                    CHECK_BITS(o, was, p->v_head_dim);
            }
        for (size_t at = 0; at < c.bias_count; at++) {
            if (at / 90 == 17 || at / 90 == 20)
                CHECK_BITS(c.call.dbias + at, &nan, 1);
            else
                CHECK_BITS(c.call.dbias + at, fine.dbias + at, 1);
        }
        case_drop(&fine);
        case_close(&c);
    }
}

CHECK_MAIN()
