/* sink_test.c: one learned logit per head in the softmax, and the order of its gradient.
 *
 * Whatever holds for any problem, and sinks that are not finite, are tested with every other
 * feature: tests/attention_case.h and tests/cuda/grid_test.c draw sinks, too. */
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
