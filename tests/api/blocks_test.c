/* blocks_test.c: making block masks, and refusing those that are wrong, by name. */
#include "block_case.h"
#include "plan/plan.h"

/* ---- making ---- */

typedef struct rule {
    int kind;
    int64_t q_len, kv_len, a, b;
    const int64_t *ids;
} rule;

/* The definitions of ordo/blocks.h, element by element. */
static bool expected(const rule *x, int64_t i, int64_t j)
{
    const int64_t at = i + x->kv_len - x->q_len;
    if (x->kind == 0)
        return x->ids[i] >= 0 && x->ids[i] == x->ids[j];
    if (x->kind == 1 && (at < 0 || at < x->b || j < x->b))
        return at >= 0 && at < x->b && j < x->b;
    if (x->kind == 1)
        return (at - x->b) / x->a == (j - x->b) / x->a;
    return j <= at && j >= at - x->a; /* a causal window */
}

static bool sees(void *context, int64_t row, int64_t column)
{
    return expected(context, row, column);
}

/* The mask sees what the rule does, marks as whole what is, and lists nothing that is empty. */
static void check_elements(const ordo_block_mask *mask, const rule *x)
{
    const ordo_block_view view = ordo_block_view_of(mask, 0, 0);
    int64_t wrong = 0;
    for (int64_t i = 0; i < x->q_len; i++)
        for (int64_t j = 0; j < x->kv_len; j++)
            wrong += ordo_block_sees(&view, i, j) != expected(x, i, j);
    CHECK_INT(wrong, 0);
    for (int64_t r = 0; r < ordo_blocks_of(x->q_len); r++)
        for (int64_t c = 0; c < ordo_blocks_of(x->kv_len); c++) {
            int64_t seen = 0, all = 0;
            for (int64_t i = r * 128; i < (r + 1) * 128 && i < x->q_len; i++)
                for (int64_t j = c * 128; j < (c + 1) * 128 && j < x->kv_len; j++) {
                    all++;
                    seen += expected(x, i, j);
                }
            const int32_t entry = ordo_block_entry(&view, r, c);
            CHECK((entry >= 0) == (seen > 0));
            CHECK(entry < 0 || (seen == all) == ((entry & ORDO_BLOCK_WHOLE) != 0));
        }
}

TEST(masks_by_rule)
{
    uint64_t seed = case_seed(41);
    for (int trial = 0; trial < 60; trial++) {
        rule x = { .kind = trial % 3, .q_len = check_between(&seed, 1, 420) };
        int64_t ids[420];
        x.kv_len = x.kind == 0 || trial % 2 ? x.q_len : check_between(&seed, 1, 420);
        x.a = check_between(&seed, 1, trial % 4 ? 300 : 20);
        x.b = check_between(&seed, 0, x.kv_len);
        for (int64_t r = 0; r < x.q_len; r++)
            ids[r] = r == 0 ? 7 : ids[r - 1] + (check_between(&seed, 0, trial % 7 ? 90 : 2) == 0);
        if (trial % 5 == 0) /* the end is padding */
            for (int64_t r = x.q_len / 2; r < x.q_len; r++)
                ids[r] = -1;
        x.ids = ids;
        const ordo_window window = { true, x.a, 0 };
        ordo_block_mask *mask = NULL, *again = NULL;
        case_must(x.kind == 0   ? ordo_block_mask_from_documents(&mask, x.q_len, ids)
                  : x.kind == 1 ? ordo_block_mask_from_chunks(&mask, x.q_len, x.kv_len, x.a, x.b)
                                : ordo_block_mask_from_band(&mask, x.q_len, x.kv_len,
                                                            ORDO_MASK_CAUSAL, &window));
        check_elements(mask, &x);
        case_must(ordo_block_mask_from_function(&again, x.q_len, x.kv_len, sees, &x));
        check_elements(again, &x);
        CHECK_INT(mask->entries, again->entries);
        ordo_block_mask_destroy(mask);
        ordo_block_mask_destroy(again);
    }
}

static bool checkered(void *context, int64_t row, int64_t column)
{
    (void)context;
    return row < 128 ? column < 128 : column == 130 || column == 140;
}
static bool in_blocks(void *context, int64_t row, int64_t column)
{
    (void)context;
    return (row / 128 + column / 128) % 2 == 0;
}

TEST(functions)
{
    ordo_block_mask *mask = NULL;
    CHECK_REFUSED(ordo_block_mask_from_function(&mask, 200, 300, checkered, NULL),
                  ORDO_ERR_UNSUPPORTED, "row 128: sees columns 130 and 140, but not 131");
    CHECK(!mask);
    case_must(ordo_block_mask_from_function(&mask, 300, 300, in_blocks, NULL));
    CHECK_INT(mask->entries, 5);
    for (int x = 0; x < 5; x++)
        CHECK(mask->key[x] & ORDO_BLOCK_WHOLE);
    ordo_block_mask_destroy(mask);
    ordo_block_mask_destroy(NULL);
}

/* A million documents of one row each, then one that comes back: in the time of a sort. */
TEST(many_documents)
{
    enum { ROWS = 1 << 20 };
    int64_t *ids = malloc(ROWS * sizeof *ids);
    ordo_block_mask *mask = NULL;
    for (int64_t r = 0; r < ROWS; r++)
        ids[r] = r % 4 == 0 ? -1 : ROWS - r;
    case_must(ordo_block_mask_from_documents(&mask, ROWS, ids));
    CHECK_INT(mask->entries, ROWS / 128);
    CHECK(mask->first[5] == 5 && mask->last[5] == 5 && mask->last[8] == -1);
    ordo_block_mask_destroy(mask);
    ids[ROWS - 1] = ids[9];
    CHECK_REFUSED(ordo_block_mask_from_documents(&mask, ROWS, ids), ORDO_ERR_UNSUPPORTED,
                  "ids[1048575] 1048567: comes back", "as in ids[9]");
    CHECK(!mask);
    free(ids);
}

TEST(makers_refuse)
{
    const int64_t back[] = { 1, 1, 2, 1 };
    const int32_t first[] = { 0, 0, -1, 0 }, last[] = { 1, 4, 1, 1 };
    const ordo_window window = { true, -2, 0 };
    ordo_block_mask *mask = NULL, *two = NULL;
    CHECK_REFUSED(ordo_block_mask_from_documents(&mask, 4, back), ORDO_ERR_UNSUPPORTED,
                  "ids[3] 1: comes");
    CHECK_REFUSED(ordo_block_mask_from_documents(&mask, 4, NULL), ORDO_ERR_ARGUMENT, "ids NULL");
    CHECK_REFUSED(ordo_block_mask_from_documents(NULL, 4, back), ORDO_ERR_ARGUMENT, "mask NULL");
    CHECK_REFUSED(ordo_block_mask_from_documents(&mask, -4, back), ORDO_ERR_ARGUMENT, "q_len -4");
    CHECK_REFUSED(ordo_block_mask_from_intervals(&mask, 4, 4, first, last), ORDO_ERR_ARGUMENT,
                  "first[1] 0, last 4");
    CHECK_REFUSED(ordo_block_mask_from_intervals(&mask, 4, 5, first, last), ORDO_ERR_ARGUMENT,
                  "first[2] -1");
    CHECK_REFUSED(ordo_block_mask_from_intervals(&mask, 1, 4, (int32_t *)((char *)first + 1), last),
                  ORDO_ERR_ALIGN, "first 0x");
    CHECK_REFUSED(ordo_block_mask_from_intervals(&mask, 1, 4, first, (int32_t *)((char *)last + 2)),
                  ORDO_ERR_ALIGN, "last 0x");
    CHECK_REFUSED(ordo_block_mask_from_documents(&mask, 1, (int64_t *)((char *)back + 4)),
                  ORDO_ERR_ALIGN, "ids 0x");
    CHECK_REFUSED(ordo_block_mask_from_chunks(&mask, 4, 4, 0, 0), ORDO_ERR_ARGUMENT, "chunk 0");
    CHECK_REFUSED(ordo_block_mask_from_chunks(&mask, 4, 4, 2, 5), ORDO_ERR_ARGUMENT, "offset 5");
    CHECK_REFUSED(ordo_block_mask_from_band(&mask, 4, 4, (ordo_mask)9, NULL), ORDO_ERR_ARGUMENT,
                  "kind 9");
    CHECK_REFUSED(ordo_block_mask_from_band(&mask, 4, 4, ORDO_MASK_FULL, &window),
                  ORDO_ERR_ARGUMENT, "window.left -2");
    CHECK_REFUSED(ordo_block_mask_from_function(&mask, 4, 4, NULL, NULL), ORDO_ERR_ARGUMENT,
                  "sees NULL");
    CHECK(!mask);
    case_must(ordo_block_mask_from_chunks(&mask, 4, 4, 2, 0));
    case_must(ordo_block_mask_from_chunks(&two, 4, 5, 2, 0));
    const ordo_block_mask *pair[] = { mask, two };
    ordo_block_mask *joined = NULL;
    CHECK_REFUSED(ordo_block_mask_join(&joined, pair, 2, 1), ORDO_ERR_SHAPE, "masks[1]");
    CHECK_REFUSED(ordo_block_mask_join(&joined, pair, 0, 1), ORDO_ERR_ARGUMENT, "sequences 0");
    const ordo_block_mask *same[] = { mask, mask };
    ordo_block_mask *heads = NULL; /* a mask of two heads is no part of another */
    case_must(ordo_block_mask_join(&heads, same, 1, 2));
    same[1] = heads;
    CHECK_REFUSED(ordo_block_mask_join(&joined, same, 2, 1), ORDO_ERR_SHAPE, "masks[1]");
    ordo_block_mask_destroy(heads);
    static const int32_t past[2] = { 0, 2 };
    ordo_block_mask wrong = *mask; /* one entry */
    wrong.start = (int32_t *)past;
    const ordo_block_mask *both[] = { mask, &wrong };
    CHECK_REFUSED(ordo_block_mask_join(&joined, both, 2, 1), ORDO_ERR_SHAPE, "masks[1].start[0]");
    ordo_block_mask_destroy(mask);
    ordo_block_mask_destroy(two);
}

/* ---- refusing ---- */

static attention_case open_case(void)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT };
    c.problem.batch = 2;
    c.problem.heads = c.problem.kv_heads = 2;
    c.problem.q_len = c.problem.kv_len = 300;
    c.problem.head_dim = c.problem.v_head_dim = 8;
    return c;
}

/* A mask that is fine with one thing changed: both passes, and the check, say what; no output is
 * written. */
#define WRONG(change, status, says)                                                                \
    do {                                                                                           \
        ordo_block_mask bad = *good;                                                               \
        int32_t start[4], key[6], first[300], last[300];                                           \
        memcpy(start, good->start, sizeof start);                                                  \
        memcpy(key, good->key, sizeof key);                                                        \
        memcpy(first, good->first, sizeof first);                                                  \
        memcpy(last, good->last, sizeof last);                                                     \
        bad.start = start, bad.key = key, bad.first = first, bad.last = last;                      \
        change;                                                                                    \
        c.call.block_mask = &bad;                                                                  \
        CHECK_REFUSED(ordo_block_mask_check(plan, &bad, NULL), status, says);                      \
        CHECK_REFUSED(ordo_block_mask_check_lists(plan, &bad), status, says);                      \
        CHECK_REFUSED(ordo_attention_forward(plan, &c.call), status, says);                        \
        CHECK_REFUSED(ordo_attention_backward(plan, &c.call), status, says);                       \
        case_same(&c, &poison, says);                                                              \
    } while (0)

TEST(wrong_lists)
{
    attention_case c = open_case();
    case_open(&c, 3);
    ordo_block_mask *good = NULL;
    case_must(ordo_block_mask_from_band(&good, 300, 300, ORDO_MASK_CAUSAL, NULL));
    CHECK_INT(good->entries, 6);
    case_set_blocks(&c, good);
    ordo_plan *plan = case_plan(&c, NULL);
    const size_t bytes = ordo_plan_workspace(plan);
    c.call.workspace = aligned_alloc(256, (bytes + 511) / 256 * 256);
    c.call.workspace_bytes = bytes;
    case_results poison = case_keep(&c);
    uint64_t pairs = 0;
    CHECK_INT(ordo_block_mask_check(plan, good, &pairs), ORDO_OK);
    CHECK_INT(pairs, 9); /* 1 + 1 + 2 + 2 + 3 of 64 rows */
    CHECK_INT(ordo_block_mask_check_lists(plan, good), ORDO_OK);
    CHECK_REFUSED(ordo_block_mask_check_lists(plan, NULL), ORDO_ERR_ARGUMENT, "mask NULL");
    CHECK_REFUSED(ordo_block_mask_check_lists(NULL, good), ORDO_ERR_ARGUMENT, "plan NULL");
    WRONG(bad.size = 12, ORDO_ERR_ARGUMENT, "block_mask.size 12");
    WRONG(bad.q_len = 299, ORDO_ERR_SHAPE, "block_mask.q_len 299: expected 300");
    WRONG(bad.kv_len = 301, ORDO_ERR_SHAPE, "block_mask.kv_len 301: expected 300");
    WRONG(bad.sequences = 2, ORDO_ERR_SHAPE, "block_mask.sequences 2: expected 1");
    WRONG(bad.heads = 2, ORDO_ERR_SHAPE, "block_mask.heads 2: expected 1");
    WRONG(bad.entries = -1, ORDO_ERR_SHAPE, "block_mask.entries -1");
    WRONG(bad.entries = 8, ORDO_ERR_SHAPE, "block_mask.entries 8: expected 0..7");
    WRONG(bad.start = NULL, ORDO_ERR_ARGUMENT, "block_mask.start NULL");
    WRONG(bad.key = NULL, ORDO_ERR_ARGUMENT, "block_mask.key NULL");
    WRONG(bad.first = NULL, ORDO_ERR_ARGUMENT, "block_mask.first NULL, last given");
    WRONG(bad.start = (int32_t *)((char *)start + 1), ORDO_ERR_ALIGN, "block_mask.start 0x");
    WRONG(bad.key = (int32_t *)((char *)key + 2), ORDO_ERR_ALIGN, "block_mask.key 0x");
    WRONG(bad.first = (int32_t *)((char *)first + 3), ORDO_ERR_ALIGN, "block_mask.first 0x");
    WRONG(bad.last = (int32_t *)((char *)last + 1), ORDO_ERR_ALIGN, "block_mask.last 0x");
    WRONG(start[2] = 0, ORDO_ERR_SHAPE, "block_mask.start[1] 1, [2] 0: expected rows");
    WRONG(start[0] = -1, ORDO_ERR_SHAPE, "block_mask.start[0] -1");
    WRONG(start[3] = 7, ORDO_ERR_SHAPE, "block_mask.start[2] 3, [3] 7");
    WRONG(key[5] = 3, ORDO_ERR_SHAPE, "block_mask.key[5] 3: expected 2..2");
    WRONG(key[1] = -1, ORDO_ERR_SHAPE, "block_mask.key[1] -1");
    WRONG(key[5] = 1, ORDO_ERR_SHAPE, "block_mask.key[5] 1: expected 2..2, ascending");
    WRONG(first[7] = -1, ORDO_ERR_SHAPE, "block_mask.first[7] -1: expected 0..300");
    WRONG(first[8] = 301, ORDO_ERR_SHAPE, "block_mask.first[8] 301: expected 0..300");
    WRONG(last[9] = 300, ORDO_ERR_SHAPE, "block_mask.last[9] 300: expected -1..299");
    WRONG(last[9] = -2, ORDO_ERR_SHAPE, "block_mask.last[9] -2");
    c.call.block_mask = NULL;
    CHECK_REFUSED(ordo_attention_forward(plan, &c.call), ORDO_ERR_ARGUMENT, "block_mask NULL");
    ordo_block_mask inside = *good; /* its lists lie in an output */
    memcpy(c.call.o.data, good->start, 4 * sizeof *good->start);
    inside.start = c.call.o.data;
    c.call.block_mask = &inside;
    CHECK_REFUSED(ordo_attention_forward(plan, &c.call), ORDO_ERR_ARGUMENT,
                  "o and block_mask.start");
    ordo_plan_destroy(plan);
    c.problem.blocks = (ordo_block_limits) { 0 };
    plan = case_plan(&c, NULL);
    c.call.block_mask = good;
    CHECK_REFUSED(ordo_attention_forward(plan, &c.call), ORDO_ERR_ARGUMENT, "block_mask given");
    free(c.call.workspace);
    case_drop(&poison);
    ordo_plan_destroy(plan);
    case_close(&c);
}

/* Too many elements for a replay. */
TEST(lists_of_a_long_mask)
{
    attention_case c = open_case();
    c.problem.q_len = c.problem.kv_len = 20000;
    ordo_block_mask *long_one = NULL;
    case_must(ordo_block_mask_from_chunks(&long_one, 20000, 20000, 500, 0));
    c.problem.blocks = (ordo_block_limits) { .entries = long_one->entries };
    ordo_plan *plan = case_plan(&c, NULL);
    CHECK_REFUSED(ordo_block_mask_check(plan, long_one, NULL), ORDO_ERR_UNSUPPORTED,
                  "block mask check");
    CHECK_INT(ordo_block_mask_check_lists(plan, long_one), ORDO_OK);
    ((int32_t *)long_one->last)[19999] = 20000;
    CHECK_REFUSED(ordo_block_mask_check_lists(plan, long_one), ORDO_ERR_SHAPE, "last[19999] 20000");
    ordo_plan_destroy(plan);
    ordo_block_mask_destroy(long_one);
}

TEST(plans)
{
    attention_case c = open_case();
    ordo_problem *p = &c.problem;
    ordo_plan_options o = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    p->blocks.per_head = true;
    CHECK_REFUSED(ordo_problem_check(p), ORDO_ERR_ARGUMENT, "blocks.per_head true");
    p->blocks = (ordo_block_limits) { -1, false, false };
    CHECK_REFUSED(ordo_problem_check(p), ORDO_ERR_ARGUMENT, "blocks.entries -1");
    p->blocks = (ordo_block_limits) { 9, true, false };
    static const ordo_order no[] = { ORDO_ORDER_SHIFT, ORDO_ORDER_SYMMETRIC, ORDO_ORDER_TWIN,
                                     ORDO_ORDER_SPT_TAIL };
    for (int mask = 0; mask < 2; mask++)
        for (int x = 0; x < 4; x++) {
            char says[64];
            snprintf(says, sizeof says, "order %s, block mask", ordo_order_name(no[x]));
            p->mask = (ordo_mask)mask;
            o.order = no[x];
            CHECK_REFUSED(ordo_plan_create(&plan, p, NULL, &o), ORDO_ERR_UNSUPPORTED, says);
        }
    o.order = ORDO_ORDER_DEFAULT;
    o.forward_tile = (ordo_tile) { 64, 64 };
    CHECK_REFUSED(ordo_plan_create(&plan, p, NULL, &o), ORDO_ERR_UNSUPPORTED,
                  "forward_tile 64x64, block");
    o.forward_tile = (ordo_tile) { 0, 0 };
    o.backward_tile = (ordo_tile) { 48, 128 };
    CHECK_REFUSED(ordo_plan_create(&plan, p, NULL, &o), ORDO_ERR_UNSUPPORTED,
                  "backward_tile 48x128");
    o.backward_tile = (ordo_tile) { 0, 0 };
    p->dropout.p = 0.1;
    o.segments = 2;
    CHECK_REFUSED(ordo_plan_create(&plan, p, NULL, &o), ORDO_ERR_UNSUPPORTED,
                  "segments 2, block mask");
    p->dropout.p = 0;
    ordo_machine *h200 = NULL;
    case_must(ordo_machine_create(&h200, "h200"));
    p->dtype = ORDO_BF16;
    CHECK_INT(ordo_plan_create(&plan, p, h200, NULL), ORDO_OK);
    ordo_plan_destroy(plan);
    p->head_dim = 136;
    CHECK_REFUSED(ordo_plan_create(&plan, p, h200, NULL), ORDO_ERR_UNSUPPORTED,
                  "block mask: backend cuda expects at most 128");
    ordo_machine_destroy(h200);
}

/* The line of a plan with block masks says so; other lines are what they were. */
TEST(lines)
{
    attention_case c = open_case();
    char line[2048], again[2048];
    ordo_plan *plan = case_plan(&c, NULL), *read = NULL;
    CHECK_INT(ordo_plan_print(plan, line, sizeof line, NULL), ORDO_OK);
    CHECK(!strstr(line, "blocks"));
    ordo_plan_destroy(plan);
    c.problem.blocks = (ordo_block_limits) { 12, false, true };
    plan = case_plan(&c, NULL);
    CHECK_INT(ordo_plan_print(plan, line, sizeof line, NULL), ORDO_OK);
    CHECK(strstr(line, " blocks=12 blocks_per_head=1 key="));
    case_must(ordo_plan_parse(&read, line));
    CHECK_INT(read->problem.blocks.entries, 12);
    CHECK(read->problem.blocks.per_head && !read->problem.blocks.per_sequence);
    CHECK_INT(ordo_plan_print(read, again, sizeof again, NULL), ORDO_OK);
    CHECK(strcmp(line, again) == 0);
    ordo_plan_destroy(read);
    memcpy(strstr(line, "blocks=12"), "blocks=00", 9);
    CHECK_INT(ordo_plan_parse(&read, line), ORDO_ERR_PARSE);
    ordo_plan_destroy(plan);
}

CHECK_MAIN()
