/* accuracy_test.c: the CPU backend is within derived bounds of the oracle, for every feature.
 *
 * tests/attention_bounds.h derives the bounds. The worst error in units of its bound is printed: a
 * bound so wide that nothing ever came near it would test nothing, and fails here too. */
#include "attention_bounds.h"

static bound_worst worst[3]; /* by dtype */

static void check(attention_case *c, const ordo_plan_options *options, int threads)
{
    ordo_plan *plan = case_plan(c, options);
    bound_check(c, plan, threads, &worst[c->problem.dtype]);
    ordo_plan_destroy(plan);
}

/* How often each feature was drawn: the generator must not quietly stop drawing one. */
typedef struct drawn {
    int dtypes[3], layouts[3], masks[3];
    int windows, caps, slopes, shared, dims, empty, dlse, generated, stored, fa2, shards, negative;
    int sinks, biases[3], own_bias, head_bias;
} drawn;

static void count(drawn *n, const attention_case *c)
{
    const ordo_problem *p = &c->problem;
    n->dtypes[p->dtype]++;
    n->layouts[p->layout]++;
    n->masks[p->mask]++;
    n->windows += p->window.on;
    n->caps += p->softcap > 0;
    n->slopes += p->alibi;
    n->shared += p->heads > p->kv_heads;
    n->dims += p->v_head_dim != p->head_dim;
    n->dlse += c->dlse != NULL;
    n->stored += c->bits != NULL;
    n->generated += p->dropout.p > 0 && !c->bits;
    n->fa2 += p->dropout.keying == ORDO_KEYING_FA2;
    n->shards += p->shard.head0 > 0;
    n->negative += p->scale < 0;
    n->sinks += c->sinks;
    if (p->bias.on)
        n->biases[p->bias.dtype]++;
    n->own_bias += p->bias.per_sequence;
    n->head_bias += p->bias.per_head;
    for (int64_t b = 0; b < p->batch; b++)
        n->empty += case_length(c, false, b) == 0 || case_length(c, true, b) == 0;
}

TEST(random_features)
{
    uint64_t seed = case_seed(20);
    drawn n = { 0 };
    for (int trial = 0; trial < 150; trial++) {
        attention_case c;
        case_random(&c, &seed, trial % 10 == 0 ? 300 : trial % 3 == 0 ? 12 : 100);
        count(&n, &c);
        check(&c, NULL, 1 + trial % 3);
        case_close(&c);
    }
    const int *counts = (const int *)&n;
    for (size_t x = 0; x < sizeof n / sizeof *counts && !getenv("ORDO_TEST_SEED"); x++)
        if (counts[x] < 3)
            CHECK_FAIL("feature %zu was drawn %d times", x, counts[x]);
}

/* Tiles of odd sizes, larger and smaller than the default ones, and all orders. */
TEST(random_tiles_and_orders)
{
    uint64_t seed = case_seed(21);
    for (int trial = 0; trial < 40; trial++) {
        attention_case c;
        case_random(&c, &seed, 100);
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        static const ordo_order orders[] = { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING,
                                             ORDO_ORDER_SPT, ORDO_ORDER_TWIN, ORDO_ORDER_SPT_TAIL };
        options.order = orders[trial % 5];
        options.forward_tile =
            (ordo_tile) { check_between(&seed, 1, 100), check_between(&seed, 1, 200) };
        options.backward_tile =
            (ordo_tile) { check_between(&seed, 1, 100), check_between(&seed, 1, 200) };
        check(&c, &options, 2);
        case_close(&c);
    }
}

/* Every width up to two vectors, then around multiples of 16 and 64, up to the widest. */
TEST(head_sizes)
{
    static const int wide[] = { 47, 48, 49, 63, 64, 65, 127, 128, 129, 255, 256, 511, 512, 575 };
    for (int x = 1; x < 49; x++) {
        const int dim = x <= 33 ? x : x - 34 < 14 ? wide[x - 34] : 576;
        attention_case c = { .problem = ORDO_PROBLEM_INIT };
        c.problem.dtype = (ordo_dtype)(x % 3);
        c.problem.batch = 1;
        c.problem.heads = 2;
        c.problem.kv_heads = 1;
        c.problem.q_len = c.problem.kv_len = dim > 128 ? 70 : 40 + x;
        c.problem.head_dim = dim;
        c.problem.v_head_dim = x % 4 ? dim : 577 - dim;
        c.problem.mask = (ordo_mask)(x % 2);
        case_open(&c, (uint64_t)x);
        check(&c, NULL, 1);
        case_close(&c);
    }
}

/* Caps from far below every score, where logits are constant, to far above, where they are linear.
 */
TEST(soft_caps)
{
    static const double caps[] = { 0x1p-126, 1e-30, 1e-10, 1e-3, 0.1, 1,    5,    20,   30,
                                   50,       100,   1e3,   1e6,  1e8, 1e12, 1e20, 1e30, 1e38 };
    for (size_t x = 0; x < sizeof caps / sizeof caps[0]; x++)
        for (int strong = 0; strong < 2; strong++) {
            attention_case c = { .problem = ORDO_PROBLEM_INIT };
            c.problem.dtype = x % 4 == 3 ? ORDO_BF16 : ORDO_F32;
            c.problem.batch = 1;
            c.problem.heads = 2;
            c.problem.kv_heads = 1;
            c.problem.q_len = 40;
            c.problem.kv_len = 150;
            c.problem.head_dim = c.problem.v_head_dim = 32;
            c.problem.softcap = caps[x];
            c.problem.scale = x % 5 == 4 ? -0.3 : 0;
            c.problem.alibi = x % 3 == 2;
            c.strength = strong ? 5 : 1;
            c.dlse = (float *)1;
            case_open(&c, x);
            check(&c, NULL, 2);
            case_close(&c);
        }
}

/* After the others: how much of the bounds was used. A bound is a worst case over all roundings,
 * so f32 results stay well inside; 16-bit results are mostly one rounding, which is exhausted. */
TEST(bounds_are_not_idle)
{
    static const char *const names[] = { "f32 ", "bf16", "f16 " };
    for (int t = 0; t < 3; t++) {
        printf("  %s errors over bounds:", names[t]);
        for (int x = 0; x < CASE_OUTPUTS; x++) {
            printf("  %s %.3f", case_output_names[x], worst[t].at[x]);
            CHECK(worst[t].at[x] <= 1);
            CHECK(worst[t].at[x] > (t == 0 || x == 1 ? 0.02 : 0.5));
        }
        printf("  dsink %.3f  dbias %.3f\n", worst[t].dsink, worst[t].dbias);
        CHECK(worst[t].dbias <= 1 && worst[t].dbias > 0.02);
        CHECK(worst[t].dsink <= 1 && worst[t].dsink > 0.02);
    }
}

CHECK_MAIN()
