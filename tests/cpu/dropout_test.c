/* dropout_test.c: the CPU backend drops the elements that ordo_keep_element() names, forward and
 * backward, whether it makes their bits or is given them. */
#include "attention_case.h"
#include "ordo/dropout.h"

/* With values of the unit matrix, o is P * keep; with dout of the unit matrix, dv is its
 * transpose. So both passes show which elements they dropped. */
static void open_bare(attention_case *c)
{
    const ordo_problem *p = &c->problem;
    case_open(c, 60);
    for (int64_t b = 0; b < p->batch; b++) {
        for (int64_t h = 0; h < p->kv_heads; h++)
            for (int64_t j = 0; j < p->kv_len; j++)
                for (int64_t d = 0; d < p->v_head_dim; d++)
                    case_put(c, c->call.v.data,
                             case_at(c, true, p->v_head_dim, b, j, h) + (size_t)d, j == d);
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->q_len; i++)
                for (int64_t d = 0; d < p->v_head_dim; d++)
                    case_put(c, c->call.dout.data,
                             case_at(c, false, p->v_head_dim, b, i, h) + (size_t)d, i == d);
    }
}

static void check_pattern(attention_case *c)
{
    ordo_problem p = { .size = sizeof p };
    ordo_plan *plan = case_plan(c, NULL);
    CHECK(ordo_plan_problem(plan, &p) == ORDO_OK);
    open_bare(c);
    CHECK(case_run(c, plan, 2) == ORDO_OK);
    ordo_plan_destroy(plan);
    const ordo_keep keep = ordo_keep_of(&p.dropout, c->call.seed, c->call.offset);
    int64_t kept = 0, seen = 0, wrong = 0;
    for (int64_t b = 0; b < p.batch; b++)
        for (int64_t h = 0; h < p.heads; h++) {
            const uint32_t bh = (uint32_t)(c->ids[b] * p.shard.heads_total + p.shard.head0 + h);
            for (int64_t i = 0; i < p.q_len; i++)
                for (int64_t j = 0; j < p.kv_len; j++) {
                    const int64_t right =
                        j + p.shard.col0 - i - p.shard.row0 - (p.shard.kv_total - p.shard.q_total);
                    const bool visible = p.mask == ORDO_MASK_FULL || right <= 0;
                    const bool expected =
                        visible && ordo_keep_element(&keep, bh, (uint32_t)(i + p.shard.row0),
                                                     (uint32_t)(j + p.shard.col0));
                    const size_t o = case_at(c, false, p.v_head_dim, b, i, h) + (size_t)j;
                    const size_t dv = case_at(c, true, p.v_head_dim, b, j, h) + (size_t)i;
                    wrong += (case_get(c, c->call.o.data, o) != 0) != expected;
                    wrong += (case_get(c, c->call.dv.data, dv) != 0) != expected;
                    kept += expected;
                    seen += visible;
                }
        }
    CHECK_INT(wrong, 0);
    const double rate = 1 - (double)kept / (double)seen; /* of some 1e5 draws */
    CHECK_NEAR(rate, p.dropout.p, 0.02 + 1.0 / (2 << p.dropout.bits));
    case_close(c);
}

TEST(dropped_elements_are_those_of_the_definition)
{
    static const double ps[] = { 0.1, 0.17, 0.5, 0.9 };
    for (int x = 0; x < 12; x++) {
        attention_case c = { .problem = ORDO_PROBLEM_INIT };
        ordo_problem *p = &c.problem;
        p->dtype = (ordo_dtype)(x % 3);
        p->batch = 2;
        p->heads = p->kv_heads = 2;
        p->q_len = 150 + x;
        p->kv_len = 300 - 5 * x;
        p->head_dim = 8;
        p->v_head_dim = 300;
        p->mask = (ordo_mask)(x % 2);
        p->dropout.p = ps[x % 4];
        p->dropout.keying = x % 4 == 3 ? ORDO_KEYING_FA2 : ORDO_KEYING_ORDO;
        p->dropout.rounds = x % 3 == 0 && x % 4 != 3 ? 10 : 7;
        p->dropout.bits = x % 5 == 2 && x % 4 != 3 ? 12 : 8;
        p->shard.heads_total = 10;
        p->shard.head0 = x % 3;
        if (x >= 6) { /* a piece of longer sequences, all of whose elements are visible */
            p->shard.row0 = 16 * x;
            p->shard.col0 = 128;
            p->shard.q_total = 1000;
            p->shard.kv_total = 1000 + 600;
        }
        c.ids[0] = x;
        c.ids[1] = 77;
        check_pattern(&c);
    }
}

/* Another seed, offset or sequence has other keep bits. */
TEST(what_must_change_the_bits)
{
    for (int what = 0; what < 3; what++) {
        attention_case c = { .problem = ORDO_PROBLEM_INIT };
        c.problem.batch = c.problem.heads = c.problem.kv_heads = 1;
        c.problem.q_len = c.problem.kv_len = 60;
        c.problem.head_dim = c.problem.v_head_dim = 16;
        c.problem.dropout.p = 0.5;
        case_open(&c, 62);
        ordo_plan *plan = case_plan(&c, NULL);
        case_results one = case_first(&c, plan, 1);
        c.call.seed += what == 0;
        c.call.offset += what == 1;
        c.ids[0] += what == 2;
        CHECK(case_run(&c, plan, 1) == ORDO_OK);
        int same = 0;
        for (size_t x = 0; x < c.o_count; x++)
            same += ((const float *)one.data[0])[x] == ((const float *)c.call.o.data)[x];
        CHECK(same < 20);
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

CHECK_MAIN()
