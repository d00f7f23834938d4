/* paging_test.c: passes over keys in pages, and over what a window's cache keeps, have the bits of
 * the rows of one training pass over the whole sequence. */
#include "base/half.h"
#include "check.h"
#include "ordo/attention.h"

enum { SEQUENCES = 3, MOST = 300, PAGE_MOST = 300, CASES = 100 };

/* A training pass over each sequence by itself: dense, causal. */
typedef struct training {
    ordo_problem problem; /* one sequence; q_len is set for each */
    ordo_backend backend;
    int64_t length[SEQUENCES];
    float slopes[16], sink[16];
    uint16_t *q[SEQUENCES], *k[SEQUENCES], *v[SEQUENCES], *o[SEQUENCES];
    float *lse[SEQUENCES];
} training;

/* What a sampler has of it: the last rows of a part of each sequence, and keys in pages. */
typedef struct sampling {
    ordo_problem problem;
    ordo_call call;
    int64_t rows[SEQUENCES], end[SEQUENCES]; /* queries, and keys so far */
    int32_t cu_q[SEQUENCES + 1], cu_kv[SEQUENCES + 1], q_lens[SEQUENCES], kv_lens[SEQUENCES];
    int32_t starts[SEQUENCES], *table;
    uint16_t *q, *k, *v, *o;
    size_t keys; /* elements of k, and of v */
    float *lse;
} sampling;

static uint16_t *draw(uint64_t *seed, size_t count)
{
    uint16_t *x = malloc(count * sizeof *x + 1);
    for (size_t i = 0; i < count; i++) /* bf16 of magnitude 1/8 to 2 */
        x[i] = (uint16_t)((check_random(seed) & 1) << 15 | (0x3e00 + check_between(seed, 0, 511)));
    return x;
}

static uint16_t *nans(size_t count)
{
    uint16_t *x = malloc(count * sizeof *x + 1);
    for (size_t i = 0; i < count; i++)
        x[i] = 0x7fff;
    return x;
}

static bool forward(const ordo_problem *problem, ordo_backend backend, ordo_call *call)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    options.backend = backend;
    bool ok = ordo_plan_create(&plan, problem, NULL, &options) == ORDO_OK;
    if (ok) {
        call->workspace_bytes = ordo_plan_workspace(plan);
        call->workspace = aligned_alloc(256, call->workspace_bytes / 256 * 256 + 256);
        ok = ordo_attention_forward(plan, call) == ORDO_OK;
        free(call->workspace);
    }
    if (!ok)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_plan_destroy(plan);
    return ok;
}

static void train(training *t, ordo_backend backend, uint64_t *seed)
{
    static const int dims[] = { 64, 128, 32, 16, 192, 40 };
    *t = (training) { .problem = ORDO_PROBLEM_INIT, .backend = backend };
    ordo_problem *p = &t->problem;
    p->dtype = ORDO_BF16;
    p->batch = 1;
    p->kv_heads = check_between(seed, 1, 2);
    p->heads = p->kv_heads * check_between(seed, 1, 4);
    p->head_dim = dims[check_between(seed, 0, 5)];
    p->v_head_dim = check_between(seed, 0, 3) ? p->head_dim : dims[check_between(seed, 0, 5)];
    p->mask = ORDO_MASK_CAUSAL;
    if (check_between(seed, 0, 1))
        p->window = (ordo_window) { true, check_between(seed, 0, 200), 0 };
    p->softcap = check_between(seed, 0, 2) ? 0 : 3;
    p->alibi = check_between(seed, 0, 3) == 0;
    for (int h = 0; h < 16; h++) {
        t->slopes[h] = (float)ldexp(1, -1 - h % 8);
        t->sink[h] = (float)check_uniform(seed);
    }
    ordo_call call = ORDO_CALL_INIT;
    call.slopes = p->alibi ? t->slopes : NULL;
    call.sink = check_between(seed, 0, 2) ? NULL : t->sink;
    if (!call.sink)
        t->sink[0] = NAN; /* none */
    for (int b = 0; b < SEQUENCES; b++) {
        const size_t rows = (size_t)(t->length[b] = check_between(seed, 1, MOST));
        p->q_len = p->kv_len = t->length[b];
        call.q.data = t->q[b] = draw(seed, rows * (size_t)(p->heads * p->head_dim));
        call.k.data = t->k[b] = draw(seed, rows * (size_t)(p->kv_heads * p->head_dim));
        call.v.data = t->v[b] = draw(seed, rows * (size_t)(p->kv_heads * p->v_head_dim));
        call.o.data = t->o[b] = nans(rows * (size_t)(p->heads * p->v_head_dim));
        call.lse = t->lse[b] = malloc(rows * (size_t)p->heads * sizeof(float));
        forward(p, backend, &call);
    }
}

/* A tensor of pages in one of the layouts of engines; both share memory in the last one. */
static void lay_out(sampling *s, ordo_tensor *t, uint16_t *data, int64_t dim, int layout,
                    bool second)
{
    const int64_t heads = s->problem.kv_heads, rows = s->problem.paging.page_rows;
    const int64_t row = layout == 2 ? 2 * dim : dim; /* keys and values in one row */
    *t = (ordo_tensor) { data + (layout == 2 && second ? dim : 0), { 0 } };
    const int64_t by_row[4] = { rows * heads * dim, heads * dim, dim, 1 };
    const int64_t by_head[4] = { rows * heads * row, row, rows * row, 1 };
    memcpy(t->stride, layout == 0 ? by_row : by_head, sizeof by_row);
}

/* The entry of the table for a column, as include/ordo/attention.h has it. */
static int32_t *entry(const sampling *s, int b, int64_t page)
{
    const int64_t stride = s->call.page_table_stride;
    return &s->table[b * (stride ? stride : s->problem.paging.table_columns) + page];
}

static void store(const sampling *s, const ordo_tensor *t, const uint16_t *from, int b,
                  int64_t column, int64_t dim)
{
    const ordo_problem *p = &s->problem;
    const int64_t rows = p->paging.page_rows;
    const int64_t page = *entry(s, b, column / rows);
    for (int64_t h = 0; h < p->kv_heads; h++)
        memcpy((uint16_t *)t->data + page * t->stride[0] + column % rows * t->stride[1] +
                   h * t->stride[2],
               from + (column * p->kv_heads + h) * dim, (size_t)dim * sizeof *from);
}

/* Lengths so far, and what a window lets the cache drop. */
static void draw_lengths(sampling *s, const training *t, uint64_t *seed)
{
    const ordo_problem *p = &t->problem;
    for (int b = 0; b < SEQUENCES; b++) {
        s->end[b] = check_between(seed, 1, t->length[b]);
        s->rows[b] = check_between(seed, 0, s->end[b] < 70 ? s->end[b] : 70);
        const int64_t hidden = s->end[b] - s->rows[b] - p->window.left;
        s->starts[b] = p->window.on && hidden > 0 ? (int32_t)check_between(seed, 0, hidden) : 0;
        s->q_lens[b] = (int32_t)s->rows[b];
        s->kv_lens[b] = (int32_t)s->end[b];
        s->cu_q[b + 1] = s->cu_q[b] + s->q_lens[b];
        s->cu_kv[b + 1] = s->cu_kv[b] + s->kv_lens[b] - s->starts[b];
    }
}

static void open_pages(sampling *s, const training *t, uint64_t *seed)
{
    ordo_problem *p = &s->problem;
    const int64_t rows =
        check_between(seed, 0, 2) ? check_between(seed, 1, 40) : check_between(seed, 1, PAGE_MOST);
    const int64_t columns = (MOST + rows - 1) / rows, pages = SEQUENCES * columns + 2;
    p->paging = (ordo_paging) { rows, pages, columns };
    const int64_t more = check_between(seed, 0, 2); /* entries of a line that are no columns */
    s->call.page_table_stride = more ? columns + more : 0;
    s->table = calloc((size_t)(SEQUENCES * (columns + more)), sizeof *s->table);
    for (int64_t x = 0; x < SEQUENCES * (columns + more); x++)
        s->table[x] = -9;
    for (int64_t x = 0; x < SEQUENCES * columns; x++) { /* a permutation, one longer each time */
        const int64_t y = check_between(seed, 0, x);
        int32_t *to = entry(s, (int)(x / columns), x % columns);
        int32_t *from = entry(s, (int)(y / columns), y % columns);
        *to = *from;
        *from = (int32_t)x;
    }
    const int layout = p->head_dim == p->v_head_dim ? (int)check_between(seed, 0, 2) : 0;
    const int64_t most = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
    s->keys = (size_t)(2 * pages * rows * p->kv_heads * most);
    s->k = nans(s->keys);
    s->v = layout == 2 ? s->k : nans(s->keys);
    lay_out(s, &s->call.k, s->k, p->head_dim, layout, false);
    lay_out(s, &s->call.v, s->v, p->v_head_dim, layout, true);
    for (int b = 0; b < SEQUENCES; b++)
        for (int64_t column = s->starts[b]; column < s->end[b]; column++) {
            store(s, &s->call.k, t->k[b], b, column, p->head_dim);
            store(s, &s->call.v, t->v[b], b, column, p->v_head_dim);
        }
    for (int b = 0; b < SEQUENCES; b++) /* what is not read may be anything */
        for (int64_t x = 0; x < columns; x++)
            if (x * rows >= s->end[b] || (x + 1) * rows <= s->starts[b])
                *entry(s, b, x) = -7;
    s->call.page_table = s->table;
    s->call.kv_lens = s->kv_lens;
}

/* The stored keys one after another, without pages. */
static void open_packed(sampling *s, const training *t)
{
    const ordo_problem *p = &s->problem;
    s->keys = (size_t)(s->cu_kv[SEQUENCES] * p->kv_heads);
    s->k = nans(s->keys * (size_t)p->head_dim);
    s->v = nans(s->keys * (size_t)p->v_head_dim);
    for (int b = 0; b < SEQUENCES; b++) {
        const size_t count = (size_t)((s->end[b] - s->starts[b]) * p->kv_heads) * 2;
        memcpy(s->k + s->cu_kv[b] * p->kv_heads * p->head_dim,
               t->k[b] + s->starts[b] * p->kv_heads * p->head_dim, count * (size_t)p->head_dim);
        memcpy(s->v + s->cu_kv[b] * p->kv_heads * p->v_head_dim,
               t->v[b] + s->starts[b] * p->kv_heads * p->v_head_dim, count * (size_t)p->v_head_dim);
    }
    s->call.k.data = s->k;
    s->call.v.data = s->v;
    s->call.cu_kv = s->cu_kv;
}

/* First row of a sequence in q, o and lse, which have (heads, total_q) or (batch, heads, q_len). */
static int64_t first_row(const sampling *s, int b)
{
    return s->problem.layout == ORDO_PACKED ? s->cu_q[b] : b * s->problem.q_len;
}

static void sample(sampling *s, const training *t, bool paged, uint64_t *seed)
{
    *s = (sampling) { .problem = t->problem, .call = ORDO_CALL_INIT };
    ordo_problem *p = &s->problem;
    draw_lengths(s, t, seed);
    p->layout = paged && check_between(seed, 0, 1) ? ORDO_PADDED : ORDO_PACKED;
    p->batch = SEQUENCES;
    p->q_len = 70;
    p->kv_len = MOST;
    if (p->layout == ORDO_PACKED)
        p->total_q = s->cu_q[SEQUENCES];
    if (paged)
        open_pages(s, t, seed);
    else
        open_packed(s, t);
    if (!paged)
        p->total_kv = s->cu_kv[SEQUENCES] ? s->cu_kv[SEQUENCES] : ORDO_NO_KEYS;
    const int64_t all = p->layout == ORDO_PACKED ? p->total_q : SEQUENCES * p->q_len;
    s->q = nans((size_t)(all * p->heads * p->head_dim));
    s->o = nans((size_t)(all * p->heads * p->v_head_dim));
    s->lse = malloc((size_t)(all * p->heads) * sizeof *s->lse + 1);
    for (int b = 0; b < SEQUENCES; b++)
        memcpy(s->q + first_row(s, b) * p->heads * p->head_dim,
               t->q[b] + (s->end[b] - s->rows[b]) * p->heads * p->head_dim,
               (size_t)(s->rows[b] * p->heads * p->head_dim) * sizeof *s->q);
    s->call.q.data = s->q;
    s->call.o.data = s->o;
    s->call.lse = s->lse;
    s->call.kv_starts = s->starts;
    s->call.cu_q = p->layout == ORDO_PACKED ? s->cu_q : NULL;
    s->call.q_lens = p->layout == ORDO_PADDED ? s->q_lens : NULL;
    s->call.slopes = p->alibi ? t->slopes : NULL;
    s->call.sink = isnan(t->sink[0]) ? NULL : t->sink;
}

static void sample_free(sampling *s)
{
    if (s->v != s->k)
        free(s->v);
    free(s->k);
    free(s->q);
    free(s->o);
    free(s->lse);
    free(s->table);
}

static void train_free(training *t)
{
    for (int b = 0; b < SEQUENCES; b++) {
        free(t->q[b]);
        free(t->k[b]);
        free(t->v[b]);
        free(t->o[b]);
        free(t->lse[b]);
    }
}

/* Elements of o and lse that differ from those of the training pass. */
static int64_t differing(const sampling *s, const training *t)
{
    const ordo_problem *p = &s->problem;
    int64_t count = 0;
    for (int b = 0; b < SEQUENCES; b++)
        for (int64_t r = 0; r < s->rows[b]; r++) {
            const int64_t then = s->end[b] - s->rows[b] + r, now = first_row(s, b) + r;
            const int64_t line = p->heads * p->v_head_dim;
            for (int64_t x = 0; x < line; x++)
                count += s->o[now * line + x] != t->o[b][then * line + x];
            for (int64_t h = 0; h < p->heads; h++) {
                const int64_t at = p->layout == ORDO_PACKED ? h * p->total_q + now
                                                            : (b * p->heads + h) * p->q_len + r;
                count +=
                    ordo_f32_bits(s->lse[at]) != ordo_f32_bits(t->lse[b][h * t->length[b] + then]);
            }
        }
    return count;
}

static void drawn(ordo_backend backend, int cases)
{
    for (int x = 0; x < cases; x++) {
        uint64_t seed = 9000 + (uint64_t)x;
        training t;
        train(&t, backend, &seed);
        for (int paged = 0; paged < 2; paged++) {
            sampling s;
            sample(&s, &t, paged, &seed);
            if (forward(&s.problem, backend, &s.call) && differing(&s, &t) > 0)
                CHECK_FAIL("%s, case %d, pages of %" PRId64 ": %" PRId64 " elements differ",
                           ordo_backend_name(backend), x, s.problem.paging.page_rows,
                           differing(&s, &t));
            sample_free(&s);
        }
        train_free(&t);
    }
}

TEST(bits_of_training_on_the_cpu)
{
    drawn(ORDO_BACKEND_CPU, CASES);
}
TEST(bits_of_training_on_the_emulator)
{
    drawn(ORDO_BACKEND_EMULATOR, 12);
}
TEST(bits_of_training_of_the_reference)
{
    drawn(ORDO_BACKEND_REF, 12);
}

/* A window's cache that forgets how many columns it dropped has its tiles elsewhere: the control
 * without which the tests above would show nothing of kv_starts. */
TEST(starts_decide_bits)
{
    int64_t lost = 0;
    for (uint64_t x = 0; x < 20; x++) {
        uint64_t seed = 500 + x;
        training t;
        sampling s;
        train(&t, ORDO_BACKEND_CPU, &seed);
        t.problem.alibi = false;
        sample(&s, &t, false, &seed);
        s.call.kv_starts = NULL;
        if (t.problem.window.on && !s.problem.alibi &&
            forward(&s.problem, ORDO_BACKEND_CPU, &s.call))
            lost += differing(&s, &t);
        sample_free(&s);
        train_free(&t);
    }
    CHECK(lost > 0);
}

/* What a window hides from one row, not stored and without a window: the same bits. */
static void hide(ordo_backend backend, int32_t start)
{
    enum { COLUMNS = 300, DIM = 64 };
    uint64_t seed = 600 + (uint64_t)start;
    const int32_t cu_q[2] = { 0, 1 }, cu_kv[2] = { 0, COLUMNS - start };
    uint16_t *q = draw(&seed, DIM), *k = draw(&seed, COLUMNS * DIM), o[2][DIM];
    float lse[2] = { NAN, NAN };
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_call call = ORDO_CALL_INIT;
    p.dtype = ORDO_BF16;
    p.batch = p.heads = p.q_len = 1;
    p.kv_len = COLUMNS;
    p.head_dim = DIM;
    p.window = (ordo_window) { true, COLUMNS - 1 - start, -1 };
    for (int x = 0; x < 2; x++) {
        call.q.data = q;
        call.k.data = call.v.data = k + (x ? start * DIM : 0);
        call.o.data = o[x];
        call.lse = &lse[x];
        forward(&p, backend, &call);
        p.layout = ORDO_PACKED;
        p.window = (ordo_window) { false, 0, 0 };
        p.total_q = 1;
        p.total_kv = COLUMNS - start;
        call.cu_q = cu_q;
        call.cu_kv = cu_kv;
        call.kv_starts = &start;
    }
    if (memcmp(o[0], o[1], sizeof o[0]) != 0 || ordo_f32_bits(lse[0]) != ordo_f32_bits(lse[1]))
        CHECK_FAIL("%s, %d columns not stored: other bits", ordo_backend_name(backend), start);
    free(q);
    free(k);
}

TEST(columns_that_are_not_stored_are_hidden)
{
    for (int x = 0; x < 3; x++)
        for (int32_t start = 1; start < 300; start += 23)
            hide((const ordo_backend[]) { ORDO_BACKEND_CPU, ORDO_BACKEND_EMULATOR,
                                          ORDO_BACKEND_REF }[x],
                 start);
}

/* ---- refusals ---- */

/* A sampler over packed queries and pages of 2 to 40 rows. */
static void open_paged(training *t, sampling *s)
{
    uint64_t seed = 77;
    train(t, ORDO_BACKEND_CPU, &seed);
    for (sample(s, t, true, &seed);
         s->problem.layout != ORDO_PACKED || s->problem.paging.page_rows > 40 ||
         s->problem.paging.page_rows < 2;
         sample(s, t, true, &seed))
        sample_free(s);
}

/* Like forward(), but returns the status. */
static ordo_status try_forward(const sampling *s)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    options.backend = ORDO_BACKEND_CPU;
    ordo_status status = ordo_plan_create(&plan, &s->problem, NULL, &options);
    if (status == ORDO_OK)
        status = ordo_attention_forward(plan, &s->call);
    ordo_plan_destroy(plan);
    return status;
}

/* One with this change is refused so. */
#define REFUSE(change, status, says)                                                               \
    do {                                                                                           \
        training t;                                                                                \
        sampling s;                                                                                \
        open_paged(&t, &s);                                                                        \
        change;                                                                                    \
        CHECK_REFUSED_AS(#change, try_forward(&s), ORDO_ERR_##status, says);                       \
        for (int64_t i = 0; i < s.cu_q[SEQUENCES] * s.problem.heads * s.problem.v_head_dim; i++)   \
            CHECK(s.o[i] == 0x7fff);                                                               \
        sample_free(&s);                                                                           \
        train_free(&t);                                                                            \
    } while (0)

TEST(refused_by_name_before_anything_is_written)
{
    REFUSE(s.problem.paging.page_rows = 0, ARGUMENT, "paging.page_rows 0");
    REFUSE(s.problem.paging.page_rows = 65537, ARGUMENT, "paging.page_rows 65537");
    REFUSE(s.problem.paging.pages = 0, ARGUMENT, "paging.pages 0");
    REFUSE(s.problem.paging.table_columns--, SHAPE, "for kv_len 300");
    REFUSE((s.problem.layout = ORDO_DENSE, s.problem.total_q = 0), UNSUPPORTED, "layout dense");
    REFUSE(s.problem.total_kv = 5, SHAPE, "total_kv 5");
    REFUSE(s.problem.dropout.p = 0.1, UNSUPPORTED, "dropout.p 0.1: expected 0 with paging");
    REFUSE(s.problem.blocks.entries = 3, UNSUPPORTED, "blocks.entries 3");
    REFUSE(s.problem.extras = ORDO_EXTRA_PAGED_KV, UNSUPPORTED, "they are paging");
    REFUSE(s.call.page_table = NULL, ARGUMENT, "page_table NULL");
    REFUSE(s.call.kv_lens = NULL, ARGUMENT, "kv_lens NULL");
    REFUSE(s.call.cu_kv = s.cu_q, ARGUMENT, "cu_kv given");
    REFUSE(s.call.page_table_stride = 1, ARGUMENT, "page_table_stride 1");
    REFUSE(*entry(&s, 0, s.starts[0] / s.problem.paging.page_rows) =
               (int32_t)s.problem.paging.pages,
           SHAPE, "page_table[0][");
    REFUSE(*entry(&s, 0, (s.end[0] - 1) / s.problem.paging.page_rows) = -1, SHAPE,
           " -1: expected 0..");
    REFUSE(s.starts[1] = s.kv_lens[1] + 1, SHAPE, "kv_starts[1]");
    REFUSE(s.starts[1] = -1, SHAPE, "kv_starts[1] -1");
    REFUSE(s.kv_lens[2] = MOST + 1, SHAPE, "kv_lens[2] 301");
}

TEST(no_backward_pass_and_no_cuda)
{
    uint64_t seed = 78;
    training t;
    sampling s;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    train(&t, ORDO_BACKEND_CPU, &seed);
    sample(&s, &t, true, &seed);
    options.backend = ORDO_BACKEND_CPU;
    CHECK_INT(ordo_plan_create(&plan, &s.problem, NULL, &options), ORDO_OK);
    CHECK_REFUSED(ordo_attention_backward(plan, &s.call), ORDO_ERR_UNSUPPORTED, "backward pass");
    ordo_plan_destroy(plan);
    sample_free(&s);
    sample(&s, &t, false, &seed);
    CHECK_INT(ordo_plan_create(&plan, &s.problem, NULL, &options), ORDO_OK);
    s.call.dout = s.call.o; /* refused before gradients are looked at */
    s.call.dq = s.call.q, s.call.dk = s.call.k, s.call.dv = s.call.v;
    CHECK(ordo_attention_backward(plan, &s.call) != ORDO_OK);
    ordo_plan_destroy(plan);
    sample_free(&s);
    train_free(&t);
}

/* A sampler's plan and a trainer's: one key of the forward pass, which says what decides it. */
TEST(forward_keys)
{
    static const struct {
        ordo_backend backend;
        int dim;
        const char *says;
    } rows[] = {
        { ORDO_BACKEND_EMULATOR, 64, "/keys128/last-first" },
        { ORDO_BACKEND_EMULATOR, 192, "/keys64/last-first" },
        { ORDO_BACKEND_EMULATOR, 320, "/keys256/first-last" },
        { ORDO_BACKEND_CPU, 64, "/first-last" },
    };
    for (int x = 0; x < 4; x++) {
        ordo_problem p = ORDO_PROBLEM_INIT;
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        ordo_plan_info info[2] = { ORDO_PLAN_INFO_INIT, ORDO_PLAN_INFO_INIT };
        p.dtype = ORDO_BF16;
        p.batch = p.heads = 2;
        p.q_len = p.kv_len = 512;
        p.head_dim = rows[x].dim;
        p.mask = ORDO_MASK_CAUSAL;
        options.backend = rows[x].backend;
        for (int y = 0; y < 2; y++) {
            ordo_plan *plan = NULL;
            CHECK_INT(ordo_plan_create(&plan, &p, NULL, &options), ORDO_OK);
            CHECK_INT(ordo_plan_query(plan, &info[y]), ORDO_OK);
            ordo_plan_destroy(plan);
            p.layout = ORDO_PADDED; /* then what a sampler has */
            p.mask = ORDO_MASK_FULL;
            p.q_len = 1;
            p.paging = (ordo_paging) { 16, 64, 32 };
        }
        CHECK_HAS(info[0].forward_key, rows[x].says);
        CHECK_TEXT(info[1].forward_key, info[0].forward_key);
    }
}

CHECK_MAIN()
