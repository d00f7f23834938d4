/* edge_test.c: inputs at the edge of what floating point holds, on the CPU backend: equal and huge
 * scores, subnormals, infinities and NaNs; seen by some rows, or by none. */
#include "attention_bounds.h"

static attention_case start(ordo_dtype dtype, ordo_mask mask, int q_len, int kv_len, int dim)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT };
    c.problem.dtype = dtype;
    c.problem.mask = mask;
    c.problem.batch = 2;
    c.problem.heads = 2;
    c.problem.kv_heads = 1;
    c.problem.q_len = q_len;
    c.problem.kv_len = kv_len;
    c.problem.head_dim = c.problem.v_head_dim = dim;
    for (int b = 0; b < 2; b++) {
        c.ids[b] = b;
        c.q_lens[b] = q_len - b * q_len / 3;
        c.kv_lens[b] = kv_len - b * kv_len / 3;
    }
    return c;
}

/* Against the oracle, then free it. */
static void finish(attention_case *c)
{
    bound_worst worst = { { 0 } };
    ordo_plan *plan = case_plan(c, NULL);
    bound_check(c, plan, 2, &worst);
    ordo_plan_destroy(plan);
    case_close(c);
}

static void multiply(const attention_case *c, void *data, size_t count, double factor)
{
    for (size_t x = 0; x < count; x++)
        case_put(c, data, x, factor * case_get(c, data, x));
}

static void set_all(const attention_case *c, void *data, size_t count, double value)
{
    for (size_t x = 0; x < count; x++)
        case_put(c, data, x, value);
}

/* The largest scale over the smallest cap is no float: a score of 0 is 0 all the same. */
TEST(scores_of_zero_under_the_smallest_cap)
{
    attention_case c = start(ORDO_F32, ORDO_MASK_FULL, 40, 40, 8);
    c.problem.scale = 0x1p126;
    c.problem.softcap = 0x1p-126;
    case_open(&c, 1);
    set_all(&c, c.call.q.data, c.q_count, 0);
    set_all(&c, c.call.v.data, c.v_count, 1);
    case_compute(&c, NULL, 2);
    for (size_t x = 0; x < c.o_count; x++)
        CHECK_NEAR(case_get(&c, c.call.o.data, x), 1, 0x1p-24);
    case_close(&c);
}

/* Every probability is 1/n; with values of one the output is one. */
TEST(equal_scores)
{
    for (int t = 0; t < 3; t++)
        for (int mask = 0; mask < 2; mask++) {
            attention_case c = start((ordo_dtype)t, (ordo_mask)mask, 150, 150, 24);
            case_open(&c, 1);
            set_all(&c, c.call.q.data, c.q_count, 0.75);
            set_all(&c, c.call.k.data, c.k_count, -1.5);
            set_all(&c, c.call.v.data, c.v_count, 1);
            case_compute(&c, NULL, 2);
            for (size_t x = 0; x < c.o_count; x++) /* n times 1/n, each rounded */
                CHECK_NEAR(case_get(&c, c.call.o.data, x), 1, t == 0 ? 0x1p-24 : 0);
            for (int row = 0; row < 150; row++) {
                const double sees = mask ? row + 1 : 150;
                CHECK_NEAR((double)c.call.lse[row], 0.75 * -1.5 * sqrt(24) + log(sees), 2e-6);
            }
            finish(&c);
        }
}

/* One key takes all: the output is its value, and gradients of the scores vanish. */
TEST(one_huge_score)
{
    for (int t = 0; t < 3; t++) {
        attention_case c = start((ordo_dtype)t, ORDO_MASK_FULL, 70, 300, 16);
        case_open(&c, 2);
        set_all(&c, c.call.q.data, c.q_count, 16);
        set_all(&c, c.call.k.data, c.k_count, -16);
        for (int64_t b = 0; b < 2; b++)
            for (int d = 0; d < 16; d++)
                case_put(&c, c.call.k.data, case_at(&c, true, 16, b, 201, 0) + (size_t)d, 16);
        case_compute(&c, NULL, 2);
        for (int64_t row = 0; row < 70; row++)
            for (int d = 0; d < 16; d++) {
                const size_t o = case_at(&c, false, 16, 1, row, 1) + (size_t)d;
                const size_t v = case_at(&c, true, 16, 1, 201, 0) + (size_t)d;
                CHECK(case_get(&c, c.call.o.data, o) == case_get(&c, c.call.v.data, v));
            }
        for (size_t x = 0; x < c.lse_count; x++)
            CHECK(c.call.lse[x] == 16 * 16 * 4);
        finish(&c);
    }
}

/* Logits between 50 and 60 in the first key tile, about 0.5 in all others, which together weigh
 * less than a unit in the last place: however many tiles follow, the running maximum stays, and
 * earlier results are multiplied by exactly 1. So the bits of lse and o do not depend on their
 * number. */
TEST(a_maximum_that_stays)
{
    enum { ROWS = 32, LENGTHS = 3 };
    static const int lengths[LENGTHS] = { 128, 4096, 40000 };
    for (int kind = 0; kind < 4; kind++) { /* plain, negative scale, ALiBi, soft cap */
        float lse[ROWS], o[ROWS];
        for (int x = 0; x < LENGTHS; x++) {
            attention_case c = start(ORDO_F32, ORDO_MASK_FULL, ROWS, lengths[x], 1);
            c.problem.batch = c.problem.heads = 1;
            c.problem.scale = kind == 1 ? -0.7 : 0.7;
            c.problem.alibi = kind == 2;
            c.problem.softcap = kind == 3 ? 1e4 : 0;
            case_open(&c, 16);
            c.slopes[0] = 1e-20f;
            for (int r = 0; r < ROWS; r++)
                case_put(&c, c.call.q.data, (size_t)r, (50 + r * 10.0 / ROWS) / c.problem.scale);
            set_all(&c, c.call.k.data, c.k_count, 0.01);
            case_put(&c, c.call.k.data, 77, 1);
            case_compute(&c, NULL, 2);
            for (int r = 0; r < ROWS && x == 0; r++) {
                const double s = c.problem.scale * case_get(&c, c.call.q.data, (size_t)r);
                const double logit = kind == 3 ? 1e4 * tanh(s / 1e4) : s;
                CHECK_NEAR((double)c.call.lse[r], logit, 14 * U * logit);
                lse[r] = c.call.lse[r];
                o[r] = ((const float *)c.call.o.data)[r];
                const double v = case_get(&c, c.call.v.data, 77); /* 2^rounding p, over itself */
                CHECK_NEAR((double)o[r], v, 3 * U * fabs(v));
            }
            CHECK_BITS(c.call.lse, lse, ROWS);
            CHECK_BITS((const float *)c.call.o.data, o, ROWS);
            case_close(&c);
        }
    }
}

/* Logits of +-1e4, where one unit in the last place of a score is a part in a thousand of a
 * probability; and the same squeezed by a soft cap. */
TEST(large_magnitudes)
{
    for (int t = 0; t < 3; t++)
        for (int cap = 0; cap < 2; cap++) {
            attention_case c = start((ordo_dtype)t, ORDO_MASK_CAUSAL, 200, 200, 64);
            c.strength = 60;
            c.problem.softcap = cap ? 30 : 0;
            c.dlse = (float *)1;
            case_open(&c, 3);
            finish(&c);
        }
}

/* Values and their gradients near the ends of the range of f32; the products stay inside. */
TEST(large_values)
{
    const double factors[] = { 1e18, 1e-18, 0x1p-60 };
    for (int x = 0; x < 3; x++) {
        attention_case c = start(ORDO_F32, ORDO_MASK_FULL, 70, 150, 40);
        case_open(&c, 4);
        multiply(&c, c.call.v.data, c.v_count, factors[x]);
        multiply(&c, c.call.dout.data, c.o_count, x == 2 ? 0x1p-60 : 1);
        finish(&c);
    }
}

/* Subnormals of each type, in every input: nothing is flushed. */
TEST(subnormals)
{
    const double least[] = { 0x1p-149, 0x1p-133, 0x1p-24 };
    for (int t = 0; t < 3; t++)
        for (int which = 0; which < 4; which++) {
            attention_case c = start((ordo_dtype)t, ORDO_MASK_CAUSAL, 70, 90, 40);
            case_open(&c, 5);
            void *const data[] = { c.call.q.data, c.call.k.data, c.call.v.data, c.call.dout.data };
            const size_t counts[] = { c.q_count, c.k_count, c.v_count, c.o_count };
            multiply(&c, data[which], counts[which], 20 * least[t]);
            if (which == 2) { /* their averages keep digits: a flush would show as zeros */
                case_compute(&c, NULL, 1);
                int nonzero = 0;
                for (size_t x = 0; x < c.o_count; x++)
                    nonzero += case_get(&c, c.call.o.data, x) != 0;
                CHECK(nonzero > (int)c.o_count / 2);
            }
            finish(&c);
        }
}

TEST(rows_that_see_nothing)
{
    for (int t = 0; t < 3; t++) {
        attention_case c = start((ordo_dtype)t, ORDO_MASK_CAUSAL, 300, 100, 24);
        c.dlse = (float *)1;
        case_open(&c, 6);
        case_compute(&c, NULL, 2);
        for (int64_t row = 0; row < 300; row++) {
            CHECK((c.call.lse[case_lse_at(&c, 1, row, 1)] == -INFINITY) == (row < 200));
            for (int d = 0; d < 24 && row < 200; d++) {
                const size_t at = case_at(&c, false, 24, 1, row, 1) + (size_t)d;
                CHECK(case_get(&c, c.call.o.data, at) == 0);
                CHECK(case_get(&c, c.call.dq.data, at) == 0);
            }
        }
        finish(&c);
    }
}

/* ---- infinities and NaNs ---- */

/* Some bit patterns that are no number: both infinities, NaNs of either sign, with a payload. */
static void put_special(const attention_case *c, void *data, size_t at, uint64_t *seed)
{
    static const uint32_t f32[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000,
                                    0x7fc00001, 0x7f800001, 0xffffffff, 0x7fc000ff };
    static const uint16_t bf16[] = {
        0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7fc1, 0x7f81, 0xffff, 0xffc1
    };
    static const uint16_t f16[] = {
        0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7e01, 0x7c01, 0xffff, 0xfe01
    };
    const int64_t x = check_between(seed, 0, 7);
    if (c->problem.dtype == ORDO_F32)
        memcpy((uint32_t *)data + at, &f32[x], 4);
    else
        ((uint16_t *)data)[at] = c->problem.dtype == ORDO_BF16 ? bf16[x] : f16[x];
}

/* Fill keys and values of columns that no row sees with specials or with zeros: the same bits. */
static void check_unseen(attention_case *c, int first)
{
    uint64_t seed = 8;
    case_results clean = { 0 };
    ordo_plan *plan = case_plan(c, NULL);
    for (int special = 0; special < 2; special++) {
        for (int64_t b = 0; b < 2; b++)
            for (int64_t col = first < 0 ? c->kv_lens[b] : first; col < c->problem.kv_len; col++)
                for (int64_t d = 0; d < c->problem.head_dim; d++) {
                    const size_t at = case_at(c, true, c->problem.head_dim, b, col, 0) + (size_t)d;
                    case_put(c, c->call.k.data, at, 0);
                    case_put(c, c->call.v.data, at, 0);
                    if (special) {
                        put_special(c, c->call.k.data, at, &seed);
                        put_special(c, c->call.v.data, at, &seed);
                    }
                }
        CHECK(case_run(c, plan, 2) == ORDO_OK);
        if (special)
            case_same(c, &clean, "specials in columns that no row sees");
        else
            clean = case_keep(c);
    }
    for (int64_t col = first < 0 ? c->kv_lens[1] : first; col < c->problem.kv_len; col++) {
        const size_t at = case_at(c, true, c->problem.head_dim, 1, col, 0);
        CHECK(case_get(c, c->call.dk.data, at) == 0 && case_get(c, c->call.dv.data, at) == 0);
    }
    case_drop(&clean);
    ordo_plan_destroy(plan);
    finish(c);
}

TEST(columns_that_no_row_sees)
{
    for (int t = 0; t < 3; t++) {
        /* causal from the top left: columns past the last row; in its last tile, and beyond */
        attention_case c = start((ordo_dtype)t, ORDO_MASK_CAUSAL_TOP_LEFT, 70, 300, 24);
        case_open(&c, 9);
        check_unseen(&c, 70);
        /* a window, with dropout and a soft cap: other code */
        c = start((ordo_dtype)t, ORDO_MASK_FULL, 40, 40, 24);
        c.problem.window = (ordo_window) { true, -1, 0 };
        c.problem.layout = ORDO_PADDED;
        c.problem.dropout.p = 0.17;
        case_open(&c, 10);
        check_unseen(&c, -1);
        c = start((ordo_dtype)t, ORDO_MASK_CAUSAL, 130, 130, 24);
        c.problem.layout = ORDO_PADDED;
        c.problem.softcap = 5;
        case_open(&c, 11);
        check_unseen(&c, -1);
    }
}

/* Rows that a padded sequence does not have may hold anything. */
TEST(rows_past_the_end)
{
    for (int t = 0; t < 3; t++) {
        attention_case c = start((ordo_dtype)t, ORDO_MASK_CAUSAL, 100, 100, 24);
        c.problem.layout = ORDO_PADDED;
        case_open(&c, 12);
        uint64_t seed = 13;
        for (int64_t b = 0; b < 2; b++)
            for (int64_t row = c.q_lens[b]; row < 100; row++)
                for (int64_t x = 0; x < 2 * 24; x++) {
                    const size_t at = case_at(&c, false, 24, b, row, 0) + (size_t)x;
                    put_special(&c, c.call.q.data, at, &seed);
                    put_special(&c, c.call.dout.data, at, &seed);
                }
        finish(&c);
    }
}

/* A special anywhere: results are finite exactly where the oracle's are, and right there. */
TEST(specials_spread_as_in_the_oracle)
{
    uint64_t seed = case_seed(14);
    for (int trial = 0; trial < 150; trial++) {
        attention_case c;
        case_random(&c, &seed, trial % 4 ? 40 : 200);
        void *const data[] = { c.call.q.data, c.call.k.data, c.call.v.data, c.call.dout.data };
        const size_t counts[] = { c.q_count, c.k_count, c.v_count, c.o_count };
        for (int64_t many = check_between(&seed, 1, 2); many > 0; many--) {
            const int64_t which = check_between(&seed, 0, 3);
            if (counts[which] > 0)
                put_special(&c, data[which],
                            (size_t)check_between(&seed, 0, (int64_t)counts[which] - 1), &seed);
        }
        if (c.dlse && c.lse_count > 0 && check_between(&seed, 0, 1))
            c.dlse[check_between(&seed, 0, (int64_t)c.lse_count - 1)] = NAN;
        finish(&c);
    }
}

/* Rows that see no key have dq = +0, whether or not other rows of their tile see some: the sign of
 * a zero must not say how rows were cut into calls. Sinks give them an lse. */
TEST(no_negative_zeros_under_a_negative_scale)
{
    for (int t = 0; t < 3; t++)
        for (int sinks = 0; sinks < 2; sinks++) {
            attention_case c = start((ordo_dtype)t, ORDO_MASK_CAUSAL, 100, 20, 24);
            c.problem.scale = -0.11;
            c.sinks = sinks;
            case_open(&c, 18);
            case_compute(&c, NULL, 2);
            const case_results r = case_outputs(&c);
            for (int64_t row = 0; row < 80; row++)
                for (int64_t h = 0; h < c.problem.heads; h++)
                    for (size_t d = 0; d < 24; d++)
                        CHECK(case_bits(&r, 2, case_at(&c, false, 24, 0, row, h) + d) == 0);
            finish(&c);
        }
}

/* A row whose largest logit is -inf sees nothing: zeros, whatever its keys and values hold. */
TEST(largest_logit_of_minus_infinity)
{
    for (int t = 0; t < 3; t++)
        for (int mask = 0; mask < 2; mask++) {
            attention_case c = start((ordo_dtype)t, (ordo_mask)mask, 90, 90, 24);
            case_open(&c, 15);
            for (int64_t row = 0; row < 90; row++)
                for (int64_t h = 0; h < 2; h++) /* head 0: positive, so every logit is -inf */
                    case_put(&c, c.call.q.data, case_at(&c, false, 24, 0, row, h), 1);
            for (int64_t col = 0; col < 90; col++)
                case_put(&c, c.call.k.data, case_at(&c, true, 24, 0, col, 0), -INFINITY);
            case_put(&c, c.call.v.data, 5, INFINITY);
            case_compute(&c, NULL, 2);
            for (size_t x = 0; x < c.lse_count / 2; x++)
                CHECK(c.call.lse[x] == -INFINITY);
            for (size_t x = 0; x < c.q_count / 2; x++) {
                CHECK(case_get(&c, c.call.o.data, x) == 0);
                CHECK(case_get(&c, c.call.dq.data, x) == 0);
            }
            for (size_t x = 0; x < c.k_count / 2; x++) {
                CHECK(case_get(&c, c.call.dk.data, x) == 0);
                CHECK(case_get(&c, c.call.dv.data, x) == 0);
            }
            finish(&c);
        }
}

/* NaN results are one bit pattern, whatever NaN went in. */
TEST(nan_is_stored_canonical)
{
    static const uint16_t bf16 = ORDO_BF16_NAN, f16 = ORDO_F16_NAN;
    static const uint32_t f32 = ORDO_F32_NAN;
    const void *const expected[] = { &f32, &bf16, &f16 };
    for (int t = 0; t < 3; t++) {
        uint64_t seed = 16;
        attention_case c = start((ordo_dtype)t, ORDO_MASK_CAUSAL, 80, 80, 24);
        c.problem.batch = 1;
        case_open(&c, 17);
        for (int x = 0; x < 9; x++)
            put_special(&c, c.call.k.data, (size_t)x, &seed);
        case_compute(&c, NULL, 2);
        const case_results r = case_outputs(&c);
        for (int x = 0; x < CASE_OUTPUTS; x++) {
            const bool lse = x == 1;
            int nans = 0;
            for (size_t at = 0; at < r.count[x]; at++)
                if (isnan(lse ? (double)c.call.lse[at] : case_get(&c, r.data[x], at))) {
                    nans++;
                    CHECK(memcmp(r.data[x] + at * r.width[x], lse ? &f32 : expected[t],
                                 r.width[x]) == 0);
                }
            CHECK(nans > 0);
        }
        finish(&c);
    }
}

CHECK_MAIN()
