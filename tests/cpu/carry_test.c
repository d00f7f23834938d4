/* carry_test.c: a backward pass over some rows that continues the sums of the part before it, and
 * passes that compute only dq, or only dk and dv.
 *
 * However the rows of a sequence are cut at tiles, its parts in the order of the plan have the bits
 * of one pass: every rule that looks at global positions, every type, heads that share keys, and
 * head sizes whose row tiles go together; with any number of threads. */
#include "attention_case.h"
#include "cpu/pass.h"

enum { PARTS_MAX = 5, TILE = 64 };

/* ---- parts of a dense case ---- */

/* Copy the part's rows of a tensor of queries, and of one like lse. */
static void take_rows(const attention_case *whole, const attention_case *part, int64_t dim,
                      const void *from, void *to, int64_t first)
{
    const ordo_problem *p = &part->problem;
    const size_t row = (size_t)(p->heads * dim) * case_width(whole);
    for (int64_t b = 0; b < p->batch; b++)
        memcpy((char *)to + (size_t)(b * p->q_len) * row,
               (const char *)from + (size_t)(b * whole->problem.q_len + first) * row,
               (size_t)p->q_len * row);
}

static void take_lines(const attention_case *whole, const attention_case *part, const float *from,
                       float *to, int64_t first)
{
    const ordo_problem *p = &part->problem;
    for (int64_t line = 0; line < p->batch * p->heads; line++)
        memcpy(to + line * p->q_len, from + line * whole->problem.q_len + first,
               (size_t)p->q_len * sizeof *to);
}

/* Blocks of keep bits are stored by head, then block row: a part has some block rows of each. */
static void take_bits(const attention_case *whole, attention_case *part, int64_t first)
{
    const ordo_problem *w = &whole->problem, *p = &part->problem;
    const int64_t all = ordo_keep_blocks(w->q_len, w->kv_len);
    const int64_t some = ordo_keep_blocks(p->q_len, p->kv_len);
    const int64_t before = first > 0 ? ordo_keep_blocks(first, w->kv_len) : 0;
    part->bits = case_alloc((size_t)(p->batch * p->heads * some) * ORDO_KEEP_WORDS, 4);
    for (int64_t head = 0; head < p->batch * p->heads; head++)
        memcpy(part->bits + head * some * ORDO_KEEP_WORDS,
               whole->bits + (head * all + before) * ORDO_KEEP_WORDS,
               (size_t)(some * ORDO_KEEP_WORDS) * 4);
    part->call.keep_bits = part->bits;
}

/* Rows first .. end - 1 of a dense case that has run, with the whole's o, lse and keys. */
static void part_open(attention_case *part, const attention_case *whole, int64_t first, int64_t end)
{
    *part = (attention_case) { .problem = whole->problem, .dlse = whole->dlse };
    memcpy(part->ids, whole->ids, sizeof part->ids);
    part->problem.q_len = end - first;
    part->problem.shard.row0 = first;
    part->problem.shard.q_total = whole->problem.q_len;
    part->problem.shard.kv_total = whole->problem.kv_len;
    case_open(part, 1);
    const ordo_problem *p = &part->problem;
    take_rows(whole, part, p->head_dim, whole->call.q.data, part->call.q.data, first);
    take_rows(whole, part, p->v_head_dim, whole->call.o.data, part->call.o.data, first);
    take_rows(whole, part, p->v_head_dim, whole->call.dout.data, part->call.dout.data, first);
    take_lines(whole, part, whole->call.lse, part->call.lse, first);
    if (whole->dlse)
        take_lines(whole, part, whole->dlse, part->dlse, first);
    memcpy(part->call.k.data, whole->call.k.data, whole->k_count * case_width(whole));
    memcpy(part->call.v.data, whole->call.v.data, whole->v_count * case_width(whole));
    part->call.slopes_batch_stride = whole->call.slopes_batch_stride;
    part->call.seed = whole->call.seed;
    if (whole->bits)
        take_bits(whole, part, first);
}

/* ---- running ---- */

typedef struct sums {
    float *dk, *dv;
} sums;

static sums sums_open(const attention_case *c)
{
    return (sums) { case_alloc(c->k_count, 4), case_alloc(c->v_count, 4) };
}
static void sums_close(sums *s)
{
    free(s->dk);
    free(s->dv);
}

/* The backward pass alone; outputs and workspace keep what they had. */
static void backward(attention_case *c, const ordo_plan *plan, int threads)
{
    const size_t bytes = ordo_plan_workspace(plan);
    c->call.workspace = case_alloc(bytes + 256, 1);
    void *memory = c->call.workspace;
    c->call.workspace = (char *)memory + (256 - (uintptr_t)memory % 256) % 256;
    c->call.workspace_bytes = bytes;
    c->call.threads = threads;
    if (ordo_attention_backward(plan, &c->call) != ORDO_OK) {
        CHECK_FAIL("backward: %s", ordo_last_error());
        case_print(c);
    }
    free(memory);
    c->call.workspace = NULL;
}

static unsigned carry_of(int number, int parts)
{
    return (number > 0 ? ORDO_CARRY_IN : 0u) | (number + 1 < parts ? ORDO_CARRY_OUT : 0u);
}

static bool upwards(const ordo_plan *plan)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    CHECK_INT(ordo_plan_query(plan, &info), ORDO_OK);
    return info.order != ORDO_ORDER_DESCENDING;
}

/* All rows of a case in `parts` parts, in the order of its plan, against the results `one` of one
 * pass. `only` keeps dq out, and runs it as passes of its own. */
static void check_parts(const attention_case *whole, const case_results *one,
                        const ordo_plan_options *options, int parts, int threads, bool only)
{
    const int64_t rows = whole->problem.q_len, tiles = (rows + TILE - 1) / TILE;
    const size_t width = case_width(whole);
    attention_case joined = *whole; /* its results, put together */
    sums s = sums_open(whole);
    joined.call.dq.data = case_alloc(whole->q_count, width);
    joined.call.dk.data = case_alloc(whole->k_count, width);
    joined.call.dv.data = case_alloc(whole->v_count, width);
    for (int x = 0; x < parts; x++) {
        attention_case part;
        ordo_plan *plan = case_plan(whole, options);
        const int number = upwards(plan) ? x : parts - 1 - x;
        ordo_plan_destroy(plan);
        const int64_t first = TILE * (tiles * number / parts);
        const int64_t last = TILE * (tiles * (number + 1) / parts);
        part_open(&part, whole, first, last < rows ? last : rows);
        plan = case_plan(&part, options);
        void *const dq = part.call.dq.data, *const dk = part.call.dk.data;
        void *const dv = part.call.dv.data;
        if (only) {
            part.call.dk.data = part.call.dv.data = NULL;
            backward(&part, plan, threads);
            part.call.dq.data = NULL;
        }
        part.call.carry = carry_of(x, parts);
        part.call.dk_sums = part.call.carry ? s.dk : NULL;
        part.call.dv_sums = part.call.carry ? s.dv : NULL;
        const bool ends = x + 1 == parts;
        part.call.dk.data = ends ? dk : NULL;
        part.call.dv.data = ends ? dv : NULL;
        backward(&part, plan, threads);
        part.call.dq.data = dq;
        part.call.dk.data = dk;
        part.call.dv.data = dv;
        const size_t row = (size_t)(whole->problem.heads * whole->problem.head_dim) * width;
        for (int64_t b = 0; b < whole->problem.batch; b++)
            memcpy((char *)joined.call.dq.data + (size_t)(b * rows + first) * row,
                   (char *)dq + (size_t)(b * part.problem.q_len) * row,
                   (size_t)part.problem.q_len * row);
        if (ends) {
            memcpy(joined.call.dk.data, dk, whole->k_count * width);
            memcpy(joined.call.dv.data, dv, whole->v_count * width);
        }
        ordo_plan_destroy(plan);
        case_close(&part);
    }
    if (!case_same(&joined, one, "parts"))
        printf("    %d parts, %d threads\n", parts, threads);
    free(joined.call.dq.data);
    free(joined.call.dk.data);
    free(joined.call.dv.data);
    sums_close(&s);
}

static void check_cuts(attention_case *c, const ordo_plan_options *options, int threads)
{
    static const int counts[] = { 1, 2, 3, 5 };
    ordo_plan *plan = case_plan(c, options);
    const case_results one = case_first(c, plan, 2);
    for (int x = 0; x < 4; x++)
        check_parts(c, &one, options, counts[x], threads, x % 2);
    case_results drop = one;
    case_drop(&drop);
    ordo_plan_destroy(plan);
}

/* A dense problem of random rules. */
static void dense(attention_case *c, uint64_t *seed)
{
    static const int dims[] = { 8, 16, 24, 33 };
    *c = (attention_case) { .problem = ORDO_PROBLEM_INIT };
    ordo_problem *p = &c->problem;
    p->dtype = (ordo_dtype)check_between(seed, 0, 2);
    p->batch = check_between(seed, 1, 2);
    p->kv_heads = check_between(seed, 1, 2);
    p->heads = p->kv_heads * check_between(seed, 1, 3);
    p->head_dim = dims[check_between(seed, 0, 3)];
    p->v_head_dim = dims[check_between(seed, 0, 3)];
    p->q_len = check_between(seed, 1, 330);
    p->kv_len = check_between(seed, 0, 1) ? p->q_len : check_between(seed, 1, 400);
    case_draw_rules(p, seed);
    p->dropout.p = check_between(seed, 0, 1) ? 0.17 : 0;
    c->dlse = check_between(seed, 0, 2) ? NULL : (float *)1;
    for (int b = 0; b < p->batch; b++)
        c->ids[b] = 5 + 3 * b;
    case_open(c, check_random(seed) >> 1);
    if (p->dropout.p > 0 && check_between(seed, 0, 1))
        case_store_bits(c, seed);
}

/* Row tiles that go through a step together: the groups begin elsewhere in each part. */
TEST(large_heads)
{
    uint64_t seed = case_seed(182);
    for (int x = 0; x < 3; x++) {
        attention_case c = { .problem = ORDO_PROBLEM_INIT };
        c.problem.dtype = (ordo_dtype)x;
        c.problem.batch = 1;
        c.problem.heads = c.problem.kv_heads = 1;
        c.problem.q_len = c.problem.kv_len = 64 * 17 + 5;
        c.problem.head_dim = c.problem.v_head_dim = 24;
        c.problem.mask = x == 1 ? ORDO_MASK_FULL : ORDO_MASK_CAUSAL;
        ordo_cpu_phase_force(16);
        case_open(&c, check_random(&seed) >> 1);
        check_cuts(&c, NULL, 1 + 2 * x);
        ordo_cpu_phase_force(0);
        case_close(&c);
    }
    attention_case c = { .problem = ORDO_PROBLEM_INIT };
    c.problem.batch = c.problem.heads = c.problem.kv_heads = 1;
    c.problem.q_len = c.problem.kv_len = 330;
    c.problem.head_dim = 576;
    c.problem.v_head_dim = 512;
    case_open(&c, 3);
    check_cuts(&c, NULL, 2);
    case_close(&c);
}

/* Infinities and NaN reach the same gradients. */
TEST(not_finite)
{
    uint64_t seed = case_seed(183);
    for (int x = 0; x < 6; x++) {
        attention_case c;
        dense(&c, &seed);
        case_put(&c, x % 2 ? c.call.q.data : c.call.dout.data, 3, x < 3 ? NAN : INFINITY);
        case_put(&c, c.call.k.data, c.k_count - 1, INFINITY);
        check_cuts(&c, NULL, 2);
        case_close(&c);
    }
}

/* ---- what the sums are ---- */

/* A part that sees no key leaves the sums; the first part writes 0; the last writes dk and dv. */
TEST(unseen_keys_keep_their_sums)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT };
    ordo_problem *p = &c.problem;
    p->dtype = ORDO_BF16;
    p->batch = 1;
    p->heads = p->kv_heads = 1;
    p->q_len = 64;
    p->kv_len = 256;
    p->head_dim = p->v_head_dim = 8;
    p->mask = ORDO_MASK_CAUSAL_TOP_LEFT; /* keys from 64 on are not visible */
    case_open(&c, 9);
    ordo_plan *plan = case_plan(&c, NULL);
    CHECK_INT(case_run(&c, plan, 1), ORDO_OK);
    sums s = sums_open(&c);
    c.call.dk_sums = s.dk;
    c.call.dv_sums = s.dv;
    c.call.carry = ORDO_CARRY_OUT;
    backward(&c, plan, 2);
    const float seen = s.dv[0];
    CHECK(seen != 0 && s.dv[64 * 8] == 0 && s.dk[255 * 8] == 0);
    s.dv[200 * 8] = 0.75f;
    s.dk[200 * 8] = 3;
    c.call.carry = ORDO_CARRY_IN | ORDO_CARRY_OUT;
    backward(&c, plan, 2);
    CHECK(s.dv[200 * 8] == 0.75f && s.dk[200 * 8] == 3 && s.dv[0] != seen);
    c.call.carry = ORDO_CARRY_IN;
    backward(&c, plan, 2);
    CHECK_NEAR(case_get(&c, c.call.dv.data, 200 * 8), 0.75, 0);
    CHECK_NEAR(case_get(&c, c.call.dk.data, 200 * 8),
               (double)ordo_f32_from_bf16(ordo_bf16_from_f32(3 * (float)(1 / sqrt(8)))), 0);
    sums_close(&s);
    ordo_plan_destroy(plan);
    case_close(&c);
}

/* Rows 0: nothing is computed, but sums are still begun, left and rounded. */
TEST(parts_without_rows)
{
    for (int dtype = 0; dtype < 3; dtype++) {
        attention_case c = { .problem = ORDO_PROBLEM_INIT };
        ordo_problem *p = &c.problem;
        p->dtype = (ordo_dtype)dtype;
        p->batch = 2;
        p->heads = p->kv_heads = 1;
        p->q_len = 0;
        p->kv_len = 40;
        p->head_dim = p->v_head_dim = 8;
        p->scale = 0.5;
        case_open(&c, 9);
        ordo_plan *plan = case_plan(&c, NULL);
        sums s = sums_open(&c);
        c.call.dk_sums = s.dk;
        c.call.dv_sums = s.dv;
        c.call.carry = ORDO_CARRY_OUT;
        backward(&c, plan, 1);
        for (size_t x = 0; x < c.k_count; x++)
            CHECK(s.dk[x] == 0 && s.dv[x] == 0);
        for (size_t x = 0; x < c.k_count; x++)
            s.dk[x] = 2, s.dv[x] = (float)x;
        c.call.carry = ORDO_CARRY_IN | ORDO_CARRY_OUT;
        backward(&c, plan, 1);
        c.call.carry = ORDO_CARRY_IN;
        backward(&c, plan, 1);
        CHECK_NEAR(case_get(&c, c.call.dk.data, c.k_count - 1), 1, 0);
        CHECK_NEAR(case_get(&c, c.call.dv.data, 128), 128, 0);
        sums_close(&s);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

/* The oracle writes the gradients that are asked for. */
TEST(some_gradients_of_the_oracle)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT };
    c.problem.batch = c.problem.heads = c.problem.kv_heads = 1;
    c.problem.q_len = c.problem.kv_len = 20;
    c.problem.head_dim = c.problem.v_head_dim = 4;
    case_open(&c, 2);
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.backend = ORDO_BACKEND_REF;
    ordo_plan *plan = NULL;
    CHECK_INT(ordo_plan_create(&plan, &c.problem, NULL, &options), ORDO_OK);
    const case_results one = case_first(&c, plan, 1);
    void *const dq = c.call.dq.data, *const dk = c.call.dk.data, *const dv = c.call.dv.data;
    memset(dq, 0, 4);
    c.call.dk.data = c.call.dv.data = NULL;
    backward(&c, plan, 1);
    memset(dk, 0, 4);
    c.call.dq.data = NULL;
    c.call.dk.data = dk;
    c.call.dv.data = dv;
    backward(&c, plan, 1);
    c.call.dq.data = dq;
    case_same(&c, &one, "one gradient after the other");
    case_results drop = one;
    case_drop(&drop);
    ordo_plan_destroy(plan);
    case_close(&c);
}

CHECK_MAIN()
