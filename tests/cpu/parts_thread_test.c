/* parts_thread_test.c: chains that several threads share give the bits of chains that one has. */
#include "attention_case.h"
#include "cpu/handoff.h"

/* Random problems, and numbers of threads. A sanitizer takes thirty times as long, and needs a path
 * once. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PROBLEMS = 30 };
static const int threads[] = { 3, 8 };
#else
enum { PROBLEMS = 120 };
static const int threads[] = { 2, 3, 4, 5, 8, 16 };
#endif

TEST(parts_by_chains_and_workers)
{
    CHECK_INT(ordo_cpu_parts(16, 8, 128), 1); /* two chains per worker: enough */
    CHECK_INT(ordo_cpu_parts(16, 9, 128), 2);
    CHECK_INT(ordo_cpu_parts(16, 16, 128), 2);
    CHECK_INT(ordo_cpu_parts(16, 17, 128), 4);
    CHECK_INT(ordo_cpu_parts(1, 1, 128), 1);
    CHECK_INT(ordo_cpu_parts(1, 2, 128), 2); /* never more parts than workers: all must run */
    CHECK_INT(ordo_cpu_parts(1, 3, 128), 2);
    CHECK_INT(ordo_cpu_parts(1, 1000, 128), 4);
    CHECK_INT(ordo_cpu_parts(1, 1000, 127), 2); /* 32 columns a part, at least */
    CHECK_INT(ordo_cpu_parts(1, 1000, 63), 1);
    CHECK_INT(ordo_cpu_parts(0, 8, 128), 1);
    CHECK_INT(ordo_cpu_parts(INT64_MAX / 8, 8, 128), 1);
}

static void compare(attention_case *c, const ordo_plan_options *options)
{
    ordo_plan *plan = case_plan(c, options);
    case_results one = case_first(c, plan, 1);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        case_again(c, plan, threads[i], &one, "chains shared");
    }
    case_drop(&one);
    ordo_plan_destroy(plan);
}

/* Few chains of every mask, layout and type, groups and dropout; parts that the mask leaves
 * nothing, and tiles that end inside one. */
TEST(random_problems)
{
    uint64_t seed = case_seed(4096);
    for (int i = 0; i < PROBLEMS; i++) {
        attention_case c;
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        case_random(&c, &seed, 300);
        options.backward_tile = (ordo_tile) { 16 << (i % 3), 64 << (i % 2) };
        compare(&c, &options);
        case_close(&c);
    }
}

/* With the plan's own tiles, under delays before every turn; inf and NaN where some rows see them.
 */
TEST(one_head)
{
    for (int kind = 0; kind < 6; kind++) {
        attention_case c = { .problem = ORDO_PROBLEM_INIT, .call = ORDO_CALL_INIT };
        c.problem.batch = 1;
        c.problem.heads = kind % 3 == 2 ? 3 : 1;
        c.problem.kv_heads = 1;
        c.problem.q_len = 333;
        c.problem.kv_len = kind % 2 ? 333 : 457;
        c.problem.head_dim = c.problem.v_head_dim = kind == 5 ? 512 : 32;
        c.problem.mask = kind == 0 ? ORDO_MASK_FULL : ORDO_MASK_CAUSAL;
        if (kind == 3)
            c.problem.window = (ordo_window) { true, 70, 0 };
        c.problem.dropout.p = kind % 2 ? 0.17 : 0;
        case_open(&c, 7 + (uint64_t)kind);
        if (kind >= 3) {
            const size_t row = (size_t)c.problem.head_dim;
            case_put(&c, c.call.k.data, 100 * row, INFINITY);
            case_put(&c, c.call.v.data, 200 * row + 1, NAN);
            case_put(&c, c.call.v.data, 31, -INFINITY);
        }
        ordo_delay_turns(kind % 2 ? 50 : 0);
        compare(&c, NULL);
        case_close(&c);
    }
    ordo_delay_turns(0);
}

/* Symmetric units of two key tiles are two chains, and need no others beside them. */
TEST(units_of_two_chains)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT, .call = ORDO_CALL_INIT };
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    c.problem.batch = 1;
    c.problem.heads = c.problem.kv_heads = 2;
    c.problem.q_len = c.problem.kv_len = 256;
    c.problem.head_dim = c.problem.v_head_dim = 32;
    c.problem.mask = ORDO_MASK_CAUSAL;
    case_open(&c, 11);
    ordo_plan *plan = case_plan(&c, NULL);
    CHECK(case_run(&c, plan, 1) == ORDO_OK);
    const size_t count = c.k_count;
    float *dk = malloc(count * sizeof *dk), *dv = malloc(count * sizeof *dv);
    CHECK(dk && dv);
    memcpy(dk, c.call.dk.data, count * sizeof *dk);
    memcpy(dv, c.call.dv.data, count * sizeof *dv);
    ordo_plan_destroy(plan);
    options.order = ORDO_ORDER_SYMMETRIC;
    compare(&c, &options);
    for (size_t i = 0; i < count; i++) { /* every key has its gradients: another order, close */
        CHECK(fabsf(((float *)c.call.dk.data)[i] - dk[i]) < 1e-4f);
        CHECK(fabsf(((float *)c.call.dv.data)[i] - dv[i]) < 1e-4f);
    }
    free(dk);
    free(dv);
    case_close(&c);
}

/* A tile of rows needs more room than one of keys, of values much wider than queries. */
TEST(tall_tiles)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT, .call = ORDO_CALL_INIT };
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    c.problem.batch = 1;
    c.problem.heads = c.problem.kv_heads = 1;
    c.problem.q_len = c.problem.kv_len = 512;
    c.problem.head_dim = 1;
    c.problem.v_head_dim = 576;
    case_open(&c, 3);
    options.backward_tile = (ordo_tile) { 512, 16 };
    compare(&c, &options);
    case_close(&c);
}

CHECK_MAIN()
