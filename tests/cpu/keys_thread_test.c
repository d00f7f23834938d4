/* keys_thread_test.c: keys that many query rows share give the bits of keys that each item converts
 * for itself, on any number of threads. */
#include "attention_case.h"
#include "plan/workspace.h"

enum { ROWS = 784, PIECE = 112 };

static bool shared(const ordo_plan *plan)
{
    uint64_t bytes = 0;
    CHECK(ordo_plan_forward_bytes(plan, &bytes));
    return bytes > 0;
}

/* A problem of ROWS rows, or a piece of it from `row` on. */
static void open_rows(attention_case *c, int kind, int64_t row, int64_t rows)
{
    *c = (attention_case) { .problem = ORDO_PROBLEM_INIT, .call = ORDO_CALL_INIT };
    ordo_problem *p = &c->problem;
    p->dtype = kind % 3 == 0 ? ORDO_F32 : kind % 3 == 1 ? ORDO_BF16 : ORDO_F16;
    p->batch = 1;
    p->heads = 4;
    p->kv_heads = kind < 3 ? 4 : 1;
    p->q_len = rows;
    p->kv_len = ROWS;
    p->head_dim = 40;
    p->v_head_dim = kind == 1 ? 72 : 40;
    p->mask = kind == 2 ? ORDO_MASK_FULL : ORDO_MASK_CAUSAL;
    if (kind == 4) /* so that keys at the end are seen by nobody in a piece */
        p->window = (ordo_window) { true, 90, 0 };
    p->dropout.p = kind == 5 ? 0.2 : 0;
    p->shard.row0 = row;
    p->shard.q_total = p->shard.kv_total = ROWS;
    case_open(c, 3);
}

/* Queries that case_open() drew for row 0 on: those of the whole, from `row` on. */
static void take_rows(attention_case *piece, const attention_case *whole, int64_t row)
{
    const size_t width = case_width(piece), heads = (size_t)piece->problem.heads;
    const size_t line = heads * (size_t)piece->problem.head_dim * width;
    memcpy(piece->call.q.data, (const char *)whole->call.q.data + (size_t)row * line,
           (size_t)piece->problem.q_len * line);
}

static void put_specials(attention_case *c)
{
    const size_t row = (size_t)(c->problem.kv_heads * c->problem.head_dim);
    const size_t v_row = (size_t)(c->problem.kv_heads * c->problem.v_head_dim);
    case_put(c, c->call.k.data, 300 * row, INFINITY);
    case_put(c, c->call.v.data, 400 * v_row + 1, NAN);
    case_put(c, c->call.v.data, 650 * v_row, -INFINITY);
}

/* Forward of all rows at once, and of pieces so small that nothing is shared. */
TEST(pieces)
{
    for (int kind = 0; kind < 12; kind++) {
        attention_case whole;
        open_rows(&whole, kind % 6, 0, ROWS);
        const ordo_problem *p = &whole.problem;
        if (kind >= 6)
            put_specials(&whole);
        ordo_plan *plan = case_plan(&whole, NULL);
        CHECK(shared(plan));
        CHECK(case_run(&whole, plan, 1 + kind % 4) == ORDO_OK);
        for (int64_t row = 0; row < ROWS; row += PIECE) {
            attention_case piece;
            open_rows(&piece, kind % 6, row, PIECE);
            const size_t width = case_width(&piece), heads = (size_t)p->heads;
            const size_t line = heads * (size_t)p->v_head_dim * width;
            take_rows(&piece, &whole, row);
            if (kind >= 6)
                put_specials(&piece);
            ordo_plan *small = case_plan(&piece, NULL);
            CHECK(!shared(small));
            CHECK(case_run(&piece, small, 2) == ORDO_OK);
            CHECK_BITS((const char *)piece.call.o.data,
                       (const char *)whole.call.o.data + (size_t)row * line, PIECE * line);
            for (size_t h = 0; h < heads; h++)
                CHECK_BITS(piece.call.lse + h * PIECE, whole.call.lse + h * ROWS + (size_t)row,
                           PIECE);
            ordo_plan_destroy(small);
            case_close(&piece);
        }
        ordo_plan_destroy(plan);
        case_close(&whole);
    }
}

/* Every mask, layout and type, with so small tiles that keys are shared. */
TEST(random_problems)
{
    static const int threads[] = { 2, 3, 8, 16 };
    uint64_t seed = case_seed(2024);
    int sharing = 0;
    for (int i = 0; i < 60; i++) {
        attention_case c;
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        case_random(&c, &seed, 300);
        options.forward_tile = (ordo_tile) { 16, 32 << (i % 2) };
        ordo_plan *plan = case_plan(&c, &options);
        sharing += shared(plan);
        case_results one = case_first(&c, plan, 1);
        for (size_t x = 0; x < sizeof threads / sizeof threads[0]; x++) {
            case_again(&c, plan, threads[x], &one, "threads that share keys");
        }
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
    CHECK(sharing > 20);
}

CHECK_MAIN()
