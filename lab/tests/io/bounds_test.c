/* bounds_test.c: lower bounds by hand, where they hold, and what is refused. */
#include "random_io.h"

static ordo_io_bound form(const ordo_io_problem *p, int index)
{
    ordo_io_bound b = { 0 };
    CHECK(ordo_io_bound_at(p, index, &b) == ORDO_OK);
    return b;
}

TEST(dense_forms)
{
    const double n = 1000, d = 64, m = 1024;
    const ordo_io_problem f = io_attention(ORDO_IO_FORWARD, 1000, 64, 1024);
    const ordo_io_problem b = io_attention(ORDO_IO_BACKWARD, 1000, 64, 1024);
    CHECK_TEXT(form(&f, 0).name, "trivial");
    CHECK_NEAR(form(&f, 0).words, 4 * n * d, 0.5);
    CHECK_NEAR(form(&b, 0).words, 7 * n * d, 0.5);
    CHECK_TEXT(form(&f, 1).name, "large-cache");
    CHECK_NEAR(form(&f, 1).words, 2 * n * n * d * d / (m + 4 * d * (d + 1)) - m, 1);
    CHECK_NEAR(form(&b, 1).words, 4 * n * n * d * d / (m + 8 * d * d) - m, 1);
    CHECK_TEXT(form(&f, 2).name, "small-cache");
    CHECK_NEAR(form(&f, 2).words, 4 * n * n * d / sqrt(m) - 2 * n * n - n * d - 2 * m, 1);
    CHECK_NEAR(form(&b, 2).words, 5 * sqrt(3) * n * n * d / sqrt(m) - 4 * n * n - 3 * n * d - 2 * m,
               1);
    CHECK(form(&f, 2).holds); /* M = d^2 / 4 */
    CHECK_NEAR(form(&b, 4).words, n * n * d * d / m, 1);
    CHECK_NEAR(form(&b, 5).words, n * n * d / sqrt(m), 1);
    CHECK(!form(&b, 4).holds && !form(&b, 5).holds);
}

/* Each form holds where it says, and the best is the largest that does. */
TEST(ranges)
{
    ordo_io_bound best;
    ordo_io_problem p = io_attention(ORDO_IO_BACKWARD, 4096, 128, 128 * 128 / 2);
    CHECK(ordo_io_bound_best(&p, &best) == ORDO_OK);
    CHECK_TEXT(best.name, "small-cache");
    p.cache_words++;
    CHECK(!form(&p, 2).holds);
    CHECK(ordo_io_bound_best(&p, &best) == ORDO_OK);
    CHECK_TEXT(best.name, "large-cache");
    p.mask = ORDO_MASK_CAUSAL;
    CHECK(!form(&p, 1).holds);
    p.cache_words = 1 << 22;
    CHECK(ordo_io_bound_best(&p, &best) == ORDO_OK);
    CHECK_TEXT(best.name, "trivial");
    p = io_attention(ORDO_IO_GRADIENT, 4096, 128, 1000);
    CHECK(ordo_io_bound_best(&p, &best) == ORDO_OK);
    CHECK_TEXT(best.name, "trivial");
    CHECK_NEAR(form(&p, 5).words, (4096.0 * 4096 * 128 + 4096.0 * 128 * 128) / sqrt(1000), 1);
}

/* A mask enters by its live scores; rows and columns nobody looks at need not be read. */
TEST(masked_forms)
{
    const double n = 512, d = 64, z = n * (n + 1) / 2, m = 512;
    ordo_io_problem p = io_attention(ORDO_IO_FORWARD, 512, 64, 512);
    p.mask = ORDO_MASK_CAUSAL;
    CHECK_NEAR(form(&p, 2).words, 4 * z * d / sqrt(m) - 2 * z - n * d - 2 * m, 1);
    CHECK_NEAR(form(&p, 3).words, 2 * z * d / (2 * sqrt(2) * sqrt(m)) - 2 * z - m, 1);
    p.mask = ORDO_MASK_CAUSAL_TOP_LEFT;
    p.kv_len = 1024; /* the right half is never seen */
    CHECK_NEAR(form(&p, 0).words, 4 * n * d, 0.5);
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
    CHECK_INT(ordo_io_run(p, a, t, &r), status);
    CHECK_HAS(ordo_last_error(), text);
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

CHECK_MAIN(RUN(dense_forms), RUN(ranges), RUN(masked_forms), RUN(sparse_forms),
           RUN(sparse_arguments_of_a_problem), RUN(refusals))
