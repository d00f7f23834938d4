/* plan_test.c: what a plan decides and promises, through the public API. */
#include "plan_requests.h"

#include "plan/plan.h"

/* ---- defaults ---- */

static void check_numbers_of(const request *r, const ordo_plan_info *b)
{
    const ordo_plan_info info = info_of(r), *const a = &info;
    CHECK_INT(a->forward_tile.q, b->forward_tile.q);
    CHECK_INT(a->forward_tile.k, b->forward_tile.k);
    CHECK_INT(a->backward_tile.q, b->backward_tile.q);
    CHECK_INT(a->backward_tile.k, b->backward_tile.k);
    CHECK_INT(a->order, b->order);
    CHECK_INT(a->group, b->group);
    CHECK_INT(a->kept, b->kept);
    CHECK_TEXT(a->numeric_key, b->numeric_key);
}

/* Vary what must not decide bits, one thing at a time. */
static void vary(const request *base)
{
    static const int64_t batches[] = { 1, 3, 64, 1000 }, heads[] = { 1, 6, 64 };
    static const int64_t lengths[] = { 1, 63, 129, 5000, 65536 }, workers[] = { 1, 7, 5000 };
    static const char *const gpus[] = { "h100", "h200", "h800" };
    const ordo_plan_info expected = info_of(base);
    for (size_t x = 0; x < 4; x++) {
        request r = *base;
        r.problem.batch = batches[x];
        r.problem.total_q = r.problem.layout == ORDO_PACKED ? batches[x] * 100 : 0;
        check_numbers_of(&r, &expected);
    }
    for (size_t x = 0; x < 3; x++) {
        request r = *base;
        r.problem.heads = heads[x];
        r.problem.kv_heads = x == 1 ? 2 : 0;
        check_numbers_of(&r, &expected);
        r = *base;
        r.options.workers = workers[x];
        check_numbers_of(&r, &expected);
        r = *base;
        r.machine = strcmp(base->machine, "host") == 0 ? "host" : gpus[x];
        check_numbers_of(&r, &expected);
    }
    for (size_t x = 0; x < 5; x++) {
        request r = *base;
        r.problem.q_len = lengths[x];
        r.problem.kv_len = x == 3 ? 700 : 0;
        r.problem.total_q = r.problem.layout == ORDO_PACKED ? lengths[x] : 0;
        r.problem.total_kv = r.problem.layout == ORDO_PACKED ? 1 : 0;
        check_numbers_of(&r, &expected);
    }
    request r = *base;
    r.problem.shard = (ordo_shard) { .batch0 = 5, .head0 = 16, .heads_total = 64 };
    check_numbers_of(&r, &expected);
}

TEST(defaults_depend_on_backend_head_size_and_mask_alone)
{
    for (int x = 0; x < 24; x++) {
        request r = x % 2 ? on_h200() : on_host();
        r.problem.mask = (ordo_mask)(x / 2 % 3);
        r.problem.window = x / 6 % 2 ? (ordo_window) { true, 100, 50 } : (ordo_window) { 0 };
        r.problem.dtype = x / 12 ? ORDO_F16 : ORDO_BF16;
        vary(&r);
        vary((request[]) { packed(r) });
        r.problem.layout = ORDO_PADDED;
        vary(&r);
    }
}

TEST(no_machine_means_the_host)
{
    request r = on_host();
    r.options.workers = 0;
    const ordo_plan_info named = info_of(&r);
    r.machine = NULL;
    const ordo_plan_info unnamed = info_of(&r);
    check_numbers_of(&r, &named);
    CHECK(unnamed.backend == ORDO_BACKEND_CPU);
    CHECK_INT(named.workers, unnamed.workers);
}

/* ---- numeric key ---- */

enum { KEYS = 15 };

static void spoil(request *r, int which)
{
    ordo_plan_options *o = &r->options;
    switch (which) {
    case 1: o->backend = ORDO_BACKEND_REF; break;
    case 2: r->machine = "host", o->forward_tile = (ordo_tile) { 64, 64 }; break;
    case 3: r->machine = "host", o->forward_tile = (ordo_tile) { 64, 65 }; break;
    case 4: r->machine = "host", o->backward_tile = (ordo_tile) { 128, 128 }; break;
    case 5: r->machine = "host", o->backward_tile = (ordo_tile) { 128, 64 }; break;
    case 6: o->order = ORDO_ORDER_SHIFT; break;
    case 7: o->order = ORDO_ORDER_SHIFT, o->group = 8; break;
    case 8: o->order = ORDO_ORDER_SHIFT, o->group = ORDO_GROUP_WAVES; break;
    case 9: o->order = ORDO_ORDER_SPT; break;
    case 10: r->problem.dropout = (ordo_dropout) { .p = 0.5 }; break;
    case 11: r->problem.dropout = (ordo_dropout) { .p = 0.5, .rounds = 10 }; break;
    case 12: r->problem.dropout = (ordo_dropout) { .p = 0.5, .bits = 16 }; break;
    case 13: r->machine = "host"; break;
    case 14: r->problem.dropout = (ordo_dropout) { .p = 0.5, .keying = ORDO_KEYING_FA2 }; break;
    default: break;
    }
}

TEST(the_key_tells_numbers_apart)
{
    char key[KEYS][160];
    for (int x = 0; x < KEYS; x++) {
        request r = on_h200();
        spoil(&r, x);
        const ordo_plan_info info = info_of(&r);
        memcpy(key[x], info.numeric_key, sizeof key[x]);
        for (int y = 0; y < x; y++)
            if (strcmp(key[x], key[y]) == 0)
                CHECK_FAIL("changes %d and %d: the same key %s", y, x, key[x]);
    }
    CHECK_TEXT(key[0], "sm90.r3/f128x128/b64x128/descending/k1/plain");
    CHECK_TEXT(key[1], "ref.r1/f1x1/b1x1/ascending/k1/plain");
    CHECK_TEXT(key[6], "sm90.r3/f128x128/b64x128/shift.g32/k1/plain");
    CHECK_TEXT(key[8], "sm90.r3/f128x128/b64x128/shift.w132/k1/plain");
    CHECK_TEXT(key[12], "sm90.r3/f128x128/b64x128/descending/k1/philox7x16");
    CHECK_TEXT(key[13], "cpu.r4/f64x128/b64x128/descending/k1/plain");
    CHECK_TEXT(key[14], "sm90.r3/f128x128/b64x128/descending/k1/fa2");
    ordo_order_key(ORDO_ORDER_SHIFT, 8, 132, 2, key[0], sizeof key[0]); /* the simulator's */
    CHECK_TEXT(key[0], "shift.g8/k2");
}

TEST(the_key_leaves_out_what_changes_no_bit)
{
    const request base = on_h200();
    const ordo_plan_info expected = info_of(&base);
    request r = base;
    r.options.issue = ORDO_ISSUE_HEAD;
    r.options.assign = ORDO_ASSIGN_PINNED;
    check_numbers_of(&r, &expected);
    const ordo_plan_info a = info_of(&r);
    r = base;
    r.options.section = 3;
    r.options.workers = 17;
    check_numbers_of(&r, &expected);
    const ordo_plan_info b = info_of(&r);
    r = base; /* what the table would choose anyway, spelt out */
    r.options.order = ORDO_ORDER_DESCENDING;
    r.options.forward_tile = (ordo_tile) { 128, 128 };
    r.options.backward_tile = (ordo_tile) { 64, 128 };
    r.options.split = 1;
    check_numbers_of(&r, &expected);
    CHECK(a.issue == ORDO_ISSUE_HEAD && a.assign == ORDO_ASSIGN_PINNED);
    CHECK_INT(b.section, 3);
    CHECK_INT(b.workers, 17);
}

/* ---- promise ---- */

TEST(every_level_is_kept_unless_waves_or_rows_in_two_orders)
{
    const unsigned all = ORDO_PROMISE_REPEAT | ORDO_PROMISE_PORTABLE | ORDO_PROMISE_BATCH |
                         ORDO_PROMISE_SPLIT | ORDO_PROMISE_KEEP_BITS;
    for (int order = 0; order <= ORDO_ORDER_COUNT; order++)
        for (int full = 0; full < 2; full++) {
            request r = on_h200();
            r.options.order = (ordo_order)order;
            r.problem.mask = full ? ORDO_MASK_FULL : ORDO_MASK_CAUSAL;
            const ordo_plan_info info = info_of(&r);
            const bool one = order <= ORDO_ORDER_DESCENDING || order == ORDO_ORDER_SPT;
            CHECK_INT(info.kept, one ? all | ORDO_PROMISE_CUT : all);
            CHECK_INT(info.not_kept, one ? 0 : ORDO_PROMISE_CUT);
            CHECK((strstr(info.note, "cut holds") != NULL) == !one);
        }
    request r = on_h200();
    r.options.order = ORDO_ORDER_SHIFT;
    r.options.group = ORDO_GROUP_WAVES;
    const ordo_plan_info info = info_of(&r);
    CHECK_INT(info.kept, ORDO_PROMISE_REPEAT | ORDO_PROMISE_KEEP_BITS);
    CHECK_INT(info.not_kept,
              ORDO_PROMISE_PORTABLE | ORDO_PROMISE_BATCH | ORDO_PROMISE_SPLIT | ORDO_PROMISE_CUT);
    CHECK_HAS(info.note, "portable, batch, split and cut are not kept");
    const ordo_plan_info ref = info_of((request[]) { on_ref() });
    CHECK_INT(ref.kept, all);
    CHECK_TEXT(ref.note, "cut holds without carried sums: backend ref sums in fp64");
}

/* The batch level, tile by tile: a sequence sums the same alone and in a padded batch. */
TEST(a_sequence_sums_the_same_alone_and_among_longer_ones)
{
    uint64_t seed = 21;
    for (int round = 0; round < 3000; round++) {
        request r = on_h200();
        r.problem.mask = (ordo_mask)check_between(&seed, 0, 2);
        if (check_between(&seed, 0, 2) == 0)
            r.problem.window = (ordo_window) { true, check_between(&seed, -1, 3000),
                                               check_between(&seed, -1, 3000) };
        const ordo_order order = (ordo_order)check_between(&seed, 1, ORDO_ORDER_COUNT);
        const ordo_tile tile =
            check_between(&seed, 0, 3) ? (ordo_tile) { 64, 128 } : (ordo_tile) { 96, 64 };
        r.problem.heads = check_between(&seed, 1, 6);
        const int64_t q = check_between(&seed, 0, 3) ? check_between(&seed, 1, 5000) : 1;
        const int64_t kv = check_between(&seed, 0, 1) ? q : check_between(&seed, 1, 5000);
        r.problem.q_len = q;
        r.problem.kv_len = kv;
        ordo_plan *alone = make_study(&r, order, tile);
        r.problem.layout = ORDO_PADDED;
        r.problem.batch = check_between(&seed, 1, 5);
        r.problem.q_len = q + check_between(&seed, 0, 3000);
        r.problem.kv_len = kv + check_between(&seed, 0, 3000);
        ordo_plan *among = make_study(&r, order, tile);
        const ordo_run one = ordo_plan_run(alone, 1, q, kv), many = ordo_plan_run(among, 1, q, kv);
        const int32_t head = (int32_t)check_between(&seed, 0, r.problem.heads - 1);
        const ordo_walk a = ordo_run_walk(&one, head), b = ordo_run_walk(&many, head);
        const int before = check_failures;
        CHECK_INT(a.nk, b.nk);
        for (int32_t j = 0; j < a.nk && check_failures == before; j++) {
            CHECK_INT(ordo_walk_steps(&a, j), ordo_walk_steps(&b, j));
            for (int32_t t = 0; t < ordo_walk_steps(&a, j); t++) {
                const int32_t i = ordo_walk_visit(&a, j, t);
                CHECK_INT(ordo_walk_visit(&b, j, t), i);
                CHECK_INT(ordo_walk_turn(&b, i, j), ordo_walk_turn(&a, i, j));
            }
        }
        if (check_failures > before)
            printf("    order %d mask %d window %d,%d q %d kv %d\n", (int)order,
                   (int)r.problem.mask, (int)r.problem.window.left, (int)r.problem.window.right,
                   (int)q, (int)kv);
        ordo_plan_destroy(alone);
        ordo_plan_destroy(among);
    }
}

/* ---- symmetric elsewhere ---- */

static void check_replaced_at(request r, ordo_tile tile, ordo_order by, const char *note)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_plan *plan = make_study(&r, ORDO_ORDER_SYMMETRIC, tile);
    CHECK(ordo_plan_query(plan, &info) == ORDO_OK);
    ordo_plan_destroy(plan);
    CHECK_INT(info.order, by);
    CHECK_INT(info.order_asked, ORDO_ORDER_SYMMETRIC);
    CHECK_HAS(info.note, note);
    CHECK_HAS(info.note, "cut holds for rows of o and lse only: symmetric is cyclic");
    CHECK(strstr(info.numeric_key, ordo_order_name(by)) != NULL);
    CHECK((strstr(info.note, "replaced by") == NULL) == (by == ORDO_ORDER_SYMMETRIC));
}

static void check_replaced(request r, ordo_order by, const char *note)
{
    check_replaced_at(r, (ordo_tile) { 64, 128 }, by, note);
    if (r.problem.layout == ORDO_DENSE) { /* then the backend runs it */
        r.options.order = ORDO_ORDER_SYMMETRIC;
        const ordo_plan_info info = info_of(&r);
        CHECK_INT(info.order, by);
        CHECK_HAS(info.numeric_key, by == ORDO_ORDER_SHIFT       ? "/shift.g32/"
                                    : by == ORDO_ORDER_SYMMETRIC ? "/symmetric.g16/"
                                                                 : "/spt/");
    }
}

TEST(symmetric_is_replaced_by_name)
{
    request r = on_h200();
    check_replaced(r, ORDO_ORDER_SYMMETRIC, "");
    check_replaced(packed(r), ORDO_ORDER_SYMMETRIC, "");
    r.problem.mask = ORDO_MASK_CAUSAL_TOP_LEFT;
    check_replaced(r, ORDO_ORDER_SYMMETRIC, "");
    r.problem.mask = ORDO_MASK_FULL;
    check_replaced(r, ORDO_ORDER_SHIFT, "order symmetric replaced by shift");
    r = on_h200();
    r.problem.window = (ordo_window) { true, 200, 0 };
    check_replaced(r, ORDO_ORDER_SPT, "order symmetric replaced by spt");
    r.problem.window.left = 5000; /* hides nothing, but would in a longer sequence */
    check_replaced(r, ORDO_ORDER_SPT, "order symmetric replaced by spt");
    r = on_h200();
    r.problem.kv_len = 2048;
    check_replaced(r, ORDO_ORDER_SPT, "order symmetric replaced by spt");
    r = on_h200();
    check_replaced_at(r, (ordo_tile) { 80, 128 }, ORDO_ORDER_SPT,
                      "whole number of query tiles per key tile");
}

TEST(twin_says_when_it_cannot_be_pinned_in_pairs)
{
    request r = on_h200();
    r.options.order = ORDO_ORDER_TWIN;
    r.options.assign = ORDO_ASSIGN_PINNED;
    r.options.issue = ORDO_ISSUE_HEAD;
    const ordo_plan_info pairs = info_of(&r);
    CHECK_INT(pairs.coresident, 8);
    CHECK_TEXT(pairs.note, "cut holds without carried sums: twin visits rows differently by head");
    r.options.workers = 7;
    const ordo_plan_info turns = info_of(&r);
    CHECK_INT(turns.coresident, 0);
    CHECK_HAS(turns.note, "twin cannot be pinned in pairs here");
}

/* ---- dropout ---- */

TEST(dropout_as_it_will_be_used)
{
    request r = on_h200();
    ordo_plan_info info = info_of(&r);
    CHECK_INT(info.dropout_bits, 0);
    CHECK(info.dropout_p_used == 0);
    r.problem.dropout.p = 0.1;
    info = info_of(&r);
    CHECK_INT(info.dropout_rounds, 7);
    CHECK_INT(info.dropout_bits, 8);
    CHECK_INT(info.dropout_threshold, 230);
    CHECK(info.dropout_p_used == 26.0 / 256);
    r.problem.dropout = (ordo_dropout) { .p = 0.1, .rounds = 10, .bits = 16 };
    info = info_of(&r);
    CHECK_INT(info.dropout_rounds, 10);
    CHECK_INT(info.dropout_threshold, 58982);
    CHECK(info.dropout_p_used == 6554.0 / 65536);
}

/* ---- the plan's own check ---- */

/* Tile pairs with a visible element, found by looking at every element. */
static uint64_t pairs_by_hand(const ordo_problem *p, ordo_tile tile)
{
    uint64_t pairs = 0;
    const int64_t delta = p->mask == ORDO_MASK_CAUSAL_TOP_LEFT ? 0 : p->kv_len - p->q_len;
    for (int64_t i = 0; i < p->q_len; i += tile.q)
        for (int64_t j = 0; j < p->kv_len; j += tile.k) {
            bool live = false;
            for (int64_t r = i; r < i + tile.q && r < p->q_len; r++)
                for (int64_t c = j; c < j + tile.k && c < p->kv_len; c++) {
                    const int64_t d = c - r - delta;
                    live |= (p->mask == ORDO_MASK_FULL || d <= 0) &&
                            (!p->window.on || p->window.left < 0 || d >= -p->window.left) &&
                            (!p->window.on || p->window.right < 0 || d <= p->window.right);
                }
            pairs += live;
        }
    return pairs * (uint64_t)p->heads * (uint64_t)p->batch;
}

/* Check a plan, and destroy it. */
static void check_pairs(ordo_plan *plan)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    uint64_t pairs = 0;
    CHECK(ordo_plan_problem(plan, &problem) == ORDO_OK);
    CHECK(ordo_plan_query(plan, &info) == ORDO_OK);
    if (ordo_plan_check(plan, &pairs) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    CHECK_INT(pairs, pairs_by_hand(&problem, info.backward_tile));
    CHECK_INT(info.query_tiles, (problem.q_len + info.backward_tile.q - 1) / info.backward_tile.q);
    CHECK_INT(info.key_tiles, (problem.kv_len + info.backward_tile.k - 1) / info.backward_tile.k);
    ordo_plan_destroy(plan);
}

TEST(plans_check_themselves_and_count_pairs)
{
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++)
        for (int mask = 0; mask < 3; mask++)
            for (int x = 0; x < 6; x++) {
                request r = on_h200();
                const ordo_tile tile = { 16, x % 2 ? 32 : 24 };
                r.problem.mask = (ordo_mask)mask;
                r.problem.q_len = 300;
                switch (x) {
                case 1: r.problem.kv_heads = 2; break;
                case 2: r.problem.kv_len = 411; break;
                case 3: r.problem.window = (ordo_window) { true, 40, 3 }; break;
                case 4: r.problem.layout = ORDO_PADDED; break;
                case 5: r = packed(r); break;
                default: break;
                }
                check_pairs(make_study(&r, (ordo_order)order, tile));
            }
}

TEST(the_oracle_has_tiles_of_one_element)
{
    request r = on_ref();
    r.problem.q_len = 20;
    r.problem.kv_len = 33;
    const ordo_plan_info info = info_of(&r);
    CHECK_INT(info.query_tiles, 20);
    CHECK_INT(info.key_tiles, 33);
    CHECK(info.backend == ORDO_BACKEND_REF && info.order == ORDO_ORDER_ASCENDING);
    CHECK_INT(info.workers, 1);
    check_pairs(make(&r));
    r.machine = "h200"; /* a machine changes nothing */
    CHECK_INT(info_of(&r).workers, 1);
    r.machine = "a100";
    CHECK_INT(info_of(&r).workers, 1);
}

/* Under spt+tail every fourth key head is held back; a shard may hold only such, or none. */
TEST(shards_with_only_tail_heads_or_none)
{
    for (int x = 0; x < 2; x++)
        for (int head0 = 0; head0 < 8; head0++)
            for (int heads = 1; heads <= 8 - head0; heads++) {
                request r = x ? on_h200() : on_host();
                r.problem.q_len = 300;
                r.problem.heads = heads;
                r.problem.shard = (ordo_shard) { .heads_total = 8, .head0 = head0 };
                r.options.order = ORDO_ORDER_SPT_TAIL;
                const ordo_plan_info info = info_of(&r);
                CHECK(info.order == ORDO_ORDER_SPT_TAIL);
                check_pairs(make(&r));
            }
}

TEST(names_of_constants)
{
    for (int x = 1; x <= ORDO_ORDER_COUNT; x++) {
        ordo_order order = ORDO_ORDER_DEFAULT;
        CHECK(ordo_order_from_name(ordo_order_name((ordo_order)x), &order) == ORDO_OK);
        CHECK_INT(order, x);
    }
    ordo_order order = ORDO_ORDER_TWIN;
    CHECK(ordo_order_from_name("default", &order) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_order_from_name("", &order) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_order_from_name(NULL, &order) == ORDO_ERR_ARGUMENT);
    CHECK(ordo_order_from_name("spt", NULL) == ORDO_ERR_ARGUMENT);
    CHECK_INT(order, ORDO_ORDER_TWIN);
    CHECK_TEXT(ordo_order_name((ordo_order)99), "unknown");
    CHECK_TEXT(ordo_order_name((ordo_order)-1), "unknown");
    CHECK_TEXT(ordo_backend_name(ORDO_BACKEND_CUDA), "cuda");
    CHECK_TEXT(ordo_issue_name(ORDO_ISSUE_KEY), "key");
    CHECK_TEXT(ordo_assign_name(ORDO_ASSIGN_FIRST_FREE), "first-free");
    CHECK_TEXT(ordo_promise_name(ORDO_PROMISE_SPLIT), "split");
    CHECK_TEXT(ordo_promise_name(ORDO_PROMISE_CUT), "cut");
    CHECK_TEXT(ordo_promise_name((ordo_promise)3), "unknown");
    CHECK_TEXT(ordo_form_name(ORDO_FORM_PHASE), "phase");
    CHECK_TEXT(ordo_form_name(ORDO_FORM_CHAIN), "chain");
    CHECK_TEXT(ordo_form_name((ordo_form)4), "unknown");
}

CHECK_MAIN()
