/* family_test.c: the committed rows of the families, as users meet them. A row here that no longer
 * holds means that bits change: the commit says "Bits: changed", and so does the changelog. */
#include "plan/family.h"

#include "check.h"

/* family, head size, mask -> forward tile, backward tile, order. A window counts as
 * another mask than full; a row serves every head size up to its own. */
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
    const ordo_family *f = ordo_family_find(family);
    const ordo_tile forward = ordo_family_row_of(f, &problem)->forward.tile;
    const ordo_tile backward = ordo_family_row_of(f, &problem)->backward.tile;
    char mask[32];
    snprintf(mask, sizeof mask, "%s%s", ordo_mask_name(problem.mask),
             problem.window.on ? "+window" : "");
    snprintf(line, LINE, "%s %3d %-15s f%dx%d b%dx%d %s", family, head_dim, mask, (int)forward.q,
             (int)forward.k, (int)backward.q, (int)backward.k,
             ordo_order_name(ordo_family_order(f, &problem)));
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
            char line[LINE];
            row_of("cpu", head_dim, kind, line);
            CHECK_TEXT(line + 24,
                       kind == 0 ? "f64x128 b64x128 ascending" : "f64x128 b64x128 descending");
            row_of("ref", head_dim, kind, line);
            CHECK_TEXT(line + 24, "f1x1 b1x1 ascending");
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
    const ordo_family *sm90 = ordo_family_find("sm90");
    ordo_problem problem = problem_of(64, 0);
    problem.v_head_dim = 200;
    CHECK_INT(ordo_family_row_of(sm90, &problem)->backward.tile.k, 256);
    problem = problem_of(256, 0);
    problem.v_head_dim = 128;
    CHECK_INT(ordo_family_row_of(sm90, &problem)->backward.tile.k, 256);
    problem = problem_of(512, 0);
    problem.v_head_dim = 64;
    CHECK_INT(ordo_family_row_of(sm90, &problem)->backward.tile.k, 256);
    problem = problem_of(577, 0);
    CHECK(ordo_family_row_of(sm90, &problem) == NULL);
}

TEST(families_and_revisions)
{
    static const struct {
        const char *name;
        ordo_backend backend;
        int revision;
    } known[] = { { "sm90", ORDO_BACKEND_CUDA, 3 },
                  { "cpu", ORDO_BACKEND_CPU, 4 },
                  { "ref", ORDO_BACKEND_REF, 1 } };
    char names[64];
    for (int x = 0; x < 3; x++) {
        const ordo_family *f = ordo_family_find(known[x].name);
        CHECK(f && f == ordo_family_first(known[x].backend));
        CHECK_INT(f->revision, known[x].revision);
        CHECK_INT(f->head_dim_max, 576);
        CHECK_INT(f->rows[f->row_count - 1].head_dim, f->head_dim_max);
        ordo_family_names(known[x].backend, names, sizeof names);
        CHECK_TEXT(names, known[x].name);
    }
    CHECK(ordo_family_of(90) == ordo_family_find("sm90"));
    CHECK(!ordo_family_of(80) && !ordo_family_of(0) && !ordo_family_find("sm80"));
}

/* The form follows from the head size, with dropout and without; P is rounded where the tile is
 * 128x256. */
TEST(forms)
{
    const ordo_family *f = ordo_family_find("sm90");
    static const struct {
        int head_dim;
        ordo_form form;
    } known[] = {
        { 64, ORDO_FORM_FLASH },  { 128, ORDO_FORM_FLASH }, { 136, ORDO_FORM_CHAIN },
        { 256, ORDO_FORM_CHAIN }, { 264, ORDO_FORM_PHASE }, { 576, ORDO_FORM_PHASE },
    };
    for (int x = 0; x < 12; x++) {
        ordo_plan plan = { .problem = problem_of(known[x / 2].head_dim, 0), .family = "sm90" };
        plan.problem.dropout.p = x % 2 ? 0.1 : 0;
        CHECK_INT(ordo_family_form(&plan), known[x / 2].form);
    }
    for (int x = 0; x < f->row_count; x++) {
        const ordo_tiling *t = &f->rows[x].backward;
        CHECK(t->rounded_p == (t->tile.q == 128 && t->tile.k == 256));
    }
}

/* No default waits on later work: any number of workers will do. */
TEST(defaults_wait_only_on_earlier_work)
{
    static const char *const families[] = { "sm90", "cpu", "ref" };
    for (int f = 0; f < 3; f++)
        for (int x = 0; x < SIZES; x++)
            for (int kind = 0; kind < MASKS; kind++) {
                const ordo_problem problem = problem_of(sizes[x], kind);
                const ordo_order order = ordo_family_order(ordo_family_find(families[f]), &problem);
                CHECK(order != ORDO_ORDER_SHIFT && order != ORDO_ORDER_SYMMETRIC &&
                      order != ORDO_ORDER_TWIN);
            }
}

CHECK_MAIN()
