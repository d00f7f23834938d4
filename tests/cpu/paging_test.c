/* paging_test.c: passes over keys in pages, and over what a window's cache keeps, have the bits of
 * the rows of one training pass over the whole sequence. */
enum {
    SEQUENCES = 3,
    ROWS_MOST = 70,
    PAGE_MOST = 300,
    GROUP_MOST = 4,
    CASES = 100,
    most_keys = 300
};

#include "sampler.h"

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

static void drawn(ordo_backend backend, int cases)
{
    for (int x = 0; x < cases; x++) {
        uint64_t seed = 9000 + (uint64_t)x;
        training t;
        train(&t, backend, x % 4 ? ORDO_BF16 : ORDO_F16, &seed);
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
        train(&t, ORDO_BACKEND_CPU, ORDO_BF16, &seed);
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
    uint16_t *q = draw(&seed, ORDO_BF16, DIM), *k = draw(&seed, ORDO_BF16, COLUMNS * DIM),
             o[2][DIM];
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
    train(t, ORDO_BACKEND_CPU, ORDO_BF16, &seed);
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
    REFUSE(s.kv_lens[2] = most_keys + 1, SHAPE, "kv_lens[2] 301");
}

TEST(no_backward_pass)
{
    uint64_t seed = 78;
    training t;
    sampling s;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    train(&t, ORDO_BACKEND_CPU, ORDO_BF16, &seed);
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
