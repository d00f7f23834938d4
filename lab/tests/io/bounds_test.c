/* bounds_test.c: lower bounds by hand, where they hold, and what is refused. */
#include "random_io.h"

static ordo_io_bound form(const ordo_io_problem *p, int index)
{
    ordo_io_bound b = { 0 };
    CHECK(ordo_io_bound_at(p, index, &b) == ORDO_OK);
    return b;
}

/* Forward, M = d^2 / 4: R = 2M is best of the bounds that count products. */
TEST(forms_of_a_small_cache)
{
    const double n = 4096, d = 64, m = 1024, z = n * n, t = 3 * m;
    const ordo_io_problem f = io_attention(ORDO_IO_FORWARD, 4096, 64, 1024);
    const ordo_io_problem b = io_attention(ORDO_IO_BACKWARD, 4096, 64, 1024);
    CHECK_TEXT(form(&f, 0).name, "trivial");
    CHECK_NEAR(form(&f, 0).words, 4 * n * d, 0.5);
    CHECK_NEAR(form(&b, 0).words, 7 * n * d, 0.5);
    CHECK_TEXT(form(&f, 1).name, "rows");
    CHECK_NEAR(form(&f, 1).words, 2.0 / 3 * z - m, 1);
    CHECK_NEAR(form(&b, 1).words, 2.0 / 3 * z - m, 1);
    CHECK_TEXT(form(&f, 2).name, "updates");
    CHECK_NEAR(form(&f, 2).words, 2 * m * z * d / pow(t / 3, 1.5) - m, 1);
    CHECK_NEAR(form(&b, 2).words, 2 * m * z * 3 * d / pow(t / 3, 1.5) - m, 1);
    CHECK_TEXT(form(&f, 3).name, "products");
    CHECK_NEAR(form(&b, 4).words, n * n * d * d / m, 1);
    CHECK_NEAR(form(&b, 5).words, n * n * d / sqrt(m), 1);
    CHECK(!form(&b, 4).holds && !form(&b, 5).holds);
}

/* Where M is far below d^2, the quotient at R = 2M is the smaller one for no fresh score, and the
 * constants are those of products: 4 and 4 + 3 sqrt 3, and 8 of the gradient. */
TEST(forms_of_a_tiny_cache)
{
    const double n = 8192, d = 512, m = 64, z = n * n, words = z * d / sqrt(m);
    const ordo_io_problem f = io_attention(ORDO_IO_FORWARD, 8192, 512, 64);
    const ordo_io_problem b = io_attention(ORDO_IO_BACKWARD, 8192, 512, 64);
    const ordo_io_problem g = io_attention(ORDO_IO_GRADIENT, 8192, 512, 64);
    const double u = 9 * m * m / (4 * d * d); /* fresh scores at most */
    const double less = (2 * m + u) / pow(3 * m + u, 1.5) / (2 * m) * pow(3 * m, 1.5);
    CHECK(less < 1 && less > 0.999);
    CHECK_NEAR(form(&f, 3).words / (4 * less * words - z - m), 1, 1e-9);
    CHECK_NEAR(form(&b, 3).words / ((4 + 3 * sqrt(3)) * less * words - 2 * z - m), 1, 1e-9);
    CHECK_NEAR(form(&g, 3).words / (8 * less * words - 2 * z - m - 2 * n * d + 3 * d * d), 1, 1e-9);
}

/* Where M is far above d^2, R = M is best: forward, the leading term is that of flash. */
TEST(forms_of_a_large_cache)
{
    const double n = 65536, d = 16, m = 16 * d * d, z = n * n;
    ordo_io_problem p = io_attention(ORDO_IO_FORWARD, 65536, 16, 4096);
    CHECK_NEAR(form(&p, 2).words, 4 * z * d * d / m, 1);
    CHECK_NEAR(form(&p, 1).words, 2 * z * d * d / m, 1);
    CHECK(!form(&p, 3).holds);
    p.v_head_dim = 8; /* flash again: (dk + dv)^2, less what scores that stay may save */
    p.cache_words = 1 << 18;
    const double area = 8 / (4 * 24.0 * 24), t = 1 << 19;
    CHECK_NEAR(form(&p, 2).words, t / 2 * z * 8 / (area * t * t + t / (32 * area)), 1);
    p = io_attention(ORDO_IO_BACKWARD, 65536, 16, 4096);
    CHECK_NEAR(form(&p, 2).words, 6 * sqrt(3) * z * d * d / m, 1);
    p = io_attention(ORDO_IO_GRADIENT, 65536, 16, 4096);
    CHECK_NEAR(form(&p, 2).words, 8 * z * d * d / m - 2 * n * d + 3 * d * d, 1);
}

/* Where each form holds, what the gradient assumes, and that the best is the largest. */
TEST(ranges)
{
    ordo_io_bound best;
    ordo_io_problem p = io_attention(ORDO_IO_BACKWARD, 4096, 128, 128 * 128 / 2);
    CHECK(ordo_io_bound_best(&p, &best) == ORDO_OK);
    CHECK_TEXT(best.name, "products");
    CHECK_TEXT(best.valid, "always");
    p.cache_words = 8 * 128 * 128;
    CHECK(!form(&p, 3).holds);
    CHECK(ordo_io_bound_best(&p, &best) == ORDO_OK);
    CHECK_TEXT(best.name, "updates");
    p.cache_words = 1 << 22;
    CHECK(ordo_io_bound_best(&p, &best) == ORDO_OK);
    CHECK_TEXT(best.name, "trivial");
    p = io_attention(ORDO_IO_GRADIENT, 4096, 128, 1000);
    CHECK(ordo_io_bound_best(&p, &best) == ORDO_OK);
    CHECK_TEXT(best.name, "products");
    CHECK_TEXT(best.valid, "always");
    p.cache_words = 2048; /* M + R >= n for every R >= M */
    CHECK(ordo_io_bound_best(&p, &best) == ORDO_OK);
    CHECK_TEXT(best.valid, "if each entry of o is computed once");
    CHECK_NEAR(form(&p, 5).words, (4096.0 * 4096 * 128 + 4096.0 * 128 * 128) / sqrt(2048), 1);
}

/* A mask enters by its live scores; rows and columns nobody looks at need not be read. */
TEST(masked_forms)
{
    const double n = 512, d = 64, z = n * (n + 1) / 2, m = 512;
    ordo_io_problem p = io_attention(ORDO_IO_FORWARD, 512, 64, 512);
    p.mask = ORDO_MASK_CAUSAL;
    CHECK_NEAR(form(&p, 2).words, 2 * m * z * d / pow(m, 1.5) - m, 1);
    CHECK_NEAR(form(&p, 1).words, 2.0 / 3 * z - m, 1);
    p.mask = ORDO_MASK_CAUSAL_TOP_LEFT;
    p.kv_len = 1024; /* the right half is never seen */
    CHECK_NEAR(form(&p, 0).words, 4 * n * d, 0.5);
}

/* The bounds of earlier versions: large-cache, without a mask, small-cache and multiplications. */
static double former(const ordo_io_problem *p, double live)
{
    const bool forward = p->pass == ORDO_IO_FORWARD, full = p->mask == ORDO_MASK_FULL;
    const double heads = (double)p->kv_heads, m = (double)p->cache_words;
    const int64_t rows = p->q_len * p->heads / p->kv_heads;
    const double n = (double)rows, k = (double)p->kv_len;
    const double dk = (double)p->head_dim, dv = (double)p->v_head_dim, d = dk + dv;
    const double made = live * (forward ? d : 3 * dk + 2 * dv), kept = (forward ? 2 : 4) * live;
    const double outputs = forward ? n * dv : (n + k) * dk + k * dv;
    double best = made / (2 * sqrt(2) * sqrt(m)) - kept - m;
    if (full && !p->window.on && !p->blocks)
        best = fmax(best, forward ? live * dv / (m * dv / (dk * d) + 2 * (dv + 1)) - m
                                  : live * d * d / (m + 2 * d * d) - m);
    if (m <= fmin(dk, dv) * fmin(dk, dv) / 2)
        best = fmax(best, (forward ? 2 : sqrt(3)) * made / sqrt(m) - kept - outputs - 2 * m);
    return fmax(best * heads, form(p, 0).words);
}

/* A problem of any size whose words have closed forms: masked ones are short. */
static void draw(io_case *c, uint64_t *random)
{
    ordo_io_problem *p = &c->problem;
    const bool masked = check_between(random, 0, 3) == 0;
    const double d = exp2(5 + 3 * check_uniform(random)); /* 4 to 256 */
    io_random_case(c, random, masked ? 128 : (int64_t)(d * exp2(3 + 3 * check_uniform(random))),
                   masked ? 24 : (int64_t)d);
    if (!masked) {
        p->mask = ORDO_MASK_FULL;
        p->window.on = false;
        p->blocks = NULL;
        p->block_q = p->block_k = 0;
    }
    p->strip = 1;
    p->workspace_words = 0;
    p->dropout_p = 0;
    const double side = (double)(p->head_dim + p->v_head_dim) / 2;
    p->cache_words = 3 + (int64_t)(side * side * exp2(6 * check_uniform(random)));
    p->pass = (ordo_io_pass)check_between(random, ORDO_IO_FORWARD, ORDO_IO_GRADIENT);
    if (p->pass != ORDO_IO_GRADIENT)
        return;
    *p = io_attention(ORDO_IO_GRADIENT, p->q_len, p->head_dim, p->cache_words);
    p->heads = p->kv_heads = 1;
    p->kv_len = p->q_len;
    p->v_head_dim = p->head_dim;
}

/* No algorithm moves less than the bound, and no bound is below those of earlier versions. */
TEST(bounds_stay_between_the_former_ones_and_the_best_count)
{
    uint64_t random = 47;
    int compared = 0, raised = 0;
    double closest = INFINITY;
    while (compared < 5000) {
        io_case c;
        ordo_io_choice best;
        ordo_io_bound bound;
        ordo_io_sparse counts;
        draw(&c, &random);
        const ordo_io_problem *p = &c.problem;
        if (ordo_io_choose(p, ORDO_IO_BEST, NULL, &best) != ORDO_OK)
            continue;
        CHECK(ordo_io_bound_best(p, &bound) == ORDO_OK);
        CHECK(ordo_io_sparse_of(p, &counts) == ORDO_OK);
        const double words = (double)(best.words.loads + best.words.stores);
        const double before =
            p->pass == ORDO_IO_GRADIENT ? form(p, 0).words : former(p, counts.z_qk);
        if (bound.words > words * (1 + 1e-12) || bound.words < before * (1 - 1e-12)) {
            CHECK_FAIL("bound %.17g, best %.17g, before %.17g", bound.words, words, before);
            io_describe(p, best.algorithm);
        }
        compared++;
        raised += bound.words > before * 1.01;
        closest = fmin(closest, words / bound.words);
    }
    printf("  %d problems, %d raised; least ratio %.3f\n", compared, raised, closest);
    CHECK(raised > 1000);
}

/* Sparse inputs: dense counts give the dense forms. */
TEST(sparse_forms)
{
    const double n = 1000, d = 64, m = 1024;
    ordo_io_sparse s = { .z_in = n * d, .z_qk = n * n, .m = m };
    CHECK_NEAR(ordo_io_sparse_form(&s), fmin(n * n * d * d / m, n * n * d / sqrt(m)), 1);
    s.z_x = d * d;
    s.z_ax = n * d;
    CHECK_NEAR(ordo_io_sparse_form(&s),
               fmin((n * n * d * d + n * d * d * d) / m, (n * n * d + n * d * d) / sqrt(m)), 1);
}

/* The live scores of a problem, blocks and heads included. */
TEST(sparse_arguments_of_a_problem)
{
    static const uint8_t blocks[] = { 1, 0, 0, 1, 1, 0, 0, 0, 1 };
    ordo_io_problem p = io_attention(ORDO_IO_FORWARD, 96, 16, 256);
    ordo_io_sparse s;
    CHECK_INT(ordo_io_sparse_of(&p, &s), ORDO_OK);
    CHECK_NEAR(s.z_in, 96 * 16, 0);
    CHECK_NEAR(s.z_qk, 96 * 96, 0);
    CHECK_NEAR(s.z_x + s.z_ax, 0, 0);
    p.blocks = blocks;
    p.block_q = p.block_k = 32;
    p.mask = ORDO_MASK_CAUSAL;
    p.heads = 4;
    p.kv_heads = 2;
    CHECK_INT(ordo_io_sparse_of(&p, &s), ORDO_OK);
    CHECK_NEAR(s.z_qk, 2 * (3 * 32 * 16.5 + 32 * 32), 0); /* two query heads share a key head */
    CHECK_NEAR(s.z_in, 96 * 16, 0);                       /* K is the smaller */
    p = io_attention(ORDO_IO_GRADIENT, 96, 16, 256);
    CHECK_INT(ordo_io_sparse_of(&p, &s), ORDO_OK);
    CHECK_NEAR(s.z_x, 16 * 16, 0);
    CHECK_NEAR(s.z_ax, 96 * 16, 0);
    CHECK_INT(ordo_io_sparse_of(&p, NULL), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_io_sparse_of(NULL, &s), ORDO_ERR_ARGUMENT);
}

static void refused(const ordo_io_problem *p, ordo_io_algorithm a, const ordo_io_tiles *t,
                    ordo_status status, const char *text)
{
    ordo_io_report r;
    CHECK_REFUSED(ordo_io_run(p, a, t, &r), status, text);
}

TEST(refusals)
{
    const ordo_io_problem good = io_attention(ORDO_IO_BACKWARD, 64, 16, 256);
    ordo_io_problem p = good;
    p.cache_words = 2;
    refused(&p, ORDO_IO_PHASE, NULL, ORDO_ERR_UNSUPPORTED, "cache_words 2: too small");
    refused(&p, ORDO_IO_BEST, NULL, ORDO_ERR_UNSUPPORTED, "too small for any algorithm");
    refused(&good, ORDO_IO_MAT, NULL, ORDO_ERR_UNSUPPORTED, "pass backward has none");
    refused(&good, ORDO_IO_FUSED, &(ordo_io_tiles) { 64, 64 }, ORDO_ERR_UNSUPPORTED,
            "these tiles of fused need");
    refused(&good, ORDO_IO_FUSED, &(ordo_io_tiles) { .rows = 4 }, ORDO_ERR_ARGUMENT, "tiles.cols");
    refused(&good, ORDO_IO_FUSED, &(ordo_io_tiles) { 4, -1 }, ORDO_ERR_ARGUMENT, "tiles.cols -1");
    refused(&good, ORDO_IO_BEST, &(ordo_io_tiles) { 4, 4 }, ORDO_ERR_ARGUMENT, "by name");
    p = good;
    p.workspace_words = 100;
    refused(&p, ORDO_IO_PHASE, NULL, ORDO_ERR_UNSUPPORTED, "workspace_words 100");
    p = good;
    p.q_len = 1 << 24;
    p.head_dim = 1 << 16;
    refused(&p, ORDO_IO_FLASH, NULL, ORDO_ERR_OVERFLOW, "63 bits");
    p.head_dim = 64;
    p.cache_words = 4096;
    refused(&p, ORDO_IO_FLASH, NULL, ORDO_ERR_UNSUPPORTED, "predictions have no such limit");
    p = good;
    p.dropout_p = 0.9999;
    refused(&p, ORDO_IO_FLASH, NULL, ORDO_ERR_ARGUMENT, "dropout_p 0.9999");
    p = good;
    p.pass = ORDO_IO_GRADIENT;
    p.mask = ORDO_MASK_CAUSAL;
    refused(&p, ORDO_IO_FLASH, NULL, ORDO_ERR_UNSUPPORTED, "pass gradient");
    p = good;
    p.size = 0;
    refused(&p, ORDO_IO_FLASH, NULL, ORDO_ERR_ARGUMENT, "ORDO_IO_PROBLEM_INIT");
    refused(NULL, ORDO_IO_FLASH, NULL, ORDO_ERR_ARGUMENT, "problem");
}

CHECK_MAIN()
