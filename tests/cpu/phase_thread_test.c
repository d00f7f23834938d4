/* phase_thread_test.c: row tiles taken together give the bits of row tiles taken one by one. */
#include "attention_case.h"
#include "cpu/pass.h"

enum { NEVER = 1 << 20 }; /* no head size is that large */

static void compare(attention_case *c, const ordo_plan_options *options, int threads)
{
    ordo_plan *plan = case_plan(c, options);
    ordo_cpu_phase_force(NEVER);
    case_results single = case_first(c, plan, threads);
    ordo_cpu_phase_force(1);
    case_again(c, plan, threads, &single, "row tiles together");
    ordo_cpu_phase_force(0);
    case_drop(&single);
    ordo_plan_destroy(plan);
}

/* Small tiles: 32 of 16 rows go together. Every mask, order, layout and dropout. */
TEST(random_problems)
{
    static const ordo_order orders[] = { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING,
                                         ORDO_ORDER_SPT, ORDO_ORDER_TWIN, ORDO_ORDER_SPT_TAIL };
    uint64_t seed = case_seed(384);
    for (int i = 0; i < 40; i++) {
        attention_case c;
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        case_random(&c, &seed, 1100);
        options.backward_tile = (ordo_tile) { 16 << (i % 3), 32 };
        options.order = orders[i % 5];
        compare(&c, &options, 1 + i % 4);
        case_close(&c);
    }
}

/* The head sizes it is for, with the plan's own tiles. */
TEST(large_heads)
{
    static const int64_t dims[] = { 384, 512, 576 };
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (int causal = 0; causal < 2; causal++) {
            attention_case c = { .problem = ORDO_PROBLEM_INIT, .call = ORDO_CALL_INIT };
            c.problem.batch = 1;
            c.problem.heads = c.problem.kv_heads = 2; /* heads that share keys go one by one */
            c.problem.q_len = c.problem.kv_len = 600;
            c.problem.head_dim = c.problem.v_head_dim = dims[i];
            c.problem.mask = causal ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
            c.problem.dropout.p = 0.1;
            case_open(&c, 5);
            compare(&c, NULL, 2);
            case_close(&c);
        }
}

/* Infinities and NaN in rows and keys that the mask hides from others: a tile of them needs care,
 * so it does not go with the others. Orders that walk upwards, or nothing goes together. */
TEST(not_finite)
{
    enum { PLACE = 70 }; /* row or key that is not finite; tiles have 64 rows and 128 columns */
    for (int x = 0; x < 4; x++) {
        attention_case c = { .problem = ORDO_PROBLEM_INIT, .call = ORDO_CALL_INIT };
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        c.problem.batch = c.problem.heads = c.problem.kv_heads = 1;
        c.problem.q_len = c.problem.kv_len = 700;
        c.problem.head_dim = c.problem.v_head_dim = 512;
        c.problem.mask = ORDO_MASK_CAUSAL;
        case_open(&c, 6);
        void *const inputs[] = { c.call.q.data, c.call.k.data, c.call.v.data, c.call.dout.data };
        const double wrong = x % 2 ? (double)NAN : (double)INFINITY;
        case_put(&c, inputs[x], PLACE * 512 + 3, wrong);
        options.order = ORDO_ORDER_SPT;
        compare(&c, &options, 1);
        case_close(&c);
    }
}

CHECK_MAIN()
