/* sections_test.c: how many heads a plan keeps in flight on a GPU, against the rule that was
 * measured on an H200: under a full mask two waves of chains (132 workers; one chain per key tile,
 * but no more at work than they have steps), at least two heads; otherwise, and at most, 2048
 * columns of keys, twice that for chains of up to 8 steps; then even sections. */
#include "api/plan_requests.h"

static int64_t section_in(int64_t segments, int64_t heads, int64_t kv_heads, int64_t dim,
                          int64_t rows, int64_t keys, ordo_mask mask)
{
    request r = on_h200();
    r.problem.batch = 1;
    r.problem.heads = heads;
    r.problem.kv_heads = kv_heads;
    r.problem.q_len = rows;
    r.problem.kv_len = keys;
    r.problem.head_dim = dim;
    r.problem.mask = mask;
    r.problem.dropout.p = segments > 0 ? 0.1f : 0;
    r.options.segments = segments;
    return info_of(&r).section;
}

static int64_t section_of_rows(int64_t heads, int64_t kv_heads, int64_t dim, int64_t rows,
                               int64_t keys, ordo_mask mask)
{
    return section_in(0, heads, kv_heads, dim, rows, keys, mask);
}

static int64_t section_of(int64_t heads, int64_t kv_heads, int64_t dim, int64_t seq, ordo_mask mask)
{
    return section_of_rows(heads, kv_heads, dim, seq, seq, mask);
}

TEST(full_masks_keep_two_waves_of_chains)
{
    const ordo_mask full = ORDO_MASK_FULL;
    CHECK_INT(section_of(16, 16, 128, 1024, full), 16); /* 8 key tiles: 33, but 16 by columns */
    CHECK_INT(section_of(16, 16, 128, 4096, full), 8);  /* 32: 264 / 32 */
    CHECK_INT(section_of(16, 16, 128, 8192, full), 4);
    CHECK_INT(section_of(16, 16, 128, 16384, full), 2);
    CHECK_INT(section_of(16, 16, 128, 65536, full), 2); /* 512: never less than two */
    CHECK_INT(section_of(32, 32, 64, 4096, full), 8);
    CHECK_INT(section_of(10, 10, 128, 4096, full), 5); /* at most 8: two sections of 5 */
    CHECK_INT(section_of(32, 4, 128, 4096, full), 4);  /* 8: all there are */
    CHECK_INT(section_of(32, 32, 128, 512, full), 32); /* 4 key tiles: 66, 32 by columns */
    /* parts of rows: chains of 32 and 16 steps, of which no more are at work in one head */
    CHECK_INT(section_of_rows(16, 16, 128, 2048, 16384, full), 8);
    CHECK_INT(section_of_rows(32, 32, 64, 2048, 16384, full), 16);
    CHECK_INT(section_in(8, 16, 16, 128, 16384, 16384, full), 8); /* segments are such parts */
    CHECK_INT(section_in(1, 16, 16, 128, 16384, 16384, full), 2);
}

TEST(masks_that_cut_keep_columns)
{
    for (int64_t seq = 1024; seq <= 65536; seq *= 4) {
        CHECK_INT(section_of(32, 32, 128, seq, ORDO_MASK_CAUSAL), 16);
        CHECK_INT(section_of(32, 32, 64, seq, ORDO_MASK_CAUSAL), 32);
        CHECK_INT(section_of(32, 8, 128, seq, ORDO_MASK_CAUSAL), 8); /* all there are */
    }
    CHECK_INT(section_of(32, 32, 128, 512, ORDO_MASK_CAUSAL), 32); /* chains of 8 steps */
    CHECK_INT(section_of(64, 64, 64, 1024, ORDO_MASK_CAUSAL), 64);
}

CHECK_MAIN()
