/* problem_test.c: every rule of a problem has a case that breaks it and a message that names
 * the field, its value and what was expected. */
#include "api/problem.h"
#include "check.h"

/* A problem that is fine, to spoil in one field. */
static ordo_problem good(void)
{
    return (ordo_problem) {
        .size = sizeof(ordo_problem), .batch = 2, .heads = 8, .q_len = 128, .head_dim = 64
    };
}

static ordo_problem packed(void)
{
    ordo_problem p = good();
    p.layout = ORDO_PACKED;
    p.total_q = 200;
    return p;
}

static ordo_problem biased(void)
{
    ordo_problem p = good();
    p.bias.on = true;
    return p;
}

static ordo_problem dropout(void)
{
    ordo_problem p = good();
    p.dropout.p = 0.1;
    return p;
}

static ordo_problem fa2(void)
{
    ordo_problem p = dropout();
    p.dropout.keying = ORDO_KEYING_FA2;
    return p;
}

/* `base` with one field set, and what must come of it. */
#define REFUSE(base, field, value, status, ...)                                                    \
    do {                                                                                           \
        ordo_problem p_ = base();                                                                  \
        p_.field = (value);                                                                        \
        CHECK_REFUSED_AS(#field " = " #value, ordo_problem_check(&p_), status, __VA_ARGS__);       \
    } while (0)

TEST(sizes)
{
    REFUSE(good, batch, -3, ORDO_ERR_ARGUMENT, "batch -3", "expected 0..1073741824");
    REFUSE(good, heads, 0, ORDO_ERR_ARGUMENT, "heads 0", "expected 1..");
    REFUSE(good, q_len, -1, ORDO_ERR_ARGUMENT, "q_len -1", "expected 0..1073741824");
    REFUSE(good, q_len, (INT64_C(1) << 30) + 1, ORDO_ERR_ARGUMENT, "q_len 1073741825");
    REFUSE(good, kv_len, -2, ORDO_ERR_ARGUMENT, "kv_len -2", "expected 0..1073741824");
    REFUSE(good, head_dim, 0, ORDO_ERR_ARGUMENT, "head_dim 0", "expected 1..576");
    REFUSE(good, head_dim, 577, ORDO_ERR_ARGUMENT, "head_dim 577", "expected 1..576");
    REFUSE(good, v_head_dim, 600, ORDO_ERR_ARGUMENT, "v_head_dim 600", "expected 1..576");
    REFUSE(good, v_head_dim, -1, ORDO_ERR_ARGUMENT, "v_head_dim -1");
    REFUSE(good, kv_heads, 3, ORDO_ERR_SHAPE, "kv_heads 3: expected a divisor of heads 8");
    REFUSE(good, kv_heads, 16, ORDO_ERR_SHAPE, "kv_heads 16", "heads 8");
    REFUSE(good, kv_heads, -2, ORDO_ERR_SHAPE, "kv_heads -2");
}

TEST(kinds)
{
    REFUSE(good, dtype, (ordo_dtype)7, ORDO_ERR_ARGUMENT, "dtype 7", "bf16");
    REFUSE(good, layout, (ordo_layout)3, ORDO_ERR_ARGUMENT, "layout 3", "padded");
    REFUSE(good, mask, (ordo_mask)9, ORDO_ERR_ARGUMENT, "mask 9", "causal-top-left");
    REFUSE(good, dropout.keying, (ordo_keying)2, ORDO_ERR_ARGUMENT, "dropout.keying 2", "fa2");
}

TEST(extras)
{
    REFUSE(good, extras, ORDO_EXTRA_BIAS, ORDO_ERR_UNSUPPORTED, "it is bias", "extras 0x1");
    REFUSE(good, extras, ORDO_EXTRA_SINKS, ORDO_ERR_UNSUPPORTED, "sinks");
    REFUSE(good, extras, ORDO_EXTRA_BLOCK_MASK, ORDO_ERR_UNSUPPORTED, "mask tensor");
    REFUSE(good, extras, ORDO_EXTRA_PAGED_KV, ORDO_ERR_UNSUPPORTED, "paged");
    REFUSE(good, extras, ORDO_EXTRA_FP8, ORDO_ERR_UNSUPPORTED, "8-bit");
    REFUSE(good, extras, ORDO_EXTRA_PROBABILITIES, ORDO_ERR_UNSUPPORTED, "probabilities");
    REFUSE(good, extras, 1u << 20, ORDO_ERR_ARGUMENT, "extras 0x100000", "unknown");
}

TEST(biases)
{
    REFUSE(good, bias.per_sequence, true, ORDO_ERR_ARGUMENT, "bias.per_sequence true", "bias.on");
    REFUSE(good, bias.per_head, true, ORDO_ERR_ARGUMENT, "bias.per_head true", "bias.on false");
    REFUSE(good, bias.dtype, ORDO_F16, ORDO_ERR_ARGUMENT, "bias.dtype: expected 0");
    REFUSE(biased, bias.dtype, ORDO_F16, ORDO_ERR_ARGUMENT, "bias.dtype 2", "dtype f32");
    REFUSE(biased, bias.dtype, (ordo_dtype)9, ORDO_ERR_ARGUMENT, "bias.dtype 9");
    ordo_problem p = biased();
    p.dtype = p.bias.dtype = ORDO_BF16;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p = packed();
    p.bias.on = true;
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_UNSUPPORTED, "bias.on true, layout packed");
    p = biased();
    p.layout = ORDO_PADDED;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p.paging = (ordo_paging) { 64, 4, 2 };
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_UNSUPPORTED, "bias.on true", "page_rows 64");
    p = biased();
    p.q_len = p.kv_len = INT64_C(1) << 30;
    CHECK(ordo_problem_check(&p) == ORDO_ERR_OVERFLOW);
}

TEST(layouts)
{
    REFUSE(good, total_q, 10, ORDO_ERR_SHAPE, "total_q 10", "expected 0", "dense");
    REFUSE(good, total_kv, 10, ORDO_ERR_SHAPE, "total_kv 10", "expected 0", "dense");
    REFUSE(good, total_kv, ORDO_NO_KEYS, ORDO_ERR_SHAPE, "total_kv -1", "expected 0", "dense");
    REFUSE(packed, total_q, -1, ORDO_ERR_SHAPE, "total_q -1", "expected 0 or more");
    REFUSE(packed, total_kv, -2, ORDO_ERR_SHAPE, "total_kv -2", "expected 0 or more");
    REFUSE(packed, shard.row0, 16, ORDO_ERR_UNSUPPORTED, "shard.row0 16", "packed");
    REFUSE(packed, shard.kv_total, 512, ORDO_ERR_UNSUPPORTED, "kv_total 512", "packed");

    ordo_problem p = packed();
    p.batch = 1 << 20;
    p.q_len = 1 << 20;
    p.total_q = INT64_C(1) << 31;
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_OVERFLOW, "total_q 2147483648");
}

TEST(numbers)
{
    REFUSE(good, scale, NAN, ORDO_ERR_ARGUMENT, "scale nan", "finite");
    REFUSE(good, scale, INFINITY, ORDO_ERR_ARGUMENT, "scale inf", "finite");
    REFUSE(good, scale, 1e39, ORDO_ERR_ARGUMENT, "scale 1e+39", "2^127");
    REFUSE(good, scale, -2e38, ORDO_ERR_ARGUMENT, "scale -2e+38", "2^127");
    REFUSE(good, scale, 1e-46, ORDO_ERR_ARGUMENT, "scale 1e-46", "2^-126");
    REFUSE(good, scale, -1e-39, ORDO_ERR_ARGUMENT, "scale -1e-39", "2^-126");
    REFUSE(good, softcap, 1e39, ORDO_ERR_ARGUMENT, "softcap 1e+39", "2^127");
    REFUSE(good, softcap, 1e-46, ORDO_ERR_ARGUMENT, "softcap 1e-46", "2^-126");
    REFUSE(good, softcap, -1, ORDO_ERR_ARGUMENT, "softcap -1", "positive");
    REFUSE(good, softcap, INFINITY, ORDO_ERR_ARGUMENT, "softcap inf");
    REFUSE(good, softcap, NAN, ORDO_ERR_ARGUMENT, "softcap nan");
}

TEST(windows)
{
    const ordo_window left = { true, -2, 0 }, right = { true, 0, -5 }, off = { false, 128, 0 };
    REFUSE(good, window, left, ORDO_ERR_ARGUMENT, "window.left -2", "-1 (open)");
    REFUSE(good, window, right, ORDO_ERR_ARGUMENT, "window.right -5", "-1 (open)");
    REFUSE(good, window, off, ORDO_ERR_ARGUMENT, "window.left 128", "window.on false");
}

TEST(dropouts)
{
    REFUSE(good, dropout.p, -0.1, ORDO_ERR_ARGUMENT, "dropout.p -0.1", "0 <= p < 1");
    REFUSE(good, dropout.p, 1, ORDO_ERR_ARGUMENT, "dropout.p 1", "0 <= p < 1");
    REFUSE(good, dropout.p, NAN, ORDO_ERR_ARGUMENT, "dropout.p nan");
    REFUSE(good, dropout.p, 0.001, ORDO_ERR_ARGUMENT, "dropout.p 0.001", "256 of 256",
           "0.00390625");
    REFUSE(good, dropout.p, 0.999, ORDO_ERR_ARGUMENT, "dropout.p 0.999", "0 of 256", "0.99609375");
    REFUSE(dropout, dropout.bits, 1, ORDO_ERR_ARGUMENT, "dropout.p 0.1", "1 bits", "0.5");
    REFUSE(dropout, dropout.bits, 17, ORDO_ERR_ARGUMENT, "dropout.bits 17", "1..16");
    REFUSE(dropout, dropout.bits, -1, ORDO_ERR_ARGUMENT, "dropout.bits -1");
    REFUSE(dropout, dropout.rounds, 3, ORDO_ERR_UNSUPPORTED, "dropout.rounds 3", "7 or 10",
           "experiments");
    REFUSE(dropout, dropout.rounds, 5, ORDO_ERR_UNSUPPORTED, "dropout.rounds 5", "experiments");
    REFUSE(dropout, dropout.rounds, 8, ORDO_ERR_ARGUMENT, "dropout.rounds 8", "7 or 10");
    REFUSE(dropout, dropout.rounds, -7, ORDO_ERR_ARGUMENT, "dropout.rounds -7");
    REFUSE(fa2, dropout.rounds, 10, ORDO_ERR_ARGUMENT, "dropout.rounds 10", "expected 7", "fa2");
    REFUSE(fa2, dropout.bits, 4, ORDO_ERR_ARGUMENT, "dropout.bits 4", "expected 8", "fa2");
    REFUSE(fa2, dropout.p, 1e-9, ORDO_ERR_ARGUMENT, "dropout.p 1e-09", "fa2", "2^-24");
    REFUSE(fa2, dropout.p, 1 - 1e-9, ORDO_ERR_ARGUMENT, "dropout.p 0.999999999", "1 - p is 0");
}

TEST(fa2_takes_any_other_p)
{
    ordo_problem p = fa2(), r;
    for (p.dropout.p = 0x1p-24; p.dropout.p < 1; p.dropout.p += 0.0173) {
        CHECK(ordo_problem_resolve(&p, &r) == ORDO_OK);
        CHECK_INT(r.dropout.rounds, 7);
        CHECK_INT(r.dropout.bits, 8);
        CHECK(ordo_dropout_threshold(&r) >= 1 && ordo_dropout_threshold(&r) <= 255);
    }
}

static ordo_problem shared_heads(void)
{
    ordo_problem p = good();
    p.kv_heads = 2; /* groups of 4 */
    p.shard.heads_total = 32;
    return p;
}

static ordo_problem part(void)
{
    ordo_problem p = dropout();
    p.shard.q_total = p.shard.kv_total = 1024;
    return p;
}

TEST(shards)
{
    REFUSE(good, shard.heads_total, 4, ORDO_ERR_ARGUMENT, "shard.heads_total 4", "expected 8..");
    REFUSE(good, shard.head0, 1, ORDO_ERR_ARGUMENT, "shard.head0 1", "expected 0..0");
    REFUSE(shared_heads, shard.head0, -4, ORDO_ERR_ARGUMENT, "shard.head0 -4");
    REFUSE(shared_heads, shard.head0, 28, ORDO_ERR_ARGUMENT, "shard.head0 28", "0..24");
    REFUSE(shared_heads, shard.head0, 6, ORDO_ERR_SHAPE, "shard.head0 6", "multiple of 4");
    REFUSE(shared_heads, shard.heads_total, 30, ORDO_ERR_SHAPE, "shard.heads_total 30",
           "multiple of 4");
    REFUSE(good, shard.batch0, -1, ORDO_ERR_ARGUMENT, "shard.batch0 -1", "expected 0..");
    REFUSE(good, shard.q_total, 64, ORDO_ERR_ARGUMENT, "shard.q_total 64", "expected 128..");
    REFUSE(good, shard.kv_total, 64, ORDO_ERR_ARGUMENT, "shard.kv_total 64", "expected 128..");
    REFUSE(good, shard.row0, 1, ORDO_ERR_ARGUMENT, "shard.row0 1", "expected 0..0");
    REFUSE(part, shard.row0, -16, ORDO_ERR_ARGUMENT, "shard.row0 -16", "0..896");
    REFUSE(part, shard.row0, 8, ORDO_ERR_SHAPE, "shard.row0 8", "multiple of 16");
    REFUSE(part, shard.col0, 64, ORDO_ERR_SHAPE, "shard.col0 64", "multiple of 128");
    REFUSE(part, shard.col0, 1000, ORDO_ERR_ARGUMENT, "shard.col0 1000", "0..896");
    REFUSE(dropout, shard.batch0, INT64_C(1) << 29, ORDO_ERR_OVERFLOW, "shard.batch0 536870912",
           "batch 2", "536870912 with dropout");
}

TEST(products_that_do_not_fit)
{
    ordo_problem p = good();
    p.batch = p.q_len = 1 << 30;
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_OVERFLOW,
                  "q of 1073741824 x 1073741824 x 8 x 64");
    p = good();
    p.batch = p.kv_len = 1 << 30;
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_OVERFLOW, "k of 1073741824 x 1073741824");
    p.head_dim = 1;
    p.heads = 1 << 30;
    CHECK(ordo_problem_check(&p) == ORDO_ERR_OVERFLOW);
    p = good();
    p.batch = 1 << 20; /* 2^20 * 2^30 * 8 * 64 = 2^59: the largest */
    p.q_len = 1 << 30;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p.v_head_dim = 65;
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_OVERFLOW, "v of ");
}

TEST(sizes_of_other_versions)
{
    ordo_problem p = good();
    CHECK(ordo_problem_check(NULL) == ORDO_ERR_ARGUMENT);
    p.size = 0;
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_ARGUMENT, "problem.size 0", "ORDO_PROBLEM_INIT");
    p.size = (size_t)1 << 40;
    CHECK(ordo_problem_check(&p) == ORDO_ERR_ARGUMENT);

    /* Ends within a field: no version of the struct. */
    p.size = offsetof(ordo_problem, batch) + 4;
    CHECK(ordo_problem_check(&p) == ORDO_ERR_ARGUMENT);
    p.size = offsetof(ordo_problem, dropout) + 8;
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_ARGUMENT, "ends within dropout");

    /* An older program: what follows its end is not read. */
    p = dropout();
    p.size = offsetof(ordo_problem, dropout);
    ordo_problem resolved;
    CHECK(ordo_problem_resolve(&p, &resolved) == ORDO_OK);
    CHECK(resolved.dropout.p == 0 && resolved.size == sizeof resolved);

    /* A newer program: fine while it asks for nothing this library does not know. */
    struct {
        ordo_problem p;
        unsigned char more[24];
    } newer = { .p = good() };
    newer.p.size = sizeof newer;
    CHECK(ordo_problem_check(&newer.p) == ORDO_OK);
    newer.more[23] = 1;
    CHECK_REFUSED(ordo_problem_check(&newer.p), ORDO_ERR_UNSUPPORTED, "not zero");
}

TEST(defaults_are_filled_in)
{
    ordo_problem p = good(), r;
    CHECK(ordo_problem_resolve(&p, &r) == ORDO_OK);
    CHECK_INT(r.kv_heads, 8);
    CHECK_INT(r.kv_len, 128);
    CHECK_INT(r.v_head_dim, 64);
    CHECK(r.scale == 0.125 && !r.window.on);
    CHECK_INT(r.shard.heads_total, 8);
    CHECK_INT(r.shard.q_total, 128);
    CHECK_INT(r.shard.kv_total, 128);
    CHECK_INT(r.dropout.rounds, 0);
    CHECK_INT(ordo_dropout_threshold(&r), 1);

    p.softcap = -0.0; /* which would print as another number */
    CHECK(ordo_problem_resolve(&p, &r) == ORDO_OK);
    CHECK(!signbit(r.softcap));

    p = dropout();
    CHECK(ordo_problem_resolve(&p, &r) == ORDO_OK);
    CHECK_INT(r.dropout.rounds, 7);
    CHECK_INT(r.dropout.bits, 8);
    CHECK_INT(ordo_dropout_threshold(&r), 230);

    p = packed();
    CHECK(ordo_problem_resolve(&p, &r) == ORDO_OK);
    CHECK_INT(r.total_kv, 200);

    p = good();
    p.dropout.rounds = 10; /* no effect without p, so resolved to 0: one meaning, one spelling */
    CHECK(ordo_problem_resolve(&p, &r) == ORDO_OK);
    CHECK_INT(r.dropout.rounds, 0);
}

/* As many as queries, or none; and what is shown of either is read the same again. */
TEST(keys_by_default_and_none)
{
    static const struct {
        ordo_layout layout;
        int64_t q_len, kv_len, total_q, total_kv; /* as given */
        int64_t keys, total;                      /* as meant */
    } rows[] = {
        { ORDO_DENSE, 128, 0, 0, 0, 128, 0 },
        { ORDO_DENSE, 128, ORDO_NO_KEYS, 0, 0, 0, 0 },
        { ORDO_DENSE, 0, 0, 0, 0, 0, 0 },
        { ORDO_DENSE, 0, 9, 0, 0, 9, 0 },
        { ORDO_PADDED, 5, ORDO_NO_KEYS, 0, 0, 0, 0 },
        { ORDO_PACKED, 9, 0, 12, 0, 9, 12 },
        { ORDO_PACKED, 9, 0, 12, ORDO_NO_KEYS, 9, 0 },
        { ORDO_PACKED, 9, ORDO_NO_KEYS, 12, 0, 0, 0 },
        { ORDO_PACKED, 9, ORDO_NO_KEYS, 12, 5, 0, 5 },
        { ORDO_PACKED, 9, 7, 0, 0, 7, 0 },
        { ORDO_PACKED, 0, 0, 12, 0, 0, 12 },
        { ORDO_PACKED, 0, 0, 0, 7, 0, 7 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ordo_problem p = good(), r, again;
        p.layout = rows[i].layout, p.q_len = rows[i].q_len, p.kv_len = rows[i].kv_len;
        p.total_q = rows[i].total_q, p.total_kv = rows[i].total_kv;
        CHECK_INT(ordo_problem_resolve(&p, &r), ORDO_OK);
        CHECK_INT(r.kv_len, rows[i].keys);
        CHECK_INT(r.total_kv, rows[i].total);
        const ordo_problem original = ordo_problem_original(&r);
        CHECK_INT(ordo_problem_resolve(&original, &again), ORDO_OK);
        CHECK_INT(again.kv_len, r.kv_len);
        CHECK_INT(again.total_kv, r.total_kv);
    }
}

TEST(windows_have_one_spelling)
{
    static const struct {
        ordo_mask mask;
        ordo_window in, out;
    } rows[] = {
        { ORDO_MASK_FULL, { true, -1, -1 }, { false, 0, 0 } },
        { ORDO_MASK_FULL, { false, -1, -1 }, { false, 0, 0 } },
        { ORDO_MASK_FULL, { true, 0, 0 }, { true, 0, 0 } },
        { ORDO_MASK_FULL, { true, -1, 0 }, { true, -1, 0 } },
        { ORDO_MASK_FULL, { true, 5, -1 }, { true, 5, -1 } },
        { ORDO_MASK_FULL, { true, 5, 1 << 30 }, { true, 5, -1 } },
        { ORDO_MASK_FULL, { true, INT64_MAX, INT64_MAX }, { false, 0, 0 } },
        { ORDO_MASK_CAUSAL, { true, 5, -1 }, { true, 5, 0 } },
        { ORDO_MASK_CAUSAL, { true, 5, 9 }, { true, 5, 0 } },
        { ORDO_MASK_CAUSAL, { true, 5, 0 }, { true, 5, 0 } },
        { ORDO_MASK_CAUSAL, { true, -1, 0 }, { false, 0, 0 } },
        { ORDO_MASK_CAUSAL_TOP_LEFT, { true, 0, 7 }, { true, 0, 0 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ordo_problem p = good(), r, again;
        p.mask = rows[i].mask;
        p.window = rows[i].in;
        CHECK(ordo_problem_resolve(&p, &r) == ORDO_OK);
        if (r.window.on != rows[i].out.on || r.window.left != rows[i].out.left ||
            r.window.right != rows[i].out.right)
            CHECK_FAIL("row %zu: %d %" PRId64 " %" PRId64, i, r.window.on, r.window.left,
                       r.window.right);
        CHECK(ordo_problem_resolve(&r, &again) == ORDO_OK);
        CHECK(again.window.on == r.window.on && again.window.left == r.window.left &&
              again.window.right == r.window.right && again.scale == r.scale);
    }
}

TEST(edges_that_are_accepted)
{
    ordo_problem p = good();
    p.batch = p.heads = p.q_len = p.head_dim = 1;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p.head_dim = p.v_head_dim = 576;
    p.q_len = p.kv_len = 1 << 30;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p = good();
    p.kv_heads = 1;
    p.scale = -2;
    p.softcap = 30;
    p.alibi = true;
    p.mask = ORDO_MASK_CAUSAL_TOP_LEFT;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p = packed();
    p.total_q = 1;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p = good();
    p.dropout.p = 0.5;
    p.dropout.bits = 1;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p.dropout.p = 1.0 / 65536;
    p.dropout.bits = 16;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p = part();
    p.shard.row0 = 896;
    p.shard.col0 = 128;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p.dropout.p = 0; /* without dropout any origin will do */
    p.shard.row0 = 3;
    p.shard.col0 = 5;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p = shared_heads();
    p.shard.head0 = 24;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
    p = dropout();
    p.shard.batch0 = (INT64_C(1) << 29) - 2;
    CHECK(ordo_problem_check(&p) == ORDO_OK);
}

TEST(names)
{
    CHECK_TEXT(ordo_dtype_name(ORDO_BF16), "bf16");
    CHECK_TEXT(ordo_mask_name(ORDO_MASK_CAUSAL_TOP_LEFT), "causal-top-left");
    CHECK_TEXT(ordo_mask_name((ordo_mask)3), "unknown");
    CHECK_INT(ordo_mask_diagonal(ORDO_MASK_FULL, 3, 10), 7);
    CHECK_INT(ordo_mask_diagonal(ORDO_MASK_CAUSAL, 10, 3), -7);
    CHECK_INT(ordo_mask_diagonal(ORDO_MASK_CAUSAL_TOP_LEFT, 3, 10), 0);
    CHECK_INT(ordo_mask_diagonal(ORDO_MASK_CAUSAL, INT64_MAX, 0), -INT64_MAX);
    CHECK_INT(ordo_mask_diagonal(ORDO_MASK_CAUSAL, INT64_MIN, INT64_MAX), INT64_MAX);
    CHECK_INT(ordo_mask_diagonal(ORDO_MASK_FULL, INT64_MAX, INT64_MIN), -INT64_MAX);
    CHECK_TEXT(ordo_layout_name(ORDO_PACKED), "packed");
    CHECK_TEXT(ordo_layout_name((ordo_layout)9), "unknown");
}

CHECK_MAIN()
