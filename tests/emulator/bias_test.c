/* bias_test.c: a bias on the emulator: its place among the logits, what it hides, and its gradient.
 */
#include "bias_case.h"

#include "ordo/machine.h"

/* Head sizes that run by flash, in chains and by phases. */
static const int dims[] = { 64, 192, 320 };
enum { DIMS = sizeof dims / sizeof *dims };

static ordo_plan *own_plan(const attention_case *c)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    options.backend = ORDO_BACKEND_EMULATOR;
    options.order = ORDO_ORDER_ASCENDING; /* that of every mask */
    CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    if (ordo_plan_create(&plan, &c->problem, machine, &options) != ORDO_OK) {
        printf("  %s\n", ordo_last_error());
        exit(1);
    }
    ordo_machine_destroy(machine);
    return plan;
}

static void compute(attention_case *c)
{
    ordo_plan *plan = own_plan(c);
    if (case_run(c, plan, 2) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_plan_destroy(plan);
}

static attention_case plain(int64_t rows, int64_t cols, int dim)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT, .ids = { 0, 1, 2 }, .dlse = (float *)1 };
    ordo_problem *p = &c.problem;
    p->dtype = ORDO_BF16;
    p->batch = 2;
    p->heads = 4;
    p->kv_heads = 2;
    p->q_len = rows;
    p->kv_len = cols;
    p->head_dim = p->v_head_dim = dim;
    p->bias.on = p->bias.per_head = true;
    return c;
}

/* Slopes that are powers of two: a table of ALiBi's terms is exact, and is added as they are. */
TEST(a_table_of_slopes_is_alibi)
{
    for (int x = 0; x < 2 * DIMS; x++) {
        attention_case c = plain(100, 140, dims[x % DIMS]);
        ordo_problem *p = &c.problem;
        p->scale = x < DIMS ? 0.125 : 0;
        p->softcap = x < DIMS ? 0 : 8;
        p->alibi = true;
        p->dropout.p = x % 2 ? 0.1 : 0;
        p->bias = (ordo_bias) { 0 };
        case_open(&c, 30 + (uint64_t)x);
        compute(&c);
        case_results alibi = case_keep(&c);
        p->alibi = false;
        p->bias.on = p->bias.per_head = true;
        case_fill_bias(&c, 0);
        c.call.slopes = NULL;
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t r = 0; r < p->q_len; r++)
                for (int64_t j = 0; j < p->kv_len; j++)
                    ((float *)
                         c.call.bias.data)[case_bias_at(p, 0, h) + (size_t)(r * p->kv_len + j)] =
                        -c.slopes[h] * fabsf((float)(r + p->kv_len - p->q_len - j));
        compute(&c);
        case_same(&c, &alibi, "a table of slopes");
        case_drop(&alibi);
        case_close(&c);
    }
}

TEST(what_is_hidden_is_masked)
{
    for (int x = 0; x < 2 * DIMS; x++) {
        attention_case c = plain(100, 140, dims[x % DIMS]);
        ordo_problem *p = &c.problem;
        p->mask = ORDO_MASK_CAUSAL_TOP_LEFT;
        p->dropout.p = x % 2 ? 0.1 : 0;
        case_open(&c, 50 + (uint64_t)x);
        compute(&c);
        case_results masked = case_keep(&c);
        p->mask = ORDO_MASK_FULL;
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t r = 0; r < p->q_len; r++)
                for (int64_t j = r + 1; j < p->kv_len; j++)
                    ((float *)
                         c.call.bias.data)[case_bias_at(p, 0, h) + (size_t)(r * p->kv_len + j)] =
                        j % 2 ? -INFINITY : -0x1.000002p100f;
        compute(&c);
        case_same(&c, &masked, "a bias that hides");
        case_drop(&masked);
        case_close(&c);
    }
}

/* Kept elements are scaled by 2: the sum of scaled ones is the scaled sum. */
TEST(gradient_is_summed_by_heads_then_sequences)
{
    for (int x = 0; x < 4; x++) {
        attention_case c = plain(70, 150, dims[x % DIMS]);
        ordo_problem *p = &c.problem;
        p->batch = 3; /* the sum of two is the same in any order */
        p->bias = (ordo_bias) { true, x & 1, x & 2, x & 1 ? ORDO_BF16 : ORDO_F32 };
        p->layout = x % 2 ? ORDO_PADDED : ORDO_DENSE;
        p->mask = x == 2 ? ORDO_MASK_FULL : ORDO_MASK_CAUSAL;
        p->softcap = x == 3 ? 10 : 0;
        p->dropout.p = x == 0 ? 0.5 : 0;
        for (int b = 0; b < 3; b++) {
            c.q_lens[b] = 70 - 23 * b;
            c.kv_lens[b] = 100 + 25 * b;
        }
        case_open(&c, 70 + (uint64_t)x);
        float *ds = bias_separate(&c, own_plan);
        ordo_plan *plan = own_plan(&c);
        bias_compare_sums(&c, plan, 1 + x, ds);
        free(ds);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

/* dbias and the other results, against the oracle: far within the error of 16 bits. */
TEST(gradient_is_that_of_the_oracle)
{
    for (int x = 0; x < DIMS; x++) {
        attention_case c = plain(90, 120, dims[x]);
        ordo_problem p = { .size = sizeof p };
        c.problem.softcap = x == 1 ? 0 : 5;
        c.problem.dropout.p = x == 2 ? 0 : 0.1;
        c.problem.bias.per_head = x == 1;
        case_open(&c, 80 + (uint64_t)x);
        compute(&c);
        ordo_plan *plan = own_plan(&c);
        CHECK_INT(ordo_plan_problem(plan, &p), ORDO_OK);
        ordo_ref_call oracle = ordo_ref_view(&p, &c.call);
        double *exact = calloc(c.bias_count, sizeof *exact);
        oracle.dq.data = oracle.dk.data = oracle.dv.data = NULL;
        oracle.dbias.data = exact;
        oracle.dbias.type = ORDO_REF_F64;
        CHECK_INT(ordo_ref_backward_f64(&p, &oracle), ORDO_OK);
        for (size_t at = 0; at < c.bias_count; at++)
            if (!(fabs((double)c.call.dbias[at] - exact[at]) <= 1e-4 * (1 + fabs(exact[at])))) {
                CHECK_FAIL("dbias[%zu] is %.9g, exactly %.9g", at, (double)c.call.dbias[at],
                           exact[at]);
                break;
            }
        free(exact);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

CHECK_MAIN()
