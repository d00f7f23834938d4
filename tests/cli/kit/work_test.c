/* work_test.c: visible pairs by closed form are those one counts one by one. */
#include "check.h"
#include "kit/work.h"

static bool visible(const ordo_problem *p, int64_t q, int64_t kv, int64_t i, int64_t j)
{
    const int64_t delta = p->mask == ORDO_MASK_CAUSAL_TOP_LEFT ? 0 : kv - q;
    const int64_t distance = j - i - delta;
    if (p->mask != ORDO_MASK_FULL && distance > 0)
        return false;
    if (p->window.on && p->window.left >= 0 && distance < -p->window.left)
        return false;
    return !(p->window.on && p->window.right >= 0 && distance > p->window.right);
}

static double count(const ordo_problem *p, int64_t q, int64_t kv)
{
    int64_t pairs = 0;
    for (int64_t i = 0; i < q; i++)
        for (int64_t j = 0; j < kv; j++)
            pairs += visible(p, q, kv, i, j);
    return (double)pairs;
}

TEST(pairs_are_counted_exactly)
{
    static const int64_t sides[] = { -1, 0, 1, 3, 20 };
    for (int mask = 0; mask < 3; mask++)
        for (int64_t q = 1; q <= 9; q++)
            for (int64_t kv = 1; kv <= 9; kv++)
                for (int w = 0; w < 26; w++) { /* 25: no window */
                    ordo_problem p = ORDO_PROBLEM_INIT;
                    p.batch = 2;
                    p.q_len = q;
                    p.kv_len = kv;
                    p.mask = (ordo_mask)mask;
                    p.window.on = w < 25;
                    p.window.left = sides[w % 5];
                    p.window.right = sides[w / 5 % 5];
                    CHECK_NEAR(cli_work_pairs(&p, NULL, NULL, NULL), 2 * count(&p, q, kv), 0);
                }
}

TEST(lengths_come_from_the_layout)
{
    static const int32_t q_ends[] = { 0, 3, 3, 10 }, kv_ends[] = { 0, 5, 6, 6 };
    static const int32_t q_lens[] = { 3, 0, 7 }, kv_lens[] = { 5, 1, 0 };
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.batch = 3;
    p.q_len = p.kv_len = 8;
    p.mask = ORDO_MASK_CAUSAL;
    p.layout = ORDO_PACKED;
    const double packed = cli_work_pairs(&p, q_ends, kv_ends, NULL);
    p.layout = ORDO_PADDED;
    CHECK_NEAR(cli_work_pairs(&p, q_lens, kv_lens, NULL), packed, 0);
    CHECK_NEAR(packed, count(&p, 3, 5), 0);
}

/* A block mask narrows what the mask shows; a shorter sequence has its first rows and columns. */
TEST(block_masks)
{
    static const int32_t q_lens[] = { 9, 4 }, kv_lens[] = { 9, 6 };
    static const int32_t first[] = { 0, 2, 4, 9, 0, 1, 6, 3, 0 };
    static const int32_t last[] = { 8, 5, 4, -1, 0, 7, 8, 3, 2 };
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_block_mask *mask = NULL;
    CHECK_INT(ordo_block_mask_from_intervals(&mask, 9, 9, first, last), ORDO_OK);
    p.batch = 2;
    p.q_len = p.kv_len = 9;
    p.layout = ORDO_PADDED;
    for (int kind = 0; kind < 3; kind++) {
        int64_t pairs = 0;
        p.mask = (ordo_mask)kind;
        p.window = (ordo_window) { kind == 2, 3, 1 };
        for (int b = 0; b < 2; b++)
            for (int64_t i = 0; i < q_lens[b]; i++)
                for (int64_t j = first[i]; j <= last[i] && j < kv_lens[b]; j++)
                    pairs += visible(&p, q_lens[b], kv_lens[b], i, j);
        CHECK_NEAR(cli_work_pairs(&p, q_lens, kv_lens, mask), (double)pairs, 0);
    }
    ordo_block_mask_destroy(mask);
}

CHECK_MAIN()
