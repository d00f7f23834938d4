/* seen_test.c: element masks on the CPU: what the bits say, results within derived bounds of the
 * oracle, and the bits of mask kinds that hide the same. */
#include "attention_bounds.h"
#include "block_case.h"
#include "cpu/kernels.h"

/* Elements of any density: blocks of 64 x 64 that are empty, whole, or drawn one by one. */
static unsigned char *draw_elements(const ordo_problem *p, uint64_t *seed, int64_t masks)
{
    unsigned char *all = calloc((size_t)(masks * p->q_len * p->kv_len) + 1, 1);
    const int64_t density = check_between(seed, 0, 8);
    const uint64_t own = check_random(seed);
    for (int64_t x = 0; x < masks * p->q_len * p->kv_len; x++) {
        const int64_t i = x / p->kv_len, j = x % p->kv_len;
        uint64_t place = own + (uint64_t)(i / 64 * 1000 + j / 64) * 0x9e3779b97f4a7c15u;
        const uint64_t kind = check_random(&place) >> 33 & 3;
        all[x] = (unsigned char)(kind == 1                                          ? 3
                                 : kind > 1 && check_between(seed, 0, 8) <= density ? 0x80
                                                                                    : 0);
    }
    return all;
}

static void random_seen(attention_case *c, uint64_t *seed)
{
    const bool per_sequence = check_between(seed, 0, 1), per_head = check_between(seed, 0, 1);
    const int64_t masks = (per_sequence ? c->problem.batch : 1) * (per_head ? c->problem.heads : 1);
    unsigned char *elements = draw_elements(&c->problem, seed, masks);
    case_set_seen(c, elements, per_sequence, per_head);
    free(elements);
}

/* Every element of a mask is that of its byte, whatever the strides, and lists hold what is seen.
 */
TEST(bits_are_the_elements)
{
    uint64_t seed = case_seed(61);
    for (int trial = 0; trial < 12; trial++) {
        ordo_problem p = ORDO_PROBLEM_INIT;
        p.dtype = ORDO_F32;
        p.batch = check_between(&seed, 1, 3);
        p.heads = check_between(&seed, 1, 3);
        p.q_len = check_between(&seed, 1, 300);
        p.kv_len = check_between(&seed, 1, 300);
        p.head_dim = 8;
        p.seen = (ordo_seen_limits) { true, trial % 2, trial / 2 % 2 };
        unsigned char *elements = draw_elements(&p, &seed, p.batch * p.heads);
        /* rows of all heads and sequences, transposed, backwards, or the same for all */
        const int64_t q = p.q_len, kv = p.kv_len;
        const int64_t strides[4][4] = { { p.heads * q * kv, q * kv, kv, 1 },
                                        { q * kv, p.batch * q * kv, 1, q },
                                        { q * kv, p.batch * q * kv, -kv, -1 },
                                        { q, 1, 0, 1 } };
        const int64_t *step = strides[trial % 4];
        const unsigned char *from = elements + (trial % 4 == 2 ? q * kv - 1 : 0);
        ordo_block_mask mask = ORDO_BLOCK_MASK_INIT;
        size_t bytes = 0;
        case_must(ordo_seen_bytes(&p, &bytes));
        void *memory = case_alloc(bytes, 1);
        case_must(ordo_seen_make(&mask, &p, from, step, memory, bytes));
        for (int64_t b = 0; b < mask.sequences; b++)
            for (int64_t h = 0; h < mask.heads; h++) {
                const ordo_block_view view = ordo_block_view_of(&mask, b, h);
                for (int64_t x = 0; x < q * kv; x++) {
                    const int64_t i = x / kv, j = x % kv;
                    const bool own =
                        from[b * step[0] + h * step[1] + i * step[2] + j * step[3]] != 0;
                    if (ordo_block_sees(&view, i, j) != own)
                        CHECK_FAIL("trial %d: mask %d,%d element %d,%d", trial, (int)b, (int)h,
                                   (int)i, (int)j);
                }
            }
        ordo_plan *plan = NULL;
        case_must(ordo_plan_create(&plan, &p, NULL, NULL));
        uint64_t pairs = 0;
        CHECK_INT(ordo_block_mask_check(plan, &mask, &pairs), ORDO_OK);
        ordo_plan_destroy(plan);
        free(memory);
        free(elements);
    }
}

/* One element that is seen, or one that is hidden, in the first or the last of the blocks. */
TEST(single_elements)
{
    enum { ROWS = 130, COLUMNS = 300 };
    static const int places[][2] = { { 0, 0 }, { 127, 127 }, { 128, 256 }, { 129, 299 } };
    for (int trial = 0; trial < 8; trial++) {
        const bool seen = trial % 2;
        const int row = places[trial / 2][0], column = places[trial / 2][1];
        attention_case c = { .problem = ORDO_PROBLEM_INIT };
        c.problem.batch = c.problem.heads = c.problem.head_dim = 1;
        c.problem.q_len = ROWS;
        c.problem.kv_len = COLUMNS;
        unsigned char elements[ROWS * COLUMNS];
        memset(elements, !seen, sizeof elements);
        elements[row * COLUMNS + column] = seen;
        case_set_seen(&c, elements, false, false);
        const ordo_block_view view = ordo_block_view_of(&c.seen, 0, 0);
        CHECK_INT(c.seen.entries, seen ? 1 : 6);
        int whole = 0;
        for (int64_t x = 0; x < c.seen.entries; x++)
            whole += c.seen.key[x] / ORDO_BLOCK_WHOLE;
        CHECK_INT(whole, seen ? 0 : 5);
        for (int x = 0; x < ROWS * COLUMNS; x++)
            CHECK(ordo_block_sees(&view, x / COLUMNS, x % COLUMNS) == elements[x]);
        free(c.seen_memory);
    }
}

/* Every feature of a problem; the same bits on every number of threads and every target. */
TEST(random_masks)
{
    uint64_t seed = case_seed(62);
    bound_worst worst[3] = { { { 0 } } };
    int own_sequence = 0, own_head = 0, shared_keys = 0, dropped = 0, sinks = 0;
    for (int trial = 0; trial < 20; trial++) {
        attention_case c;
        case_random(&c, &seed, trial % 4 ? 160 : 330);
        random_seen(&c, &seed);
        own_sequence += c.problem.seen.per_sequence;
        own_head += c.problem.seen.per_head;
        shared_keys += c.problem.heads > c.problem.kv_heads && c.problem.seen.per_head;
        dropped += c.problem.dropout.p > 0;
        sinks += c.sinks;
        const ordo_plan_options options = block_options(trial);
        ordo_plan *plan = case_plan(&c, &options);
        bound_check(&c, plan, 1 + trial % 3, &worst[c.problem.dtype]);
        case_results one = case_keep(&c);
        static const char *const targets[] = { "generic", "avx2", "avx512", "neon" };
        for (int x = 0; x < 4; x++)
            if (ordo_cpu_kernels_named(targets[x])) {
                ordo_cpu_kernels_force(ordo_cpu_kernels_named(targets[x]));
                case_again(&c, plan, 1 + x, &one, targets[x]);
            }
        ordo_cpu_kernels_force(NULL);
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
    CHECK(own_sequence > 2 && own_head > 2 && shared_keys > 2 && dropped > 2 && sinks > 2);
    CHECK(worst[0].at[0] > 0.01 && worst[0].at[2] > 0.01 && worst[0].at[3] > 0.01);
}

/* What the rules of a problem show of each sequence, as elements. */
static unsigned char *elements_of(const attention_case *c, const ordo_problem *rules)
{
    const ordo_problem *p = &c->problem;
    unsigned char *all = calloc((size_t)(p->batch * p->q_len * p->kv_len), 1), *to = all;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t diagonal =
            ordo_mask_diagonal(rules->mask, case_length(c, false, b), case_length(c, true, b));
        for (int64_t i = 0; i < p->q_len; i++)
            for (int64_t j = 0; j < p->kv_len; j++)
                *to++ = rules_see(rules, j - i - diagonal);
    }
    return all;
}

/* A mask kind in bits has the bits of that kind, in every layout. */
TEST(bits_of_mask_kinds)
{
    static const struct {
        ordo_mask mask;
        ordo_window window;
    } kinds[] = { { ORDO_MASK_CAUSAL, { false } },
                  { ORDO_MASK_CAUSAL_TOP_LEFT, { false } },
                  { ORDO_MASK_FULL, { true, 70, 20 } },
                  { ORDO_MASK_CAUSAL, { true, 130, -1 } },
                  { ORDO_MASK_FULL, { false } } };
    for (int trial = 0; trial < 15; trial++) {
        attention_case c;
        block_open(&c, (ordo_layout)(trial / 5), kinds[trial % 5].mask, trial);
        c.problem.window = kinds[trial % 5].window;
        if (c.problem.mask == ORDO_MASK_CAUSAL_TOP_LEFT) { /* whose distances have its diagonal */
            c.problem.alibi = false;
            c.call.slopes = NULL;
        }
        const ordo_plan_options options = block_options(trial);
        case_compute(&c, &options, 2);
        case_results one = case_keep(&c);
        unsigned char *elements = elements_of(&c, &c.problem);
        c.problem.mask = ORDO_MASK_FULL;
        c.problem.window = (ordo_window) { false };
        case_set_seen(&c, elements, true, false);
        case_compute(&c, &options, 3);
        case_same(&c, &one, "a kind in bits");
        free(elements);
        case_drop(&one);
        case_close(&c);
    }
}

/* Masks of single heads: each head has the bits that it has where all heads have its mask. */
TEST(heads)
{
    uint64_t seed = case_seed(63);
    attention_case all, one;
    block_open(&all, ORDO_DENSE, ORDO_MASK_CAUSAL, 0);
    const ordo_problem p = all.problem;
    const int64_t heads = p.heads, rows = p.batch * p.q_len;
    const size_t width = all.o_count / (size_t)(rows * heads) * case_width(&all);
    unsigned char *elements = draw_elements(&p, &seed, heads);
    case_set_seen(&all, elements, false, true);
    const ordo_plan_options options = block_options(0);
    case_compute(&all, &options, 2);
    for (int64_t h = 0; h < heads; h++) {
        block_open(&one, ORDO_DENSE, ORDO_MASK_CAUSAL, 0);
        case_set_seen(&one, elements + h * p.q_len * p.kv_len, false, false);
        case_compute(&one, &options, 2);
        for (int64_t r = 0; r < rows; r++) {
            const size_t at = (size_t)(r * heads + h) * width;
            CHECK(memcmp((char *)all.call.o.data + at, (char *)one.call.o.data + at, width) == 0);
        }
        case_close(&one);
    }
    free(elements);
    case_close(&all);
}

/* A NaN in keys and values that nobody sees reaches nobody. Its gradients are 0. */
TEST(hidden_nan)
{
    for (int trial = 0; trial < 2; trial++) {
        attention_case c;
        block_open(&c, ORDO_DENSE, ORDO_MASK_FULL, 3 * trial);
        const ordo_problem *p = &c.problem;
        unsigned char *elements = malloc((size_t)(p->q_len * p->kv_len));
        for (int64_t x = 0; x < p->q_len * p->kv_len; x++)
            elements[x] = x % p->kv_len != 150;
        case_set_seen(&c, elements, false, false);
        const ordo_plan_options options = block_options(trial);
        ordo_plan *plan = case_plan(&c, &options);
        case_results one = case_first(&c, plan, 2);
        float *const data = trial ? c.call.k.data : c.call.v.data;
        data[150 * p->kv_heads * 24] = NAN;
        case_again(&c, plan, 3, &one, "a hidden NaN");
        for (int64_t d = 0; d < p->kv_heads * 24; d++)
            CHECK(((float *)c.call.dk.data)[150 * p->kv_heads * 24 + d] == 0);
        free(elements);
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

CHECK_MAIN()
