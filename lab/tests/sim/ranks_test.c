/* ranks_test.c: the simulation of ranks against closed forms, and what it refuses. */
#include "check.h"
#include "ordo/lab/ranks.h"
#include "ordo/status.h"

#include <math.h>
#include <stdlib.h>

static const ordo_rank_problem usual = { .size = sizeof(ordo_rank_problem),
                                         .ranks = 4,
                                         .rows = 4096,
                                         .batch = 1,
                                         .heads = 16,
                                         .kv_heads = 8,
                                         .head_dim = 64,
                                         .mask = ORDO_MASK_FULL,
                                         .flop_per_s = 1e14,
                                         .link_bytes_per_s = 1e30,
                                         .link_ns = 0 };

static ordo_rank_info run(const ordo_rank_problem *p, ordo_rank_method method)
{
    ordo_rank_timeline *t = NULL;
    ordo_rank_info info = { 0 };
    if (ordo_rank_timeline_create(&t, p, method) != ORDO_OK)
        CHECK_FAIL("%s: %s", ordo_rank_method_name(method), ordo_last_error());
    CHECK_INT(ordo_rank_timeline_query(t, &info), ORDO_OK);
    ordo_rank_timeline_destroy(t);
    return info;
}

static void check_near(double found, double expected, const char *what)
{
    if (fabs(found - expected) > 1e-9 * fabs(expected))
        CHECK_FAIL("%s: %.17g, expected %.17g", what, found, expected);
}

/* One product of one head, of all pairs. */
static double product_ns(const ordo_rank_problem *p)
{
    const double n = (double)p->rows, pairs = p->mask == ORDO_MASK_FULL ? n * n : n * (n + 1) / 2;
    return 2 * pairs * (double)p->head_dim / p->flop_per_s * 1e9;
}

TEST(one_rank)
{
    ordo_rank_problem p = usual;
    p.ranks = 1;
    p.link_bytes_per_s = 1; /* nothing is sent */
    for (int mask = 0; mask < 2; mask++) {
        p.mask = mask ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
        for (int m = 1; m <= ORDO_RANKS_METHODS; m++) {
            const ordo_rank_info x = run(&p, (ordo_rank_method)m);
            check_near(x.forward_ns, 2 * 16 * product_ns(&p), "forward");
            check_near(x.backward_ns, x.products * 16 * product_ns(&p), "backward");
            check_near(x.ideal_ns, 7 * 16 * product_ns(&p), "ideal");
            check_near(x.utilization, 1, "utilization");
            check_near(x.sent_bytes + 1, 1, "sent");
        }
    }
}

/* Even stages and a free link: items + stages - 1 steps. */
TEST(a_pipe_fills_once)
{
    for (int64_t ranks = 2; ranks <= 8; ranks *= 2) {
        ordo_rank_problem p = usual;
        p.ranks = ranks;
        p.batch = 3;
        const ordo_rank_info x = run(&p, ORDO_RANKS_RELAY);
        const double step = 5 * 2 * product_ns(&p) / (double)ranks;
        CHECK_INT(x.items, 24);
        CHECK_INT(x.stages, ranks);
        check_near(x.backward_ns, (double)(24 + ranks - 1) * step, "backward");
    }
}

/* A link slower than a stage decides: the first packet computes and travels, the others follow. */
TEST(a_slow_link_is_the_pipe)
{
    ordo_rank_problem p = usual;
    p.ranks = 2;
    p.link_bytes_per_s = 1e8;
    const ordo_rank_info x = run(&p, ORDO_RANKS_RELAY);
    const double packet = 2.0 * 4096 * 64 * (2 + 4) / 1e8 * 1e9;
    CHECK(x.backward_ns > 8 * packet);
    CHECK(x.backward_ns < 11 * packet);
    CHECK(x.sent_bytes > 8 * packet * 1e8 / 1e9);
}

TEST(zigzag_balances_causal_masks)
{
    ordo_rank_problem p = usual;
    p.mask = ORDO_MASK_CAUSAL;
    const ordo_rank_info uneven = run(&p, ORDO_RANKS_GATHER);
    p.zigzag = true;
    const ordo_rank_info even = run(&p, ORDO_RANKS_GATHER);
    check_near(even.forward_ns + even.backward_ns, even.ideal_ns * 9 / 7, "zigzag");
    CHECK(uneven.forward_ns > 1.7 * even.forward_ns);
    const ordo_rank_info relay = run(&p, ORDO_RANKS_RELAY);
    CHECK_INT(relay.stages, 2 * p.ranks - 1); /* the two chunks in the middle are one */
    CHECK(relay.memory_bytes < even.memory_bytes / 2);
}

static int by_lane(const void *a, const void *b)
{
    const ordo_rank_span *x = a, *y = b;
    const int64_t lx = 2 * x->rank + (x->work == ORDO_WORK_EXCHANGE);
    const int64_t ly = 2 * y->rank + (y->work == ORDO_WORK_EXCHANGE);
    return lx != ly ? (lx > ly) - (lx < ly)
                    : (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* No lane does two things at a time, and all products are there. */
TEST(spans_do_not_overlap)
{
    ordo_rank_problem p = usual;
    p.record = true;
    p.zigzag = true;
    p.mask = ORDO_MASK_CAUSAL;
    p.link_bytes_per_s = 1e10;
    p.link_ns = 1000;
    for (int m = 1; m <= ORDO_RANKS_METHODS; m++) {
        ordo_rank_timeline *t = NULL;
        CHECK_INT(ordo_rank_timeline_create(&t, &p, (ordo_rank_method)m), ORDO_OK);
        const uint64_t count = ordo_rank_span_count(t);
        ordo_rank_span *spans = calloc(count, sizeof *spans);
        double busy = 0;
        for (uint64_t i = 0; i < count; i++) {
            CHECK_INT(ordo_rank_span_at(t, i, &spans[i]), ORDO_OK);
            busy += spans[i].work == ORDO_WORK_EXCHANGE ? 0 : spans[i].end_ns - spans[i].begin_ns;
        }
        qsort(spans, count, sizeof *spans, by_lane);
        for (uint64_t i = 1; i < count; i++)
            if (by_lane(&spans[i - 1], &spans[i]) < 0 && spans[i].rank == spans[i - 1].rank &&
                (spans[i].work == ORDO_WORK_EXCHANGE) == (spans[i - 1].work == ORDO_WORK_EXCHANGE))
                CHECK(spans[i].begin_ns >= spans[i - 1].end_ns - 1e-6);
        ordo_rank_info x;
        CHECK_INT(ordo_rank_timeline_query(t, &x), ORDO_OK);
        check_near(busy, (2 + x.products) * 16 * product_ns(&p), "busy");
        ordo_rank_span unused;
        CHECK_INT(ordo_rank_span_at(t, count, &unused), ORDO_ERR_ARGUMENT);
        free(spans);
        ordo_rank_timeline_destroy(t);
    }
}

static void refuse(ordo_rank_problem p, ordo_rank_method method, ordo_status status)
{
    ordo_rank_timeline *t = NULL;
    CHECK_INT(ordo_rank_timeline_create(&t, &p, method), status);
    CHECK(t == NULL);
}

TEST(refusals)
{
    ordo_rank_problem p = usual;
    p.ranks = 3;
    refuse(p, ORDO_RANKS_HEADS, ORDO_ERR_UNSUPPORTED);
    refuse(usual, (ordo_rank_method)4, ORDO_ERR_ARGUMENT);
    p = usual, p.ranks = 0, refuse(p, ORDO_RANKS_RELAY, ORDO_ERR_ARGUMENT);
    p = usual, p.rows = -1, refuse(p, ORDO_RANKS_RELAY, ORDO_ERR_ARGUMENT);
    p = usual, p.kv_heads = 5, refuse(p, ORDO_RANKS_RELAY, ORDO_ERR_ARGUMENT);
    p = usual, p.flop_per_s = NAN, refuse(p, ORDO_RANKS_RELAY, ORDO_ERR_ARGUMENT);
    p = usual, p.link_bytes_per_s = 0, refuse(p, ORDO_RANKS_RELAY, ORDO_ERR_ARGUMENT);
    p = usual, p.link_ns = -1, refuse(p, ORDO_RANKS_RELAY, ORDO_ERR_ARGUMENT);
    p = usual, p.element_bytes = 3, refuse(p, ORDO_RANKS_RELAY, ORDO_ERR_ARGUMENT);
    p = usual, p.mask = ORDO_MASK_CAUSAL_TOP_LEFT, refuse(p, ORDO_RANKS_RELAY, ORDO_ERR_ARGUMENT);
    p = usual, p.batch = 1 << 20, p.ranks = 4096, refuse(p, ORDO_RANKS_RELAY, ORDO_ERR_UNSUPPORTED);
    CHECK_INT(ordo_rank_timeline_create(NULL, &usual, ORDO_RANKS_RELAY), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_rank_timeline_query(NULL, NULL), ORDO_ERR_ARGUMENT);
    ordo_rank_timeline_destroy(NULL);
}

CHECK_MAIN()
