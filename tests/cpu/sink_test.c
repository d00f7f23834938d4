/* sink_test.c: one learned logit per head in the softmax, and the order of its gradient.
 *
 * Accuracy, threads, places in a batch and shards of heads are tested with every other feature:
 * tests/attention_case.h draws sinks too. Here is what only sinks have. */
#include "attention_bounds.h"
#include "base/sink.h"

static attention_case plain(int64_t rows, int64_t cols, int64_t heads, int64_t dim)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT, .sinks = true, .dlse = (float *)1 };
    c.problem.batch = 2;
    c.problem.heads = c.problem.kv_heads = heads;
    c.problem.q_len = rows;
    c.problem.kv_len = cols;
    c.problem.head_dim = c.problem.v_head_dim = dim;
    return c;
}

TEST(minus_infinity_is_no_sink)
{
    uint64_t seed = case_seed(70);
    for (int trial = 0; trial < 30; trial++) {
        attention_case c;
        case_random(&c, &seed, trial % 3 ? 60 : 200);
        c.call.sink = NULL;
        c.call.dsink = c.call.dsink_parts = NULL;
        case_compute(&c, NULL, 2);
        case_results without = case_keep(&c);
        for (int64_t h = 0; h < c.problem.heads; h++)
            c.sink[h] = -INFINITY;
        c.call.sink = c.sink;
        c.call.dsink = c.dsink;
        c.call.dsink_parts = c.dsink_parts;
        case_compute(&c, NULL, 2);
        memcpy(without.dsink, c.dsink, sizeof c.dsink); /* there were none to compare with */
        memcpy(without.dsink_parts, c.dsink_parts, sizeof c.dsink_parts);
        case_same(&c, &without, "a sink of -inf");
        for (int64_t x = 0; x < c.problem.heads * c.problem.batch; x++)
            CHECK(c.dsink_parts[x] == 0 && c.dsink[x % c.problem.heads] == 0);
        case_drop(&without);
        case_close(&c);
    }
}

/* Far above the logits, far below, and at their size: all within the bounds. */
TEST(sizes)
{
    static const float sizes[] = { -3e38f, -100, -40, -1, 0, 1, 40, 100, 1e4f };
    bound_worst worst = { { 0 }, 0 };
    for (size_t x = 0; x < sizeof sizes / sizeof sizes[0]; x++) {
        attention_case c = plain(70, 90, 3, 24);
        c.problem.dropout.p = x % 2 ? 0.1 : 0;
        case_open(&c, x);
        c.sink[1] = sizes[x];
        ordo_plan *plan = case_plan(&c, NULL);
        bound_check(&c, plan, 2, &worst);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

/* Bottom-right causal with more rows than keys: the first rows see no key, but the sink. */
TEST(rows_that_see_only_the_sink)
{
    attention_case c = plain(200, 60, 2, 16);
    c.problem.mask = ORDO_MASK_CAUSAL;
    case_open(&c, 3);
    case_compute(&c, NULL, 2);
    for (int64_t h = 0; h < 2; h++) {
        for (int64_t r = 0; r < 140; r++) {
            CHECK(c.call.lse[case_lse_at(&c, 1, r, h)] == c.sink[h]);
            CHECK(((float *)c.call.o.data)[case_at(&c, false, 16, 1, r, h)] == 0);
            CHECK(((float *)c.call.dq.data)[case_at(&c, false, 16, 1, r, h)] == 0);
        }
        CHECK(c.call.lse[case_lse_at(&c, 1, 140, h)] > c.sink[h]);
    }
    case_close(&c);
}

/* The documented order, computed again: with one column of values, delta is a product of two. Two
 * rows that the tree adds first have huge terms that cancel; in any other order they would swallow
 * small ones before that. */
TEST(order_of_the_gradient)
{
    enum { ROWS = 300, HEADS = 2 };
    attention_case c = plain(ROWS, 40, HEADS, 1);
    case_open(&c, 4);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t x = 0; x < 2 * HEADS; x++) {
            const int64_t row = 130 + 64 * (x / HEADS), h = x % HEADS;
            ((float *)c.call.q.data)[case_at(&c, false, 1, b, row, h)] = 0.5f;
            ((float *)c.call.dout.data)[case_at(&c, false, 1, b, row, h)] = 0;
            c.dlse[case_lse_at(&c, b, row, h)] = row > 130 ? 0x1p60f : -0x1p60f;
        }
    for (int threads = 1; threads <= 3; threads += 2) {
        case_compute(&c, NULL, threads);
        for (int64_t h = 0; h < HEADS; h++) {
            double sum = 0;
            for (int64_t b = 0; b < 2; b++) {
                double part = 0;
                for (int64_t first = 0; first < ROWS; first += 128) {
                    double terms[128] = { 0 };
                    for (int64_t r = first; r < ROWS && r < first + 128; r++) {
                        const size_t at = case_at(&c, false, 1, b, r, h);
                        const size_t line = case_lse_at(&c, b, r, h);
                        const float product =
                            ((float *)c.call.o.data)[at] * ((float *)c.call.dout.data)[at];
                        terms[r - first] =
                            ordo_sink_term(c.sink[h], c.call.lse[line], product - c.dlse[line]);
                    }
                    for (int64_t half = 64; half > 0; half /= 2)
                        for (int64_t x = 0; x < half; x++)
                            terms[x] += terms[x + half];
                    part += terms[0];
                }
                const float rounded = (float)part;
                CHECK_BITS(&c.dsink_parts[b * HEADS + h], &rounded, 1);
                sum += (double)rounded;
            }
            const float rounded = (float)sum;
            CHECK_BITS(&c.dsink[h], &rounded, 1);
        }
    }
    case_close(&c);
}

/* Either gradient alone has the same bits, and the other memory stays as it is. */
TEST(gradients_are_optional)
{
    attention_case c = plain(130, 64, 3, 8);
    case_open(&c, 5);
    case_compute(&c, NULL, 2);
    case_results both = case_keep(&c);
    c.call.dsink_parts = NULL;
    case_compute(&c, NULL, 1);
    CHECK_BITS(c.dsink, both.dsink, 3);
    CHECK(((unsigned char *)c.dsink_parts)[0] == CASE_POISON);
    c.call.dsink = NULL;
    c.call.dsink_parts = c.dsink_parts;
    case_compute(&c, NULL, 2);
    CHECK_BITS(c.dsink_parts, both.dsink_parts, 6);
    CHECK(((unsigned char *)c.dsink)[0] == CASE_POISON);
    case_drop(&both);
    case_close(&c);
}

/* NaN and +inf reach all rows of their head, and no other head. */
TEST(not_finite)
{
    const float bad[] = { NAN, INFINITY };
    for (int x = 0; x < 2; x++) {
        attention_case c = plain(70, 70, 2, 8), fine = plain(70, 70, 2, 8);
        case_open(&c, 6);
        case_open(&fine, 6);
        c.sink[0] = bad[x];
        case_compute(&c, NULL, 2);
        case_compute(&fine, NULL, 2);
        for (int64_t b = 0; b < 2; b++)
            for (int64_t r = 0; r < 70; r++) {
                CHECK(isnan(c.call.lse[case_lse_at(&c, b, r, 0)]));
                CHECK(isnan(((float *)c.call.o.data)[case_at(&c, false, 8, b, r, 0)]));
            }
        CHECK(isnan(c.dsink[0]) && c.dsink[1] == fine.dsink[1]);
        for (int output = 0; output < CASE_OUTPUTS; output++)
            for (int64_t b = 0; b < 2; b++)
                case_same_rows(&c, b, 1, &fine, b, 1, output);
        case_close(&c);
        case_close(&fine);
    }
}

/* Columns in two calls, the sink in that of column 0: combined, they are the whole within a few
 * units, as without a sink. */
TEST(columns_combine_to_the_whole)
{
    enum { ROWS = 50, COLS = 200, CUT = 128, DIM = 16 };
    attention_case whole = plain(ROWS, COLS, 1, DIM), part[2];
    ordo_tensor o_parts[2];
    const float *lse_parts[2];
    whole.problem.batch = 1;
    case_open(&whole, 7);
    case_compute(&whole, NULL, 1);
    for (int x = 0; x < 2; x++) {
        part[x] = plain(ROWS, x ? COLS - CUT : CUT, 1, DIM);
        part[x].problem.batch = 1;
        part[x].problem.shard = (ordo_shard) { .col0 = x * CUT, .kv_total = COLS, .q_total = ROWS };
        part[x].sinks = x == 0;
        case_open(&part[x], 7);
        memcpy(part[x].call.k.data, (float *)whole.call.k.data + x * CUT * DIM,
               sizeof(float) * (size_t)part[x].problem.kv_len * DIM);
        memcpy(part[x].call.v.data, (float *)whole.call.v.data + x * CUT * DIM,
               sizeof(float) * (size_t)part[x].problem.kv_len * DIM);
        case_compute(&part[x], NULL, 1);
        o_parts[x] = part[x].call.o;
        lse_parts[x] = part[x].call.lse;
    }
    float o[ROWS * DIM], lse[ROWS];
    ordo_combine combine = ORDO_COMBINE_INIT;
    combine.parts = 2;
    combine.o_parts = o_parts;
    combine.lse_parts = lse_parts;
    combine.o.data = o;
    combine.lse = lse;
    ordo_plan *plan = case_plan(&whole, NULL);
    CHECK_INT(ordo_attention_combine(plan, &combine), ORDO_OK);
    for (int r = 0; r < ROWS; r++)
        CHECK(fabsf(lse[r] - whole.call.lse[r]) < 2e-6f);
    for (int x = 0; x < ROWS * DIM; x++)
        CHECK(fabsf(o[x] - ((float *)whole.call.o.data)[x]) < 2e-6f);
    ordo_plan_destroy(plan);
    case_close(&whole);
    case_close(&part[0]);
    case_close(&part[1]);
}

CHECK_MAIN()
