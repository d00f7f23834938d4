/* Merging attention over disjoint sets of keys, on both host backends. */
#include "attention_case.h"

enum { PARTS = 3, ROWS = 37, KEYS = 90 };

/* A full-mask problem of `keys` keys. */
static ordo_problem problem_of(ordo_dtype dtype, int64_t keys)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = dtype;
    p.batch = 2;
    p.heads = 4;
    p.kv_heads = 2;
    p.q_len = ROWS;
    p.kv_len = keys;
    p.head_dim = p.v_head_dim = 24;
    return p;
}

static ordo_plan *plan_of(const ordo_problem *p, ordo_backend backend)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.backend = backend;
    ordo_plan *plan = NULL;
    CHECK(ordo_plan_create(&plan, p, NULL, &options) == ORDO_OK);
    return plan;
}

/* Run the whole, run it in three parts by keys, merge, compare. */
static void compare(ordo_backend backend, ordo_dtype dtype, double tolerance)
{
    attention_case c = { .problem = problem_of(dtype, KEYS) };
    c.ids[1] = 1;
    case_open(&c, 5);
    ordo_plan *plan = plan_of(&c.problem, backend);
    CHECK(ordo_attention_forward(plan, &c.call) == ORDO_OK);

    static const int begins[PARTS + 1] = { 0, 30, 31, KEYS };
    ordo_tensor o_parts[PARTS];
    const float *lse_parts[PARTS];
    float *lse[PARTS];
    const int64_t row = c.problem.kv_heads * c.problem.head_dim;
    for (int x = 0; x < PARTS; x++) {
        const ordo_problem p = problem_of(dtype, begins[x + 1] - begins[x]);
        ordo_plan *part = plan_of(&p, backend);
        ordo_call call = c.call;
        const size_t skip = (size_t)(begins[x] * row) * case_width(&c);
        const ordo_tensor view = { NULL, { KEYS * row, row, c.problem.head_dim, 1 } };
        call.k = call.v = view;
        call.k.data = (char *)c.call.k.data + skip;
        call.v.data = (char *)c.call.v.data + skip;
        o_parts[x] = (ordo_tensor) { case_alloc(c.o_count, case_width(&c)), { 0 } };
        lse[x] = case_alloc(c.lse_count, 4);
        lse_parts[x] = lse[x];
        call.o = o_parts[x];
        call.lse = lse[x];
        CHECK(ordo_attention_forward(part, &call) == ORDO_OK);
        ordo_plan_destroy(part);
    }
    ordo_combine merge = ORDO_COMBINE_INIT;
    merge.parts = PARTS;
    merge.o_parts = o_parts;
    merge.lse_parts = lse_parts;
    merge.o.data = case_alloc(c.o_count, case_width(&c));
    merge.lse = case_alloc(c.lse_count, 4);
    CHECK(ordo_attention_combine(plan, &merge) == ORDO_OK);
    for (size_t x = 0; x < c.o_count; x++)
        CHECK_NEAR(case_get(&c, merge.o.data, x), case_get(&c, c.call.o.data, x), tolerance);
    for (size_t x = 0; x < c.lse_count; x++)
        CHECK_NEAR(merge.lse[x], c.call.lse[x], 1e-5);

    /* threads change no bit */
    float *again = case_alloc(c.o_count, 4);
    ordo_combine other = merge;
    other.o.data = again;
    other.threads = 3;
    CHECK(ordo_attention_combine(plan, &other) == ORDO_OK);
    CHECK(memcmp(again, merge.o.data, c.o_count * case_width(&c)) == 0);

    /* parts that saw nothing add nothing, whatever their o holds */
    for (size_t x = 0; x < c.lse_count; x++)
        lse[0][x] = lse[2][x] = -INFINITY;
    memset(o_parts[0].data, 0xff, c.o_count * case_width(&c)); /* NaN */
    CHECK(ordo_attention_combine(plan, &merge) == ORDO_OK);
    CHECK(memcmp(merge.o.data, o_parts[1].data, c.o_count * case_width(&c)) == 0);
    CHECK_BITS(merge.lse, lse[1], c.lse_count);
    for (size_t x = 0; x < c.lse_count; x++)
        lse[1][x] = -INFINITY;
    CHECK(ordo_attention_combine(plan, &merge) == ORDO_OK);
    CHECK(case_get(&c, merge.o.data, 0) == 0 && merge.lse[0] == -INFINITY);

    for (int x = 0; x < PARTS; x++) {
        free(o_parts[x].data);
        free(lse[x]);
    }
    free(again);
    free(merge.o.data);
    free(merge.lse);
    ordo_plan_destroy(plan);
    case_close(&c);
}

TEST(parts_make_the_whole)
{
    compare(ORDO_BACKEND_REF, ORDO_F32, 1e-6);
    compare(ORDO_BACKEND_CPU, ORDO_F32, 4e-6);
    compare(ORDO_BACKEND_CPU, ORDO_BF16, 4e-2);
    compare(ORDO_BACKEND_CPU, ORDO_F16, 4e-3);
}

TEST(bad_combinations_are_refused)
{
    const ordo_problem p = problem_of(ORDO_F32, 8);
    ordo_plan *plan = plan_of(&p, ORDO_BACKEND_CPU);
    ordo_combine merge = ORDO_COMBINE_INIT;
    CHECK(ordo_attention_combine(NULL, &merge) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_attention_combine(plan, NULL) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_attention_combine(plan, &merge) == ORDO_ERR_ARGUMENT);
    CHECK_HAS(ordo_last_error(), "parts 0");
    merge.parts = 1;
    CHECK(ordo_attention_combine(plan, &merge) == ORDO_ERR_ARGUMENT);
    CHECK_HAS(ordo_last_error(), "o_parts NULL");
    ordo_plan_destroy(plan);
}

CHECK_MAIN(RUN(parts_make_the_whole), RUN(bad_combinations_are_refused))
