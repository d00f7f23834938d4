/* seen_test.c: element masks: what is refused, what a plan's line says, and the mask kinds that
 * bits prove. */
#include "block_case.h"
#include "plan/plan.h"
#include "visible.h"

static attention_case open_case(unsigned char *elements)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT };
    c.problem.batch = 2;
    c.problem.heads = c.problem.kv_heads = 2;
    c.problem.q_len = c.problem.kv_len = 300;
    c.problem.head_dim = c.problem.v_head_dim = 16;
    case_open(&c, 3);
    for (int x = 0; x < 300 * 300; x++)
        elements[x] = x % 7 != 0;
    case_set_seen(&c, elements, false, false);
    return c;
}

static unsigned char elements[300 * 300];

TEST(makers_refuse)
{
    attention_case c = open_case(elements);
    const int64_t strides[] = { 0, 0, 300, 1 };
    ordo_problem p = c.problem;
    ordo_block_mask m = ORDO_BLOCK_MASK_INIT;
    size_t bytes = 0;
    CHECK_INT(ordo_seen_bytes(&p, &bytes), ORDO_OK);
    CHECK_INT(bytes, 19 * 3 * 256 + 4 * 4 + 9 * 4);
    CHECK_REFUSED(ordo_seen_bytes(&p, NULL), ORDO_ERR_ARGUMENT, "bytes NULL");
    CHECK_REFUSED(ordo_seen_bytes(NULL, &bytes), ORDO_ERR_ARGUMENT, "problem NULL");
    void *memory = c.seen_memory;
    CHECK_REFUSED(ordo_seen_make(NULL, &p, elements, strides, memory, bytes), ORDO_ERR_ARGUMENT,
                  "seen NULL");
    CHECK_REFUSED(ordo_seen_make(&m, &p, NULL, strides, memory, bytes), ORDO_ERR_ARGUMENT,
                  "elements NULL");
    CHECK_REFUSED(ordo_seen_make(&m, &p, elements, NULL, memory, bytes), ORDO_ERR_ARGUMENT,
                  "strides NULL");
    CHECK_REFUSED(ordo_seen_make(&m, &p, elements, strides, NULL, bytes), ORDO_ERR_ARGUMENT,
                  "memory NULL");
    CHECK_REFUSED(ordo_seen_make(&m, &p, elements, strides, (char *)memory + 8, bytes),
                  ORDO_ERR_ALIGN, "memory 0x");
    CHECK_REFUSED(ordo_seen_make(&m, &p, elements, strides, memory, bytes - 1), ORDO_ERR_SHAPE,
                  "ordo_seen_bytes");
    m.size = 12;
    CHECK_REFUSED(ordo_seen_make(&m, &p, elements, strides, memory, bytes), ORDO_ERR_ARGUMENT,
                  "block_mask.size 12");
    p.seen.on = false;
    CHECK_REFUSED(ordo_seen_bytes(&p, &bytes), ORDO_ERR_ARGUMENT, "seen.on false");
    p.seen = (ordo_seen_limits) { true, true, true };
    p.batch = 1 << 20;
    p.q_len = p.kv_len = 1 << 20;
    p.head_dim = p.v_head_dim = 1;
    CHECK_REFUSED(ordo_seen_bytes(&p, &bytes), ORDO_ERR_OVERFLOW, "at most 2^31 - 1 blocks");
    const ordo_block_mask *one = &c.seen;
    ordo_block_mask *joined = NULL;
    CHECK_REFUSED(ordo_block_mask_join(&joined, &one, 1, 1), ORDO_ERR_UNSUPPORTED, "masks[0].bits");
    case_close(&c);
}

TEST(problems_refuse)
{
    attention_case c = open_case(elements);
    ordo_problem p = c.problem;
    CHECK_INT(ordo_problem_check(&p), ORDO_OK);
    p.blocks.entries = 3;
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_UNSUPPORTED, "seen, blocks.entries 3");
    p = c.problem;
    p.seen = (ordo_seen_limits) { false, true, false };
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_ARGUMENT, "seen.per_sequence true");
    p = c.problem;
    p.layout = ORDO_PADDED;
    p.paging = (ordo_paging) { 16, 40, 20 };
    CHECK_REFUSED(ordo_problem_check(&p), ORDO_ERR_UNSUPPORTED, "seen: expected none with paging");
    case_close(&c);
}

TEST(plans)
{
    attention_case c = open_case(elements);
    ordo_problem *p = &c.problem;
    ordo_plan_options o = ORDO_PLAN_OPTIONS_INIT;
    ordo_machine *h200 = NULL;
    ordo_plan *plan = NULL;
    p->dtype = ORDO_BF16;
    case_must(ordo_machine_create(&h200, "h200"));
    o.backend = ORDO_BACKEND_CUDA;
    CHECK_INT(ordo_plan_create(&plan, p, h200, &o), ORDO_OK);
    ordo_plan_destroy(plan);
    o.backend = ORDO_BACKEND_EMULATOR;
    CHECK_INT(ordo_plan_create(&plan, p, h200, &o), ORDO_OK);
    ordo_plan_destroy(plan);
    p->head_dim = 256;
    CHECK_INT(ordo_plan_create(&plan, p, h200, &o), ORDO_OK);
    ordo_plan_destroy(plan);
    p->head_dim = 264;
    CHECK_REFUSED(ordo_plan_create(&plan, p, h200, &o), ORDO_ERR_UNSUPPORTED,
                  "seen: backend emulator expects at most 256");
    ordo_machine_destroy(h200);
    p->head_dim = 16;
    o = (ordo_plan_options)ORDO_PLAN_OPTIONS_INIT;
    o.backend = ORDO_BACKEND_CPU;
    o.order = ORDO_ORDER_SHIFT;
    CHECK_REFUSED(ordo_plan_create(&plan, p, NULL, &o), ORDO_ERR_UNSUPPORTED, "order shift, seen");
    o.order = ORDO_ORDER_DEFAULT;
    o.forward_tile = (ordo_tile) { 64, 64 };
    CHECK_REFUSED(ordo_plan_create(&plan, p, NULL, &o), ORDO_ERR_UNSUPPORTED,
                  "forward_tile 64x64, seen");
    o.forward_tile = (ordo_tile) { 0, 0 };
    o.segments = 2;
    p->dropout.p = 0.1;
    CHECK_REFUSED(ordo_plan_create(&plan, p, NULL, &o), ORDO_ERR_UNSUPPORTED, "segments 2, seen");
    case_close(&c);
}

/* The line of a plan with an element mask says so; its key is that of the plan without. */
TEST(lines)
{
    attention_case c = open_case(elements);
    char line[2048], again[2048];
    ordo_plan_options o = ORDO_PLAN_OPTIONS_INIT;
    o.order = ORDO_ORDER_SPT;
    c.problem.seen.per_head = true;
    ordo_plan *plan = case_plan(&c, &o), *read = NULL;
    CHECK_INT(ordo_plan_print(plan, line, sizeof line, NULL), ORDO_OK);
    CHECK(strstr(line, " seen=1 seen_per_head=1 key="));
    case_must(ordo_plan_parse(&read, line));
    CHECK(read->problem.seen.on && read->problem.seen.per_head && !read->problem.seen.per_sequence);
    ordo_plan_destroy(read);
    ordo_plan_destroy(plan);
    c.problem.seen = (ordo_seen_limits) { .on = false };
    plan = case_plan(&c, &o);
    CHECK_INT(ordo_plan_print(plan, again, sizeof again, NULL), ORDO_OK);
    CHECK(!strstr(again, "seen"));
    CHECK(strcmp(strstr(line, " key="), strstr(again, " key=")) == 0);
    ordo_plan_destroy(plan);
    case_close(&c);
}

#define WRONG(change, status, ...)                                                                 \
    do {                                                                                           \
        ordo_block_mask bad = c.seen;                                                              \
        int32_t start[4], key[9];                                                                  \
        memcpy(start, bad.start, sizeof start);                                                    \
        memcpy(key, bad.key, sizeof key);                                                          \
        bad.start = start, bad.key = key;                                                          \
        change;                                                                                    \
        c.call.seen = &bad;                                                                        \
        CHECK_REFUSED(ordo_block_mask_check(plan, &bad, NULL), status, __VA_ARGS__);               \
        CHECK_REFUSED(ordo_attention_forward(plan, &c.call), status, __VA_ARGS__);                 \
        CHECK_REFUSED(ordo_attention_backward(plan, &c.call), status, __VA_ARGS__);                \
        case_same(&c, &poison, "a refused call");                                                  \
    } while (0)

TEST(calls_refuse)
{
    attention_case c = open_case(elements);
    ordo_plan *plan = case_plan(&c, NULL);
    const size_t bytes = ordo_plan_workspace(plan);
    c.call.workspace = aligned_alloc(256, (bytes + 511) / 256 * 256);
    c.call.workspace_bytes = bytes;
    case_results poison = case_keep(&c);
    CHECK_INT(c.seen.entries, 9);
    WRONG(bad.q_len = 299, ORDO_ERR_SHAPE, "seen.q_len 299: expected 300");
    WRONG(bad.heads = 2, ORDO_ERR_SHAPE, "seen.heads 2: expected 1");
    WRONG(bad.entries = -1, ORDO_ERR_SHAPE, "seen.entries -1");
    WRONG(bad.start = NULL, ORDO_ERR_ARGUMENT, "seen.start NULL");
    WRONG(bad.first = bad.last = start, ORDO_ERR_ARGUMENT, "seen.first given");
    WRONG(bad.bits = NULL, ORDO_ERR_ARGUMENT, "seen.bits NULL");
    WRONG(bad.bits = (uint32_t *)((char *)bad.bits + 1), ORDO_ERR_ALIGN, "seen.bits 0x");
    WRONG(start[3] = 10, ORDO_ERR_SHAPE, "seen.start[2] 6, [3] 10");
    WRONG(key[5] = 3, ORDO_ERR_SHAPE, "seen.key[5] 3: expected 2..2");
    c.call.seen = NULL;
    CHECK_REFUSED(ordo_attention_forward(plan, &c.call), ORDO_ERR_ARGUMENT, "seen NULL");
    c.call.seen = &c.seen;
    c.call.block_mask = &c.seen;
    CHECK_REFUSED(ordo_attention_forward(plan, &c.call), ORDO_ERR_ARGUMENT, "block_mask given");
    c.call.block_mask = NULL;
    ordo_block_mask inside = c.seen; /* its bits lie in an output */
    inside.bits = c.call.o.data;
    c.call.seen = &inside;
    CHECK_REFUSED(ordo_attention_forward(plan, &c.call), ORDO_ERR_ARGUMENT, "o and seen.bits");
    ordo_plan_destroy(plan);
    c.problem.seen = (ordo_seen_limits) { .on = false };
    plan = case_plan(&c, NULL);
    c.call.seen = &c.seen;
    CHECK_REFUSED(ordo_attention_forward(plan, &c.call), ORDO_ERR_ARGUMENT, "seen given");
    ordo_plan_destroy(plan);
    c.problem.blocks.entries = 9;
    plan = case_plan(&c, NULL);
    c.call.block_mask = &c.seen;
    c.call.seen = NULL;
    CHECK_REFUSED(ordo_attention_forward(plan, &c.call), ORDO_ERR_ARGUMENT, "block_mask.bits");
    ordo_plan_destroy(plan);
    free(c.call.workspace);
    case_drop(&poison);
    case_close(&c);
}

/* ---- kinds ---- */

/* The mask that the bits of `shown` in sequences of these lengths prove, in a problem with the mask
 * of `own`. */
static ordo_problem proven(const ordo_problem *own, const ordo_problem *shown,
                           const int32_t *q_lens, const int32_t *kv_lens, int32_t *q_found,
                           int32_t *kv_found)
{
    attention_case c = { .problem = *own };
    const ordo_problem *p = &c.problem;
    unsigned char *all = calloc((size_t)(p->batch * p->q_len * p->kv_len), 1), *to = all;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < p->q_len; i++)
            for (int64_t j = 0; j < p->kv_len; j++)
                *to++ = i < q_lens[b] && j < kv_lens[b] &&
                        rules_see(shown,
                                  j - i - ordo_mask_diagonal(shown->mask, q_lens[b], kv_lens[b]));
    case_set_seen(&c, all, true, false);
    ordo_problem as = ORDO_PROBLEM_INIT;
    case_must(ordo_seen_kind(p, &c.seen, &as, q_found, kv_found));
    free(c.seen_memory);
    free(all);
    return as;
}

TEST(kinds_are_proven)
{
    static const ordo_window none = { .on = false }, both = { true, 40, 9 }, left = { true, 60, 0 };
    static const struct {
        ordo_mask mask;
        const ordo_window *window;
        int32_t q_lens[2], kv_lens[2];
    } rows[] = {
        { ORDO_MASK_FULL, &none, { 150, 150 }, { 200, 200 } },
        { ORDO_MASK_CAUSAL, &none, { 150, 150 }, { 200, 200 } },
        { ORDO_MASK_CAUSAL, &left, { 150, 150 }, { 200, 200 } },
        { ORDO_MASK_CAUSAL_TOP_LEFT, &none, { 150, 150 }, { 200, 200 } },
        { ORDO_MASK_CAUSAL_TOP_LEFT, &left, { 150, 150 }, { 200, 200 } },
        { ORDO_MASK_FULL, &both, { 150, 150 }, { 200, 200 } },
        { ORDO_MASK_FULL, &none, { 150, 0 }, { 199, 0 } },
        { ORDO_MASK_CAUSAL, &none, { 150, 90 }, { 160, 200 } },
        { ORDO_MASK_CAUSAL, &left, { 100, 50 }, { 100, 50 } },
        { ORDO_MASK_FULL, &both, { 149, 1 }, { 200, 7 } },
    };
    ordo_problem own = ORDO_PROBLEM_INIT;
    own.batch = own.heads = 2;
    own.q_len = 150;
    own.kv_len = 200;
    own.head_dim = 8;
    for (size_t x = 0; x < sizeof rows / sizeof rows[0]; x++) {
        ordo_problem shown = own;
        int32_t q_found[2], kv_found[2];
        shown.mask = rows[x].mask;
        shown.window = *rows[x].window;
        const bool padded = x >= 6;
        const ordo_problem as =
            proven(&own, &shown, rows[x].q_lens, rows[x].kv_lens, q_found, kv_found);
        CHECK(!as.seen.on);
        CHECK_INT(as.layout, padded ? ORDO_PADDED : ORDO_DENSE);
        CHECK_INT(as.mask, rows[x].mask);
        CHECK_INT(as.window.on, shown.window.on);
        CHECK_INT(as.window.left, shown.window.on ? shown.window.left : 0);
        for (int b = 0; padded && b < 2; b++) {
            CHECK_INT(q_found[b], rows[x].q_lens[b]);
            CHECK_INT(kv_found[b], rows[x].kv_lens[b]);
        }
        CHECK_INT(proven(&own, &shown, rows[x].q_lens, rows[x].kv_lens, NULL, NULL).seen.on,
                  padded); /* without lengths */
    }
    ordo_problem shown = own, cut = own; /* a causal problem, a window in bits */
    int32_t lens[2] = { 150, 150 }, kv_lens[2] = { 200, 200 };
    own.mask = ORDO_MASK_CAUSAL;
    shown.window = (ordo_window) { true, 60, -1 };
    const ordo_problem as = proven(&own, &shown, lens, kv_lens, lens, kv_lens);
    CHECK(!as.seen.on && as.mask == ORDO_MASK_CAUSAL && as.window.on && as.window.left == 60);
    cut.shard.q_total = 300;
    CHECK(proven(&cut, &own, lens, kv_lens, NULL, NULL).seen.on);
    cut = own;
    cut.alibi = true; /* whose distances are from the bottom-right diagonal */
    shown.mask = ORDO_MASK_CAUSAL_TOP_LEFT;
    shown.window.on = false;
    CHECK(proven(&cut, &shown, lens, kv_lens, NULL, NULL).seen.on);
    cut.alibi = false;
    CHECK(!proven(&cut, &shown, lens, kv_lens, NULL, NULL).seen.on);
}

/* One element that no kind has; heads that differ. */
TEST(kinds_are_not_proven)
{
    for (int trial = 0; trial < 4; trial++) {
        attention_case c = { .problem = ORDO_PROBLEM_INIT };
        ordo_problem *p = &c.problem, as = ORDO_PROBLEM_INIT;
        int32_t q_lens[1], kv_lens[1];
        p->batch = 1;
        p->heads = 2;
        p->q_len = p->kv_len = 150;
        p->head_dim = 8;
        unsigned char *all = malloc(2 * 150 * 150);
        for (int x = 0; x < 2 * 150 * 150; x++)
            all[x] = x % 150 <= x / 150 % 150;
        if (trial == 1)
            all[140 * 150 + 3] = 0;
        if (trial == 2)
            all[150 * 150 + 20 * 150 + 21] = 1;
        if (trial == 3)
            memset(all + 150 * 150, 1, 150 * 150);
        case_set_seen(&c, all, false, true);
        case_must(ordo_seen_kind(p, &c.seen, &as, q_lens, kv_lens));
        CHECK_INT(as.seen.on, trial > 0);
        CHECK_REFUSED(ordo_seen_kind(p, NULL, &as, NULL, NULL), ORDO_ERR_ARGUMENT, "seen NULL");
        CHECK_REFUSED(ordo_seen_kind(p, &c.seen, &as, q_lens, NULL), ORDO_ERR_ARGUMENT, "kv_lens");
        free(c.seen_memory);
        free(all);
    }
}

CHECK_MAIN()
