/* known_test.c: the CPU backend against answers derived by hand, in every element type.
 *
 * Every input is exact in bf16. Answers are sums of a few terms below 10, so the rounding of each
 * output to its type dominates: half a unit, taken of at least 1, and some f32 roundings. In 16-bit
 * types the backward pass starts from an o that is itself rounded, which enters through
 * delta = dout . o: another few units. */
#include "base/half.h"
#include "data_attention.h"
#include "ordo/attention.h"

/* The buffers of a call, in any element type. */
typedef struct fixture {
    ordo_call call;
    float data[8][DATA_MAX], lse[DATA_MAX], dlse[DATA_MAX];
    _Alignas(256) unsigned char work[1 << 20];
} fixture;

static void put(ordo_dtype type, float *data, int at, double x)
{
    if (type == ORDO_F32)
        data[at] = (float)x;
    else
        ((uint16_t *)data)[at] = type == ORDO_BF16 ? ordo_bf16_from_f64(x) : ordo_f16_from_f64(x);
}

static double get(ordo_dtype type, const float *data, int at)
{
    if (type == ORDO_F32)
        return (double)data[at];
    const uint16_t half = ((const uint16_t *)data)[at];
    return (double)(type == ORDO_BF16 ? ordo_f32_from_bf16(half) : ordo_f32_from_f16(half));
}

static void compare(const attention_case *c, ordo_dtype type, const char *what, const float *got,
                    const data_list *expected, double unit)
{
    for (int x = 0; x < expected->count; x++) {
        const double e = expected->at[x], g = get(type, got, x);
        if (isinf(e) ? g != e : !(fabs(g - e) <= (unit + 0x1p-20) * fmax(1, fabs(e))))
            CHECK_FAIL("%s, %s: %s[%d] is %.9g, expected %.9g", c->name, ordo_dtype_name(type),
                       what, x, g, e);
    }
}

static void run(const attention_case *c, ordo_dtype type)
{
    static fixture f;
    memset(&f, 0xa5, sizeof f);
    ordo_problem problem = c->problem;
    problem.dtype = type;
    const ordo_plan_options options = { .size = sizeof options, .backend = ORDO_BACKEND_CPU };
    ordo_plan *plan = NULL;
    if (ordo_plan_create(&plan, &problem, NULL, &options) != ORDO_OK ||
        ordo_plan_workspace(plan) > sizeof f.work) {
        CHECK_FAIL("%s: %s", c->name, ordo_last_error());
        ordo_plan_destroy(plan);
        return;
    }
    const bool packed = problem.layout == ORDO_PACKED, padded = problem.layout == ORDO_PADDED;
    f.call = (ordo_call) { .size = sizeof f.call,
                           .q = { f.data[0], { 0 } },
                           .k = { f.data[1], { 0 } },
                           .v = { f.data[2], { 0 } },
                           .dout = { f.data[3], { 0 } },
                           .o = { f.data[4], { 0 } },
                           .dq = { f.data[5], { 0 } },
                           .dk = { f.data[6], { 0 } },
                           .dv = { f.data[7], { 0 } },
                           .lse = f.lse,
                           .dlse = c->dlse.count ? f.dlse : NULL,
                           .cu_q = packed ? c->cu_q : NULL,
                           .cu_kv = packed ? c->cu_kv : NULL,
                           .q_lens = padded ? c->q_lens : NULL,
                           .kv_lens = padded ? c->kv_lens : NULL,
                           .slopes = problem.alibi ? c->slopes : NULL,
                           .keep_bits = c->has_bits ? c->keep_bits : NULL,
                           .workspace = f.work,
                           .workspace_bytes = sizeof f.work,
                           .threads = 2 };
    const data_list *const inputs[] = { &c->q, &c->k, &c->v, &c->dout };
    for (int t = 0; t < 4; t++)
        for (int x = 0; x < inputs[t]->count; x++)
            put(type, f.data[t], x, inputs[t]->at[x]);
    for (int x = 0; x < c->dlse.count; x++)
        f.dlse[x] = (float)c->dlse.at[x];
    if (ordo_attention_forward(plan, &f.call) != ORDO_OK ||
        ordo_attention_backward(plan, &f.call) != ORDO_OK)
        CHECK_FAIL("%s: %s", c->name, ordo_last_error());
    const double unit = type == ORDO_F32 ? 0x1p-24 : type == ORDO_BF16 ? 0x1p-8 : 0x1p-11;
    const double entered = type == ORDO_F32 ? unit : 4 * unit;
    compare(c, type, "o", f.data[4], &c->o, unit);
    compare(c, ORDO_F32, "lse", f.lse, &c->lse, 0x1p-24);
    compare(c, type, "dq", f.data[5], &c->dq, entered);
    compare(c, type, "dk", f.data[6], &c->dk, entered);
    compare(c, type, "dv", f.data[7], &c->dv, unit);
    ordo_plan_destroy(plan);
}

static void visit(const attention_case *c)
{
    run(c, ORDO_F32);
    run(c, ORDO_BF16);
    run(c, ORDO_F16);
}

TEST(known_answers)
{
    attention_cases(visit);
}

CHECK_MAIN()
