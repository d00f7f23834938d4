/* segments_test.c: passes in segments of rows have the bits of passes that make the keep bits
 * inside: every rule that looks at positions, every type, any number of segments and threads; with
 * sums that the call carries, and with some of the gradients only. */
#include "attention_case.h"

enum { TILE = 64 };

/* A dense problem with dropout and random rules. */
static void draw(attention_case *c, uint64_t *seed, int most)
{
    static const int dims[] = { 8, 16, 24, 33 };
    *c = (attention_case) { .problem = ORDO_PROBLEM_INIT };
    ordo_problem *p = &c->problem;
    p->dtype = (ordo_dtype)check_between(seed, 0, 2);
    p->batch = check_between(seed, 1, 3);
    p->kv_heads = check_between(seed, 1, 2);
    p->heads = p->kv_heads * check_between(seed, 1, 3);
    p->head_dim = dims[check_between(seed, 0, 3)];
    p->v_head_dim = dims[check_between(seed, 0, 3)];
    p->q_len = check_between(seed, 1, most);
    p->kv_len = check_between(seed, 0, 1) ? p->q_len : check_between(seed, 1, most);
    case_draw_rules(p, seed);
    p->dropout.p = 0.17;
    p->dropout.keying = check_between(seed, 0, 3) ? ORDO_KEYING_ORDO : ORDO_KEYING_FA2;
    if (check_between(seed, 0, 3) == 0) { /* some rows of longer sequences */
        p->shard.row0 = 16 * check_between(seed, 1, 9);
        p->shard.q_total = p->shard.row0 + p->q_len + check_between(seed, 0, 40);
        p->shard.kv_total = p->kv_len;
    }
    c->dlse = check_between(seed, 0, 2) ? NULL : (float *)1;
    for (int b = 0; b < p->batch; b++)
        c->ids[b] = 5 + 3 * b;
    case_open(c, check_random(seed) >> 1);
}

static ordo_plan_options segments_of(int64_t segments)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.segments = segments;
    return options;
}

/* Every number of segments up to `most` that the rows allow. */
static void check_segments(attention_case *c, ordo_plan_options options, int64_t most, int threads)
{
    ordo_plan *whole = case_plan(c, &options), *plan;
    CHECK_INT(case_run(c, whole, 2), ORDO_OK);
    case_results one = case_keep(c);
    const int64_t tiles = (c->problem.q_len + TILE - 1) / TILE;
    for (int64_t n = 1; n <= most && n <= tiles; n++) {
        const int64_t each = (tiles + n - 1) / n;
        if ((tiles + each - 1) / each != n)
            continue;
        options.segments = n;
        plan = case_plan(c, &options);
        CHECK_INT(case_run(c, plan, threads), ORDO_OK);
        if (!case_same(c, &one, "segments"))
            printf("    %d segments, %d threads\n", (int)n, threads);
        ordo_plan_destroy(plan);
    }
    case_drop(&one);
    ordo_plan_destroy(whole);
}

TEST(any_number_of_segments)
{
    uint64_t seed = case_seed(240);
    for (int x = 0; x < 30; x++) {
        attention_case c;
        draw(&c, &seed, 330);
        check_segments(&c, segments_of(0), 6, 1 + x % 4);
        case_close(&c);
    }
}

/* Many short segments, and walks against the default. */
TEST(orders)
{
    static const ordo_order orders[] = { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING,
                                         ORDO_ORDER_SPT };
    uint64_t seed = case_seed(241);
    for (int x = 0; x < 6; x++) {
        attention_case c;
        ordo_plan_options options = segments_of(0);
        options.order = orders[x % 3];
        draw(&c, &seed, 700);
        check_segments(&c, options, 11, 2);
        case_close(&c);
    }
}

/* A whole sequence of more than two tiles. */
static void draw_long(attention_case *c, uint64_t *seed)
{
    draw(c, seed, 330);
    while (c->problem.q_len <= 2 * TILE || c->problem.shard.row0 > 0) {
        case_close(c);
        draw(c, seed, 330);
    }
}

/* Copy a contiguous tensor of queries to one of (batch, head, row, dim). */
static void swap_heads(const attention_case *c, const void *from, void *to)
{
    const ordo_problem *p = &c->problem;
    const size_t row = (size_t)p->head_dim * case_width(c);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < p->q_len; i++)
            for (int64_t h = 0; h < p->heads; h++)
                memcpy((char *)to + (size_t)((b * p->heads + h) * p->q_len + i) * row,
                       (const char *)from + (size_t)((b * p->q_len + i) * p->heads + h) * row, row);
}

TEST(strides)
{
    uint64_t seed = case_seed(242);
    attention_case c;
    draw_long(&c, &seed);
    const ordo_problem *p = &c.problem;
    const ordo_plan_options options = segments_of(2);
    ordo_plan *whole = case_plan(&c, NULL), *plan = case_plan(&c, &options);
    CHECK_INT(case_run(&c, whole, 2), ORDO_OK);
    case_results one = case_keep(&c);
    const size_t bytes = c.q_count * case_width(&c);
    void *const copy = case_alloc(c.q_count, case_width(&c));
    const int64_t stride[] = { p->q_len * p->heads * p->head_dim, p->head_dim,
                               p->q_len * p->head_dim, 1 };
    memcpy(c.call.q.stride, stride, sizeof stride);
    memcpy(c.call.dq.stride, stride, sizeof stride);
    memcpy(copy, c.call.q.data, bytes);
    swap_heads(&c, copy, c.call.q.data);
    memcpy(copy, one.data[2], bytes);
    swap_heads(&c, copy, one.data[2]);
    CHECK_INT(case_run(&c, plan, 2), ORDO_OK);
    case_same(&c, &one, "strides");
    free(copy);
    case_drop(&one);
    ordo_plan_destroy(plan);
    ordo_plan_destroy(whole);
    case_close(&c);
}

static void backward(attention_case *c, const ordo_plan *plan)
{
    const size_t bytes = ordo_plan_workspace(plan);
    c->call.workspace = aligned_alloc(256, (bytes + 511) / 256 * 256);
    c->call.workspace_bytes = bytes;
    if (ordo_attention_backward(plan, &c->call) != ORDO_OK)
        CHECK_FAIL("backward: %s", ordo_last_error());
    free(c->call.workspace);
    c->call.workspace = NULL;
}

/* dq alone, dk and dv alone; and sums that come from the call and go back to it. */
TEST(some_gradients_and_carried_sums)
{
    uint64_t seed = case_seed(243);
    for (int x = 0; x < 4; x++) {
        attention_case c;
        draw_long(&c, &seed);
        ordo_plan_options options = segments_of(2);
        ordo_plan *whole = case_plan(&c, NULL), *plan = case_plan(&c, &options);
        CHECK_INT(case_run(&c, whole, 2), ORDO_OK);
        case_results one = case_keep(&c);
        void *const dq = c.call.dq.data, *const dk = c.call.dk.data, *const dv = c.call.dv.data;
        const size_t width = case_width(&c);
        memset(dq, CASE_POISON, c.q_count * width);
        c.call.dk.data = c.call.dv.data = NULL;
        backward(&c, plan);
        c.call.dq.data = NULL, c.call.dk.data = dk, c.call.dv.data = dv;
        memset(dk, CASE_POISON, c.k_count * width);
        backward(&c, plan);
        c.call.dq.data = dq;
        case_same(&c, &one, "some gradients");

        float *const sums[] = { case_alloc(c.k_count, 4), case_alloc(c.v_count, 4),
                                case_alloc(c.k_count, 4), case_alloc(c.v_count, 4) };
        for (int in = 0; in < 2; in++) {
            for (int segmented = 0; segmented < 2; segmented++) {
                c.call.carry = in ? ORDO_CARRY_IN : ORDO_CARRY_OUT;
                c.call.dk_sums = sums[2 * segmented], c.call.dv_sums = sums[2 * segmented + 1];
                c.call.dk.data = in ? dk : NULL, c.call.dv.data = in ? dv : NULL;
                backward(&c, segmented ? plan : whole);
                if (in && !segmented) {
                    memcpy(one.data[3], dk, c.k_count * width);
                    memcpy(one.data[4], dv, c.v_count * width);
                }
            }
            CHECK(in || memcmp(sums[0], sums[2], c.k_count * 4) == 0);
            CHECK(in || memcmp(sums[1], sums[3], c.v_count * 4) == 0);
        }
        case_same(&c, &one, "carried sums");
        c.call.carry = 0;
        for (int i = 0; i < 4; i++)
            free(sums[i]);
        case_drop(&one);
        ordo_plan_destroy(plan);
        ordo_plan_destroy(whole);
        case_close(&c);
    }
}

/* The workspace that a plan asks for is enough, and no byte more is touched. */
TEST(workspace)
{
    uint64_t seed = case_seed(244);
    attention_case c;
    draw_long(&c, &seed);
    ordo_plan_options options = segments_of(2);
    ordo_plan *plan = case_plan(&c, &options);
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    CHECK_INT(ordo_plan_query(plan, &info), ORDO_OK);
    const size_t bytes = ordo_plan_workspace(plan);
    unsigned char *memory = aligned_alloc(256, (bytes + 511) / 256 * 256);
    memset(memory, 0x77, (bytes + 511) / 256 * 256);
    c.call.workspace = memory;
    c.call.workspace_bytes = info.forward_workspace_bytes;
    CHECK_INT(ordo_attention_forward(plan, &c.call), ORDO_OK);
    for (size_t i = info.forward_workspace_bytes; i < bytes; i++)
        if (memory[i] != 0x77) {
            CHECK_FAIL("forward pass: byte %zu of %zu", i, (size_t)info.forward_workspace_bytes);
            break;
        }
    c.call.workspace_bytes = bytes;
    CHECK_INT(ordo_attention_backward(plan, &c.call), ORDO_OK);
    for (size_t i = bytes; i < (bytes + 511) / 256 * 256; i++)
        CHECK_INT(memory[i], 0x77);
    c.call.workspace_bytes--;
    CHECK_INT(ordo_attention_backward(plan, &c.call), ORDO_ERR_SHAPE);
    c.call.workspace_bytes++;
    uint32_t bits[64] = { 0 };
    c.call.keep_bits = bits;
    CHECK_REFUSED(ordo_attention_forward(plan, &c.call), ORDO_ERR_ARGUMENT,
                  "keep_bits given: expected NULL, because this plan makes");
    c.call.keep_bits = NULL;
    float sink[CASE_SLOPES] = { 0 }, dsink[CASE_SLOPES] = { 0 };
    c.call.sink = sink;
    c.call.dsink = dsink;
    CHECK_REFUSED(ordo_attention_backward(plan, &c.call), ORDO_ERR_UNSUPPORTED,
                  "dsink given: expected NULL, because this plan runs");
    c.call.dsink = NULL;
    CHECK_INT(ordo_attention_forward(plan, &c.call), ORDO_OK);
    free(memory);
    ordo_plan_destroy(plan);
    case_close(&c);
}

CHECK_MAIN(RUN(any_number_of_segments), RUN(orders), RUN(strides),
           RUN(some_gradients_and_carried_sums), RUN(workspace))
