/* place_test.c: the bits of a sequence and of a head do not depend on where they sit on the CPU
 * backend: alone or in a batch, at any position, packed, padded or dense, in any shard. */
#include "attention_case.h"

static void run(attention_case *c, int threads)
{
    ordo_plan *plan = case_plan(c, NULL);
    if (case_run(c, plan, threads) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_plan_destroy(plan);
}

/* Sequences `which` of `all` as a case of their own, run; `room` rows more than they need if
 * padded. Dense: they must be of equal lengths. */
static void pick(attention_case *c, const attention_case *all, const int *which, int count,
                 ordo_layout layout, int room)
{
    *c = (attention_case) { .problem = all->problem,
                            .dlse = all->dlse ? (float *)1 : NULL,
                            .sinks = all->sinks };
    ordo_problem *p = &c->problem;
    p->layout = layout;
    p->batch = count;
    p->q_len = p->kv_len = 1;
    p->total_q = p->total_kv = 0;
    for (int b = 0; b < count; b++) {
        c->ids[b] = all->ids[which[b]];
        c->q_lens[b] = all->q_lens[which[b]];
        c->kv_lens[b] = all->kv_lens[which[b]];
        c->cu_q[b + 1] = c->cu_q[b] + c->q_lens[b];
        c->cu_kv[b + 1] = c->cu_kv[b] + c->kv_lens[b];
        p->q_len = c->q_lens[b] > p->q_len ? c->q_lens[b] : p->q_len;
        p->kv_len = c->kv_lens[b] > p->kv_len ? c->kv_lens[b] : p->kv_len;
    }
    if (layout == ORDO_PACKED) {
        p->total_q = c->cu_q[count];
        p->total_kv = c->cu_kv[count];
    } else if (layout == ORDO_PADDED) {
        p->q_len += room;
        p->kv_len += 2 * room;
    }
    case_open(c, all->call.seed);
    run(c, 1 + count % 3);
}

/* A padded batch of sequences at random, lengths 0 among them, run. */
static void open_batch(attention_case *c, uint64_t *seed, int batch, int most)
{
    case_random(c, seed, most); /* for its features */
    const ordo_problem features = c->problem;
    const bool dlse = c->dlse != NULL, sinks = c->sinks;
    const uint64_t values = c->call.seed;
    case_close(c);
    *c = (attention_case) { .problem = features, .dlse = dlse ? (float *)1 : NULL, .sinks = sinks };
    c->problem.layout = ORDO_PADDED;
    c->problem.batch = batch;
    c->problem.total_q = c->problem.total_kv = 0;
    case_random_lengths(c, seed);
    case_open(c, values);
    run(c, 2);
}

static bool empty(const attention_case *c, int b)
{
    return c->q_lens[b] == 0 || c->kv_lens[b] == 0;
}

static void compare(const attention_case *all, const int *which, int count, ordo_layout layout,
                    int room)
{
    attention_case c;
    pick(&c, all, which, count, layout, room);
    for (int b = 0; b < count; b++)
        case_same_sequence(&c, b, all, which[b]);
    case_close(&c);
}

TEST(alone_or_in_a_batch)
{
    uint64_t seed = case_seed(50);
    for (int trial = 0; trial < 25; trial++) {
        attention_case all;
        open_batch(&all, &seed, 4, trial % 5 ? 60 : 250);
        for (int b = 0; b < 4; b++) {
            compare(&all, &b, 1, ORDO_PADDED, 0);
            compare(&all, &b, 1, ORDO_PADDED, 33);
            if (empty(&all, b))
                continue;
            compare(&all, &b, 1, ORDO_PACKED, 0);
            compare(&all, &b, 1, ORDO_DENSE, 0);
        }
        case_close(&all);
    }
}

TEST(at_every_position)
{
    static const int orders[][4] = { { 3, 0, 1, 2 }, { 2, 3, 0, 1 }, { 1, 2, 3, 0 },
                                     { 3, 2, 1, 0 }, { 0, 0, 1, 0 }, { 2, 1, 2, 2 } };
    uint64_t seed = case_seed(51);
    for (int trial = 0; trial < 12; trial++) {
        attention_case all;
        open_batch(&all, &seed, 4, trial % 4 ? 60 : 200);
        for (int x = 0; x < 6; x++) {
            int rows = 0, cols = 0;
            for (int b = 0; b < 4; b++) {
                rows += all.q_lens[orders[x][b]];
                cols += all.kv_lens[orders[x][b]];
            }
            compare(&all, orders[x], 4, ORDO_PADDED, 5);
            if (rows > 0 && cols > 0)
                compare(&all, orders[x], 4, ORDO_PACKED, 0);
        }
        case_close(&all);
    }
}

/* N problems of one sequence are one problem of N; the ids by value or from batch0. */
TEST(dense_batch_or_one_by_one)
{
    uint64_t seed = case_seed(52);
    for (int trial = 0; trial < 20; trial++) {
        attention_case all;
        open_batch(&all, &seed, 1, trial % 4 ? 60 : 200);
        attention_case batch = { .problem = all.problem,
                                 .dlse = all.dlse ? (float *)1 : NULL,
                                 .sinks = all.sinks };
        batch.problem.layout = ORDO_DENSE;
        batch.problem.batch = 5;
        for (int b = 0; b < 5; b++) {
            batch.ids[b] = 9 + b;
            batch.q_lens[b] = (int32_t)all.problem.q_len;
            batch.kv_lens[b] = (int32_t)all.problem.kv_len;
        }
        case_open(&batch, all.call.seed);
        run(&batch, 3);
        for (int b = 0; b < 5; b++) {
            attention_case one;
            pick(&one, &batch, &b, 1, ORDO_DENSE, 0);
            case_same_sequence(&one, 0, &batch, b);
            one.problem.shard.batch0 = 9 + b;
            one.call.sequence_ids = NULL;
            run(&one, 1);
            case_same_sequence(&one, 0, &batch, b);
            case_close(&one);
        }
        case_close(&batch);
        case_close(&all);
    }
}

/* Whole groups of heads that share a key head, on any number of ranks. */
TEST(heads_over_shards)
{
    uint64_t seed = case_seed(53);
    for (int trial = 0; trial < 25; trial++) {
        attention_case all;
        case_random(&all, &seed, trial % 5 ? 50 : 200);
        const int64_t group = check_between(&seed, 1, 3), kv_heads = check_between(&seed, 2, 9);
        const ordo_problem features = all.problem;
        const bool dlse = all.dlse != NULL;
        attention_case whole = all; /* its lengths and ids */
        case_close(&all);
        whole.bits = NULL;
        whole.dlse = dlse ? (float *)1 : NULL;
        whole.problem.heads = kv_heads * group;
        whole.problem.kv_heads = kv_heads;
        whole.problem.shard = (ordo_shard) { 0 };
        case_open(&whole, all.call.seed);
        run(&whole, 2);
        for (int64_t first = 0, held; first < kv_heads; first += held) {
            held = check_between(&seed, 1, kv_heads - first);
            attention_case part = whole;
            part.dlse = dlse ? (float *)1 : NULL;
            part.problem.heads = held * group;
            part.problem.kv_heads = held;
            part.problem.shard.head0 = first * group;
            part.problem.shard.heads_total = kv_heads * group;
            case_open(&part, whole.call.seed);
            run(&part, 1 + (int)held % 3);
            for (int64_t b = 0; b < features.batch; b++)
                case_same_sequence(&part, b, &whole, b);
            case_close(&part);
        }
        case_close(&whole);
    }
}

CHECK_MAIN(RUN(alone_or_in_a_batch), RUN(at_every_position), RUN(dense_batch_or_one_by_one),
           RUN(heads_over_shards))
