/* decode_test.c: decoding = prefill = training.
 *
 * Row i of a causal sequence, computed alone with the keys that it sees, has the bits of row i of
 * the training forward, and so has a chunk of rows. The keys lie in a cache: at other strides than
 * in training, with NaN behind those in use. Training is dense, packed or padded. With dropout a
 * chunk begins at a block of 16 rows, and says where it lies. */
#include "attention_case.h"

enum { ROOM = 7 }; /* elements between the rows of a cache, and rows behind the last */

typedef struct cache {
    void *k, *v;
    int64_t k_row, v_row; /* elements from row to row */
} cache;

/* The keys of sequence b, and room behind them. */
static void *keys_of(const attention_case *c, const void *from, int64_t dim, int64_t b, int64_t row)
{
    const int64_t rows = case_length(c, true, b), heads = c->problem.kv_heads;
    const size_t width = case_width(c);
    char *made = case_alloc((size_t)((rows + ROOM) * row), width);
    memset(made, 0xff, (size_t)((rows + ROOM) * row) * width); /* NaN */
    for (int64_t r = 0; r < rows; r++)
        memcpy(made + (size_t)(r * row) * width,
               (const char *)from + case_at(c, true, dim, b, r, 0) * width,
               (size_t)(heads * dim) * width);
    return made;
}

static cache cache_open(const attention_case *c, int64_t b)
{
    const ordo_problem *p = &c->problem;
    cache made = { .k_row = p->kv_heads * p->head_dim + ROOM,
                   .v_row = p->kv_heads * p->v_head_dim + ROOM };
    made.k = keys_of(c, c->call.k.data, p->head_dim, b, made.k_row);
    made.v = keys_of(c, c->call.v.data, p->v_head_dim, b, made.v_row);
    return made;
}

static void *row_of(const attention_case *c, const void *data, int64_t dim, int64_t b, int64_t row)
{
    return (char *)data + case_at(c, false, dim, b, row, 0) * case_width(c);
}

/* Rows first .. last of sequence b with the keys up to those of the last row. */
static void check_rows(const attention_case *c, const cache *keys, int64_t b, int64_t first,
                       int64_t last)
{
    const int64_t rows = last - first + 1, extra = case_length(c, true, b);
    const int64_t behind = case_length(c, false, b) - 1 - last; /* rows after the last one */
    const bool dropout = c->problem.dropout.p > 0;
    attention_case part = { .problem = c->problem };
    ordo_problem *p = &part.problem;
    p->layout = ORDO_DENSE;
    p->batch = 1;
    p->total_q = p->total_kv = 0;
    p->q_len = rows;
    p->kv_len = dropout ? extra : extra - behind;
    if (dropout) {
        p->shard.row0 = first;
        p->shard.q_total = case_length(c, false, b);
        p->shard.kv_total = extra;
    }
    if (p->kv_len <= 0) /* sees nothing */
        return;
    ordo_call call = ORDO_CALL_INIT;
    const size_t width = case_width(c), count = (size_t)(rows * p->heads);
    float *lse = case_alloc(count, 4);
    void *o = case_alloc(count * (size_t)p->v_head_dim, width);
    call.q.data = row_of(c, c->call.q.data, p->head_dim, b, first);
    call.k = (ordo_tensor) { keys->k, { 0, keys->k_row, p->head_dim, 1 } };
    call.v = (ordo_tensor) { keys->v, { 0, keys->v_row, p->v_head_dim, 1 } };
    call.o.data = o;
    call.lse = lse;
    call.sequence_ids = c->ids + b;
    call.slopes = c->call.slopes;
    call.seed = c->call.seed;
    call.offset = c->call.offset;
    call.threads = 1 + (int)(first % 3);
    ordo_plan *plan = case_plan(&part, NULL);
    const size_t bytes = ordo_plan_workspace(plan);
    char *memory = case_alloc(bytes + 256, 1);
    call.workspace = memory + (256 - (uintptr_t)memory % 256) % 256;
    call.workspace_bytes = bytes;
    if (ordo_attention_forward(plan, &call) != ORDO_OK)
        CHECK_FAIL("forward: %s", ordo_last_error());
    bool same = memcmp(o, row_of(c, c->call.o.data, p->v_head_dim, b, first),
                       count * (size_t)p->v_head_dim * width) == 0;
    for (int64_t h = 0; h < p->heads; h++)
        same = same && memcmp(lse + h * rows, c->call.lse + case_lse_at(c, b, first, h),
                              (size_t)rows * 4) == 0;
    if (!same) {
        CHECK_FAIL("sequence %d, rows %d to %d have other bits", (int)b, (int)first, (int)last);
        case_print(c);
    }
    ordo_plan_destroy(plan);
    free(memory);
    free(lse);
    free(o);
}

/* A prompt in chunks, then rows one by one. */
static void check_sequence(const attention_case *c, int64_t b)
{
    const int64_t rows = case_length(c, false, b), prompt = rows / 2 / 16 * 16;
    const bool dropout = c->problem.dropout.p > 0;
    const int64_t chunk = dropout ? 48 : 37;
    const cache keys = cache_open(c, b);
    for (int64_t first = 0; first < prompt; first += chunk)
        check_rows(c, &keys, b, first, (first + chunk < prompt ? first + chunk : prompt) - 1);
    for (int64_t i = prompt; i < rows; i++)
        check_rows(c, &keys, b, dropout ? i / 16 * 16 : i, i);
    free(keys.k);
    free(keys.v);
}

static void draw(attention_case *c, uint64_t *seed, ordo_layout layout)
{
    static const int dims[] = { 8, 16, 24, 33 };
    *c = (attention_case) { .problem = ORDO_PROBLEM_INIT };
    ordo_problem *p = &c->problem;
    p->dtype = (ordo_dtype)check_between(seed, 0, 2);
    p->layout = layout;
    p->batch = 2;
    p->kv_heads = check_between(seed, 1, 2);
    p->heads = p->kv_heads * check_between(seed, 1, 3);
    p->head_dim = dims[check_between(seed, 0, 3)];
    p->v_head_dim = dims[check_between(seed, 0, 3)];
    p->q_len = check_between(seed, 1, 220);
    p->kv_len = check_between(seed, 0, 1) ? p->q_len : check_between(seed, 1, 300);
    p->mask = ORDO_MASK_CAUSAL;
    if (check_between(seed, 0, 2) == 0)
        p->window = (ordo_window) { true, check_between(seed, 0, 150), 0 };
    p->softcap = check_between(seed, 0, 3) ? 0 : 3;
    p->alibi = check_between(seed, 0, 3) == 0;
    p->dropout.p = check_between(seed, 0, 3) ? 0 : 0.17;
    case_random_lengths(c, seed);
    case_open(c, check_random(seed) >> 1);
}

TEST(every_row_alone_and_in_chunks)
{
    uint64_t seed = case_seed(185);
    for (int x = 0; x < 36; x++) {
        attention_case c;
        draw(&c, &seed, (ordo_layout)(x % 3));
        ordo_plan *plan = case_plan(&c, NULL);
        CHECK_INT(case_run(&c, plan, 2), ORDO_OK);
        for (int64_t b = 0; b < c.problem.batch; b++)
            check_sequence(&c, b);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

CHECK_MAIN(RUN(every_row_alone_and_in_chunks))
