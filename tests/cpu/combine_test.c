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
    lse[0][0] = NAN;
    CHECK(ordo_attention_combine(plan, &merge) == ORDO_OK);
    CHECK(isnan(case_get(&c, merge.o.data, 0)) && isnan(merge.lse[0]));

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

/* Parts of equal weight: large + 1 rounds to large, so that the order of the parts decides whether
 * their sum, divided by their number, is 0 or 1/3. */
TEST(parts_are_added_in_their_order)
{
    static const ordo_backend backends[] = { ORDO_BACKEND_REF, ORDO_BACKEND_CPU };
    for (int x = 0; x < 2; x++) {
        const float large = x ? 0x1p24f : 0x1p53f; /* beside which 1 is lost */
        const ordo_problem p = problem_of(ORDO_F32, KEYS);
        const size_t lines = (size_t)(p.batch * p.heads * ROWS), count = lines * 24;
        float *o[PARTS], *lse = case_alloc(lines, 4), *merged = case_alloc(lines, 4);
        memset(lse, 0, lines * sizeof *lse);
        ordo_tensor o_parts[PARTS];
        const float *const lse_parts[PARTS] = { lse, lse, lse };
        for (int y = 0; y < PARTS; y++) {
            o[y] = case_alloc(count, 4);
            o_parts[y] = (ordo_tensor) { o[y], { 0 } };
            for (size_t z = 0; z < count; z++)
                o[y][z] = y == 0 ? large : y == 1 ? 1 : -large;
        }
        ordo_plan *plan = plan_of(&p, backends[x]);
        ordo_combine merge = ORDO_COMBINE_INIT;
        merge.parts = PARTS;
        merge.o_parts = o_parts;
        merge.lse_parts = lse_parts;
        merge.o.data = case_alloc(count, 4);
        merge.lse = merged;
        CHECK_INT(ordo_attention_combine(plan, &merge), ORDO_OK);
        CHECK(((float *)merge.o.data)[0] == 0 && ((float *)merge.o.data)[count - 1] == 0);
        const ordo_tensor first = o_parts[0];
        o_parts[0] = o_parts[1];
        o_parts[1] = first; /* 1 comes first: the same */
        CHECK_INT(ordo_attention_combine(plan, &merge), ORDO_OK);
        CHECK(((float *)merge.o.data)[0] == 0);
        o_parts[1] = o_parts[2];
        o_parts[2] = first; /* 1, -large, large: exact */
        CHECK_INT(ordo_attention_combine(plan, &merge), ORDO_OK);
        CHECK_NEAR(((float *)merge.o.data)[count - 1], 1.0 / 3, 1e-7);
        for (int y = 0; y < PARTS; y++)
            free(o[y]);
        free(lse);
        free(merged);
        free(merge.o.data);
        ordo_plan_destroy(plan);
    }
}

/* A packed batch is merged row by row, each once, however many sequences the rows belong to: the
 * bits of one dense sequence of as many rows. */
TEST(packed_sequences_are_one)
{
    static const ordo_backend backends[] = { ORDO_BACKEND_REF, ORDO_BACKEND_CPU };
    for (int x = 0; x < 2; x++) {
        uint64_t seed = 8;
        ordo_problem dense = problem_of(ORDO_F32, KEYS), packed = dense;
        dense.batch = 1;
        packed.layout = ORDO_PACKED;
        packed.batch = 5;
        packed.total_q = ROWS;
        packed.total_kv = KEYS;
        const size_t lines = (size_t)(dense.heads * ROWS), count = lines * 24;
        ordo_tensor o[PARTS];
        float *lse[PARTS], *out[2], *out_lse[2];
        for (int y = 0; y < PARTS; y++) {
            o[y] = (ordo_tensor) { case_alloc(count, 4), { 0 } };
            lse[y] = case_alloc(lines, 4);
            for (size_t z = 0; z < count; z++)
                ((float *)o[y].data)[z] = (float)check_uniform(&seed);
            for (size_t z = 0; z < lines; z++)
                lse[y][z] = (float)check_uniform(&seed);
        }
        for (int y = 0; y < 2; y++) {
            const float *const parts[PARTS] = { lse[0], lse[1], lse[2] };
            ordo_plan *plan = plan_of(y ? &packed : &dense, backends[x]);
            ordo_combine merge = ORDO_COMBINE_INIT;
            merge.parts = PARTS;
            merge.o_parts = o;
            merge.lse_parts = parts;
            merge.o.data = out[y] = case_alloc(count, 4);
            merge.lse = out_lse[y] = case_alloc(lines, 4);
            CHECK_INT(ordo_attention_combine(plan, &merge), ORDO_OK);
            ordo_plan_destroy(plan);
        }
        CHECK_BITS(out[1], out[0], count);
        CHECK_BITS(out_lse[1], out_lse[0], lines);
        for (int y = 0; y < PARTS; y++) {
            free(o[y].data);
            free(lse[y]);
        }
        for (int y = 0; y < 2; y++) {
            free(out[y]);
            free(out_lse[y]);
        }
    }
}

TEST(bad_combinations_are_refused)
{
    const ordo_problem p = problem_of(ORDO_F32, 8);
    ordo_plan *plan = plan_of(&p, ORDO_BACKEND_CPU);
    ordo_combine merge = ORDO_COMBINE_INIT;
    CHECK(ordo_attention_combine(NULL, &merge) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_attention_combine(plan, NULL) == ORDO_ERR_ARGUMENT);
    CHECK_REFUSED(ordo_attention_combine(plan, &merge), ORDO_ERR_ARGUMENT, "parts 0");
    merge.parts = 1;
    CHECK_REFUSED(ordo_attention_combine(plan, &merge), ORDO_ERR_ARGUMENT, "o_parts NULL");
    static float o[1 << 16], lse[1 << 12], part[1 << 16];
    const ordo_tensor parts[] = { { .data = part } };
    const float *lse_parts[] = { lse + 1 };
    merge.o.data = o;
    merge.lse = lse;
    merge.o_parts = parts;
    merge.lse_parts = lse_parts;
    CHECK_REFUSED(ordo_attention_combine(plan, &merge), ORDO_ERR_ARGUMENT, "lse and lse_parts");
    ordo_plan_destroy(plan);
}

CHECK_MAIN()
