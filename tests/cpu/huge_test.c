/* huge_test.c: forward passes with logits whose rounding errors exceed the range of exp2.
 *
 * Scores are whole numbers, one per key, so that the last visible key has all the probability: o is
 * its v. The products of scores and scale are not exact. */
#include "check.h"
#include "ordo/ordo.h"

enum { ROWS = 40, KEYS = 40, DIM = 8, COUNT = ROWS * DIM };

typedef struct tensors {
    float q[COUNT], k[COUNT], v[COUNT], o[COUNT], lse[ROWS];
} tensors;

static void fill(tensors *t, float sign)
{
    for (int i = 0; i < COUNT; i++) {
        t->q[i] = i % DIM == 0 ? sign * 3 : 0;
        const int row = i / DIM;
        t->k[i] = i % DIM == 0 ? sign * (float)(row - 60) : 0;
        t->v[i] = (float)(i % 97) - 50;
    }
}

static void check_results(const tensors *t, bool causal, double scale)
{
    int wrong = 0;
    for (int r = 0; r < ROWS; r++) {
        const int last = causal ? r : KEYS - 1;
        const double lse = 3.0 * (last - 60) * (double)(float)scale;
        wrong += !(fabs((double)t->lse[r] - lse) <= 1e-6 * fabs(lse));
        for (int d = 0; d < DIM; d++)
            wrong += !(fabsf(t->o[r * DIM + d] - t->v[last * DIM + d]) <= 1e-5f);
    }
    if (wrong > 0)
        CHECK_FAIL("%s, scale %g: %d wrong values", causal ? "causal" : "full", scale, wrong);
}

static void forward(tensors *t, bool causal, double scale)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    problem.dtype = ORDO_F32;
    problem.batch = problem.heads = 1;
    problem.q_len = ROWS;
    problem.head_dim = DIM;
    problem.scale = scale;
    problem.mask = causal ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
    options.backend = ORDO_BACKEND_CPU;
    CHECK_INT(ordo_plan_create(&plan, &problem, NULL, &options), ORDO_OK);
    ordo_call call = ORDO_CALL_INIT;
    call.q.data = t->q;
    call.k.data = t->k;
    call.v.data = t->v;
    call.o.data = t->o;
    call.lse = t->lse;
    CHECK_INT(ordo_attention_forward(plan, &call), ORDO_OK);
    ordo_plan_destroy(plan);
}

TEST(the_largest_logit_has_all_the_probability)
{
    static const double scales[] = {
        100, 1.7e6, 1.3e7, 1.1e8, 1.7e9, 3.3e12, 7.1e20, 1.9e30, 1e35
    };
    static tensors t;
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
        for (int x = 0; x < 4; x++) {
            fill(&t, x / 2 ? 1 : -1);
            forward(&t, x % 2, scales[i]);
            check_results(&t, x % 2, scales[i]);
        }
}

/* Rows are computed 16 at a time. */
TEST(a_row_of_huge_logits_leaves_others_their_bits)
{
    static tensors one, other;
    fill(&one, 0.1f);
    fill(&other, 0.1f);
    other.q[7 * DIM] *= 1e12f;
    forward(&one, false, 0.3);
    forward(&other, false, 0.3);
    CHECK(one.lse[7] != other.lse[7]);
    one.lse[7] = other.lse[7];
    memcpy(one.o + 7 * DIM, other.o + 7 * DIM, DIM * sizeof(float));
    CHECK_BITS(one.o, other.o, COUNT);
    CHECK_BITS(one.lse, other.lse, ROWS);
}

/* A logit that overflows has weight NaN, whatever the rows beside it hold. */
TEST(an_infinite_logit_does_not_ask_its_neighbours)
{
    static tensors one, other;
    fill(&one, 1);
    fill(&other, 1);
    one.q[0] = other.q[0] = -1e37f; /* k is negative: +inf */
    other.q[DIM] *= 1e12f;
    forward(&one, false, 4);
    forward(&other, false, 4);
    CHECK_BITS(one.o, other.o, DIM);
    CHECK_BITS(one.lse, other.lse, 1);
}

CHECK_MAIN()
