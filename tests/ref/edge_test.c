/* edge_test.c: rows that see nothing, huge logits, infinities, NaNs, and rounding on store. */
#include "base/half.h"
#include "trial.h"

/* A row without visible keys: computed here from the definition alone. */
TEST(rows_that_see_nothing_are_zero)
{
    int empty = 0;
    for (uint64_t seed = 1000; seed < 1400; seed++) {
        trial *t = trial_draw(seed);
        const ordo_problem *p = &t->p;
        trial_run(t);
        if (p->layout == ORDO_DENSE && !p->bias.on) /* which may hide rows, too */
            for (int64_t i = 0; i < p->q_len; i++) {
                const int64_t delta =
                    p->mask == ORDO_MASK_CAUSAL_TOP_LEFT ? 0 : p->shard.kv_total - p->shard.q_total;
                const int64_t at = p->shard.row0 + i + delta;
                int64_t first = p->shard.col0, last = p->shard.col0 + p->kv_len - 1;
                if (p->mask != ORDO_MASK_FULL && at < last)
                    last = at;
                if (p->window.on && p->window.right >= 0 && at + p->window.right < last)
                    last = at + p->window.right;
                if (p->window.on && p->window.left >= 0 && at - p->window.left > first)
                    first = at - p->window.left;
                empty += first > last;
                for (int64_t h = 0; h < p->heads; h++) {
                    const double none = t->c.sink.data ? t->sink[h] : -INFINITY;
                    CHECK((t->lse[h * p->q_len + i] == none) == (first > last));
                    if (first > last) {
                        CHECK(t->o[(i * p->heads + h) * p->v_head_dim] == 0);
                        CHECK(t->dq[(i * p->heads + h) * p->head_dim] == 0);
                    }
                }
            }
        for (int64_t i = 0; i < ordo_ref_count(p, ORDO_REF_K); i++)
            CHECK(isfinite(t->dk[i]));
        trial_destroy(t);
    }
    CHECK(empty > 50);
}

/* One head, two keys, one row, dims 1. */
typedef struct tiny {
    double q, k[2], v[2], o, lse, dout, dq, dk[2], dv[2];
} tiny;

static void run_tiny(tiny *x, double softcap)
{
    const ordo_problem raw = { .size = sizeof raw,
                               .batch = 1,
                               .heads = 1,
                               .q_len = 1,
                               .kv_len = 2,
                               .head_dim = 1,
                               .scale = 1,
                               .softcap = softcap };
    ordo_problem p;
    CHECK(ordo_problem_resolve(&raw, &p) == ORDO_OK);
    const ordo_ref_call c = {
        .q = ordo_ref_array(&p, ORDO_REF_Q, &x->q),
        .k = ordo_ref_array(&p, ORDO_REF_K, x->k),
        .v = ordo_ref_array(&p, ORDO_REF_V, x->v),
        .o = ordo_ref_array(&p, ORDO_REF_O, &x->o),
        .lse = ordo_ref_array(&p, ORDO_REF_LSE, &x->lse),
        .dout = ordo_ref_array(&p, ORDO_REF_O, &x->dout),
        .dq = ordo_ref_array(&p, ORDO_REF_Q, &x->dq),
        .dk = ordo_ref_array(&p, ORDO_REF_K, x->dk),
        .dv = ordo_ref_array(&p, ORDO_REF_V, x->dv),
    };
    CHECK(ordo_ref_forward_f64(&p, &c) == ORDO_OK);
    CHECK(ordo_ref_backward_f64(&p, &c) == ORDO_OK);
}

TEST(huge_logits_do_not_overflow)
{
    tiny x = { .q = 0x1p500, .k = { 0x1p500, -0x1p500 }, .v = { 3, 5 }, .dout = 2 };
    run_tiny(&x, 0);
    CHECK(x.o == 3 && x.lse == 0x1p1000);
    CHECK(x.dq == 0 && x.dk[0] == 0 && x.dk[1] == 0 && x.dv[0] == 2 && x.dv[1] == 0);

    tiny y = { .q = 0x1p500, .k = { 0x1p500, 0x1p500 }, .v = { 3, 5 }, .dout = 2 };
    run_tiny(&y, 0);
    CHECK(y.o == 4 && y.lse == 0x1p1000);

    tiny z = { .q = 0x1p500, .k = { 0x1p500, -0x1p500 }, .v = { 3, 5 }, .dout = 2 };
    run_tiny(&z, 1); /* saturated cap: logits 1 and -1, slope 0 */
    CHECK_NEAR(z.lse, log(exp(1) + exp(-1)), 1e-15);
    CHECK(z.dq == 0 && z.dk[0] == 0);
}

TEST(largest_logit_of_minus_infinity_sees_nothing)
{
    tiny x = { .q = 1, .k = { -INFINITY, -INFINITY }, .v = { 3, 5 }, .dout = 2 };
    run_tiny(&x, 0);
    CHECK(x.o == 0 && x.lse == -INFINITY);
    CHECK(x.dq == 0 && x.dk[0] == 0 && x.dk[1] == 0 && x.dv[0] == 0 && x.dv[1] == 0);

    tiny y = { .q = 1, .k = { -INFINITY, 2 }, .v = { 3, 5 }, .dout = 2 }; /* one finite */
    run_tiny(&y, 0);
    CHECK(y.o == 5 && y.lse == 2);
}

TEST(nan_spreads_over_its_row)
{
    tiny x = { .q = 1, .k = { NAN, 2 }, .v = { 3, 5 }, .dout = 2 };
    run_tiny(&x, 0);
    CHECK(isnan(x.o) && isnan(x.lse));
    tiny y = { .q = 1, .k = { 2, NAN }, .v = { 3, 5 }, .dout = 2 };
    run_tiny(&y, 0);
    CHECK(isnan(y.o) && isnan(y.lse));
}

/* One element of a type, both ways. */
static double widen(ordo_dtype type, const void *data, int64_t i)
{
    if (type == ORDO_F32)
        return (double)((const float *)data)[i];
    const uint16_t half = ((const uint16_t *)data)[i];
    return (double)(type == ORDO_BF16 ? ordo_f32_from_bf16(half) : ordo_f32_from_f16(half));
}

static uint32_t narrow(ordo_dtype type, double x)
{
    if (type == ORDO_F32)
        return ordo_f32_bits(ordo_f32_from_f64(x));
    return type == ORDO_BF16 ? ordo_bf16_from_f64(x) : ordo_f16_from_f64(x);
}

static void put(ordo_dtype type, void *data, int64_t i, double x)
{
    if (type == ORDO_F32)
        ((float *)data)[i] = ordo_f32_from_f64(x);
    else
        ((uint16_t *)data)[i] = (uint16_t)narrow(type, x);
}

/* q, k and v interleaved in one buffer (batch, row, 3, head, dim), and so dq, dk and dv. */
enum { B = 2, S = 6, H = 2, D = 4, COUNT = B * S * H * D, ROW = 3 * H * D };

static ordo_tensor third(void *buffer, ordo_dtype type, int which)
{
    const int64_t width = type == ORDO_F32 ? 4 : 2;
    return (ordo_tensor) { (char *)buffer + which * H * D * width, { S * ROW, ROW, D, 1 } };
}

static int64_t interleaved(int64_t i, int which)
{
    return i / (H * D) * ROW + which * H * D + i % (H * D);
}

/* Typed and strided results are those of double, rounded once. */
static void check_type(ordo_dtype type)
{
    const ordo_problem raw = {
        .batch = B, .heads = H, .q_len = S, .head_dim = D, .mask = ORDO_MASK_CAUSAL, .dtype = type
    };
    trial *t = trial_create(&raw, 77);
    void *qkv = calloc(3 * COUNT, 4), *dqkv = calloc(3 * COUNT, 4);
    void *o = calloc(COUNT, 4), *dout = calloc(COUNT, 4);
    float lse[B * S * H], dlse[B * S * H];
    double *inputs[] = { t->q, t->k, t->v };
    for (int w = 0; w < 3; w++)
        for (int i = 0; i < COUNT; i++) {
            put(type, qkv, interleaved(i, w), inputs[w][i]);
            inputs[w][i] = widen(type, qkv, interleaved(i, w));
        }
    for (int i = 0; i < COUNT; i++) {
        put(type, dout, i, t->dout[i]);
        t->dout[i] = widen(type, dout, i);
    }
    for (int i = 0; i < B * S * H; i++)
        t->dlse[i] = (double)(dlse[i] = (float)t->dlse[i]);

    const ordo_call call = {
        .q = third(qkv, type, 0),
        .k = third(qkv, type, 1),
        .v = third(qkv, type, 2),
        .dq = third(dqkv, type, 0),
        .dk = third(dqkv, type, 1),
        .dv = third(dqkv, type, 2),
        .o = { .data = o },
        .dout = { .data = dout },
        .lse = lse,
        .dlse = dlse,
    };
    CHECK(ordo_ref_forward(&t->p, &call) == ORDO_OK);
    CHECK(ordo_ref_forward_f64(&t->p, &t->c) == ORDO_OK);
    for (int i = 0; i < COUNT; i++) {
        CHECK(narrow(type, widen(type, o, i)) == narrow(type, t->o[i]));
        t->o[i] = widen(type, o, i); /* backward reads what forward stored */
    }
    for (int i = 0; i < B * S * H; i++) {
        CHECK(lse[i] == (float)t->lse[i]);
        t->lse[i] = (double)lse[i];
    }
    CHECK(ordo_ref_backward(&t->p, &call) == ORDO_OK);
    CHECK(ordo_ref_backward_f64(&t->p, &t->c) == ORDO_OK);
    const double *grads[] = { t->dq, t->dk, t->dv };
    for (int w = 0; w < 3; w++)
        for (int i = 0; i < COUNT; i++)
            CHECK(narrow(type, widen(type, dqkv, interleaved(i, w))) == narrow(type, grads[w][i]));
    free(qkv);
    free(dqkv);
    free(o);
    free(dout);
    trial_destroy(t);
}

TEST(every_type_is_double_rounded_once)
{
    check_type(ORDO_F32);
    check_type(ORDO_BF16);
    check_type(ORDO_F16);
}

TEST(nan_is_stored_canonical)
{
    const ordo_problem raw = {
        .size = sizeof raw, .batch = 1, .heads = 1, .q_len = 1, .head_dim = 1, .dtype = ORDO_BF16
    };
    ordo_problem p;
    CHECK(ordo_problem_resolve(&raw, &p) == ORDO_OK);
    uint16_t q = 0xffff, k = 0x3f80, v = 0x3f80, o = 0;
    float lse = 0;
    const ordo_call call = { .q = { .data = &q },
                             .k = { .data = &k },
                             .v = { .data = &v },
                             .o = { .data = &o },
                             .lse = &lse };
    CHECK(ordo_ref_forward(&p, &call) == ORDO_OK);
    CHECK_INT(o, ORDO_BF16_NAN);
    CHECK_INT(ordo_f32_bits(lse), ORDO_F32_NAN);
}

CHECK_MAIN()
