/* defaults_test.c: the committed table, as users meet it. A row here that no longer holds means
 * that bits change: the commit says "Bits: changed", and so does the changelog. */
#include "planner/defaults.h"

#include "check.h"

/* family, head size, mask -> forward tile, backward tile, order. A window counts as a mask that
 * cuts; a row serves every head size up to its own. */
static const char *const expected[] = {
    "sm90  64 full            f192x128 b128x128 ascending",
    "sm90  64 causal          f192x128 b128x128 descending",
    "sm90  64 causal-top-left f192x128 b128x128 descending",
    "sm90  64 full+window     f192x128 b128x128 descending",
    "sm90  64 causal+window   f192x128 b128x128 descending",
    "sm90  80 full            f128x128 b64x128 ascending",
    "sm90  80 causal          f128x128 b64x128 descending",
    "sm90  80 causal-top-left f128x128 b64x128 descending",
    "sm90  80 full+window     f128x128 b64x128 descending",
    "sm90  80 causal+window   f128x128 b64x128 descending",
    "sm90  96 full            f128x128 b64x128 ascending",
    "sm90  96 causal          f128x128 b64x128 descending",
    "sm90  96 causal-top-left f128x128 b64x128 descending",
    "sm90  96 full+window     f128x128 b64x128 descending",
    "sm90  96 causal+window   f128x128 b64x128 descending",
    "sm90 128 full            f128x128 b64x128 ascending",
    "sm90 128 causal          f128x128 b64x128 descending",
    "sm90 128 causal-top-left f128x128 b64x128 descending",
    "sm90 128 full+window     f128x128 b64x128 descending",
    "sm90 128 causal+window   f128x128 b64x128 descending",
    "sm90 192 full            f128x64 b128x256 ascending",
    "sm90 192 causal          f128x64 b128x256 descending",
    "sm90 192 causal-top-left f128x64 b128x256 descending",
    "sm90 192 full+window     f128x64 b128x256 descending",
    "sm90 192 causal+window   f128x64 b128x256 descending",
    "sm90 256 full            f128x64 b128x256 ascending",
    "sm90 256 causal          f128x64 b128x256 descending",
    "sm90 256 causal-top-left f128x64 b128x256 descending",
    "sm90 256 full+window     f128x64 b128x256 descending",
    "sm90 256 causal+window   f128x64 b128x256 descending",
    "sm90 264 full            f128x256 b128x256 ascending",
    "sm90 264 causal          f128x256 b128x256 descending",
    "sm90 264 causal-top-left f128x256 b128x256 descending",
    "sm90 264 full+window     f128x256 b128x256 descending",
    "sm90 264 causal+window   f128x256 b128x256 descending",
    "sm90 576 full            f128x256 b128x256 ascending",
    "sm90 576 causal          f128x256 b128x256 descending",
    "sm90 576 causal-top-left f128x256 b128x256 descending",
    "sm90 576 full+window     f128x256 b128x256 descending",
    "sm90 576 causal+window   f128x256 b128x256 descending",
};

static const int sizes[] = { 64, 80, 96, 128, 192, 256, 264, 576 };

enum { SIZES = 8, MASKS = 5, LINE = 96 };

static ordo_problem problem_of(int head_dim, int kind)
{
    static const ordo_mask masks[MASKS] = { ORDO_MASK_FULL, ORDO_MASK_CAUSAL,
                                            ORDO_MASK_CAUSAL_TOP_LEFT, ORDO_MASK_FULL,
                                            ORDO_MASK_CAUSAL };
    return (ordo_problem) { .head_dim = head_dim,
                            .v_head_dim = head_dim,
                            .mask = masks[kind],
                            .window = { .on = kind >= 3 } };
}

static void row_of(const char *family, int head_dim, int kind, char line[LINE])
{
    const ordo_problem problem = problem_of(head_dim, kind);
    const ordo_default *row = ordo_default_find(family, &problem);
    char mask[32];
    snprintf(mask, sizeof mask, "%s%s", ordo_mask_name(problem.mask),
             problem.window.on ? "+window" : "");
    snprintf(line, LINE, "%s %3d %-15s f%dx%d b%dx%d %s", family, head_dim, mask,
             (int)row->forward_tile.q, (int)row->forward_tile.k, (int)row->backward_tile.q,
             (int)row->backward_tile.k, ordo_order_name(row->order));
}

TEST(sm90)
{
    for (int x = 0; x < SIZES; x++)
        for (int kind = 0; kind < MASKS; kind++) {
            char line[LINE];
            row_of("sm90", sizes[x], kind, line);
            CHECK_TEXT(line, expected[x * MASKS + kind]);
        }
}

/* The same for every head size. */
TEST(cpu_and_ref)
{
    for (int x = 0; x < SIZES + 2; x++)
        for (int kind = 0; kind < MASKS; kind++) {
            const int head_dim = x < SIZES ? sizes[x] : x == SIZES ? 1 : 576;
            const ordo_problem problem = problem_of(head_dim, kind);
            char line[LINE];
            row_of("cpu", head_dim, kind, line);
            CHECK_TEXT(line + 24,
                       kind == 0 ? "f64x128 b64x128 ascending" : "f64x128 b64x128 descending");
            row_of("ref", head_dim, kind, line);
            CHECK_TEXT(line + 24, "f1x1 b1x1 ascending");
            CHECK(ordo_default_find("cpu", &problem) != NULL);
        }
}

/* The larger of the two head sizes counts. */
TEST(head_sizes_between_rows)
{
    char line[LINE];
    row_of("sm90", 1, 0, line);
    CHECK_TEXT(line + 25, "f192x128 b128x128 ascending");
    row_of("sm90", 65, 0, line);
    CHECK_TEXT(line + 25, "f128x128 b64x128 ascending");
    row_of("sm90", 129, 0, line);
    CHECK_TEXT(line + 25, "f128x64 b128x256 ascending");
    ordo_problem problem = problem_of(64, 0);
    problem.v_head_dim = 200;
    CHECK_INT(ordo_default_find("sm90", &problem)->backward_tile.k, 256);
    problem = problem_of(256, 0);
    problem.v_head_dim = 128;
    CHECK_INT(ordo_default_find("sm90", &problem)->backward_tile.k, 256);
    problem.dropout.p = 0.1; /* the kernels by phases make no keep bits */
    CHECK_INT(ordo_default_find("sm90", &problem)->backward_tile.k, 64);
    problem = problem_of(512, 0);
    problem.v_head_dim = 64;
    CHECK_INT(ordo_default_find("sm90", &problem)->backward_tile.k, 256);
    problem = problem_of(577, 0);
    CHECK(ordo_default_find("sm90", &problem) == NULL);
}

TEST(families_and_revisions)
{
    const ordo_problem problem = problem_of(64, 0);
    CHECK_INT(ordo_default_head_dim_max("sm90"), 576);
    CHECK_INT(ordo_default_head_dim_max("cpu"), 576);
    CHECK_INT(ordo_default_head_dim_max("ref"), 576);
    CHECK_INT(ordo_default_head_dim_max("sm80"), 0);
    CHECK(ordo_default_find("sm80", &problem) == NULL);
    CHECK_INT(ordo_family_revision("ref"), 1);
    CHECK_INT(ordo_family_revision("cpu"), 4);
    CHECK_INT(ordo_family_revision("sm90"), 3);
}

/* No default waits on later work: any number of workers will do. */
TEST(defaults_wait_only_on_earlier_work)
{
    static const char *const families[] = { "sm90", "cpu", "ref" };
    for (int f = 0; f < 3; f++)
        for (int x = 0; x < SIZES; x++)
            for (int kind = 0; kind < MASKS; kind++) {
                const ordo_problem problem = problem_of(sizes[x], kind);
                const ordo_order order = ordo_default_find(families[f], &problem)->order;
                CHECK(order != ORDO_ORDER_SHIFT && order != ORDO_ORDER_SYMMETRIC &&
                      order != ORDO_ORDER_TWIN);
            }
}

CHECK_MAIN(RUN(sm90), RUN(cpu_and_ref), RUN(head_sizes_between_rows), RUN(families_and_revisions),
           RUN(defaults_wait_only_on_earlier_work))
