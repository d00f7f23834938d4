/* refusal_test.c: a call that the CPU backend cannot run is refused before anything is written:
 * outputs and workspace still hold their poison. So is a plan that it cannot make. */
#include "attention_case.h"

/* A case with everything on: packed or padded, slopes, dropout, dlse, and a workspace. */
typedef struct fixture {
    attention_case c;
    ordo_plan *plan;
    case_results poison;
    unsigned char *workspace;
    size_t workspace_bytes;
} fixture;

/* A plan of the case, a workspace, and what they and the outputs hold before any pass. */
static void fixture_plan(fixture *f)
{
    f->plan = case_plan(&f->c, NULL);
    f->workspace_bytes = ordo_plan_workspace(f->plan);
    f->workspace = aligned_alloc(256, f->workspace_bytes + 256);
    memset(f->workspace, CASE_POISON, f->workspace_bytes + 256);
    f->c.call.workspace = f->workspace;
    f->c.call.workspace_bytes = f->workspace_bytes;
    f->poison = case_keep(&f->c);
}

static void fixture_open(fixture *f, ordo_layout layout)
{
    *f = (fixture) { .c = { .problem = ORDO_PROBLEM_INIT, .dlse = (float *)1 } };
    ordo_problem *p = &f->c.problem;
    p->layout = layout;
    p->batch = 2;
    p->heads = 4;
    p->kv_heads = 2;
    p->q_len = 20;
    p->kv_len = 30;
    p->head_dim = 16;
    p->v_head_dim = 8;
    p->alibi = true;
    p->dropout.p = 0.5;
    for (int b = 0; b < 2; b++) {
        f->c.ids[b] = b;
        f->c.q_lens[b] = 20 - b;
        f->c.kv_lens[b] = 30 - b;
        f->c.cu_q[b + 1] = f->c.cu_q[b] + f->c.q_lens[b];
        f->c.cu_kv[b + 1] = f->c.cu_kv[b] + f->c.kv_lens[b];
    }
    if (layout == ORDO_PACKED) {
        p->total_q = 39;
        p->total_kv = 59;
    }
    case_open(&f->c, 1);
    fixture_plan(f);
}

static void fixture_close(fixture *f)
{
    case_drop(&f->poison);
    free(f->workspace);
    ordo_plan_destroy(f->plan);
    case_close(&f->c);
}

static int refused;

static void refuse(fixture *f, const ordo_call *call, const char *what, bool forward, bool backward)
{
    for (int pass = 0; pass < 2; pass++) {
        if (!(pass ? backward : forward))
            continue;
        const ordo_status status =
            pass ? ordo_attention_backward(f->plan, call) : ordo_attention_forward(f->plan, call);
        refused++;
        if (status == ORDO_OK)
            CHECK_FAIL("%s: %s accepted", what, pass ? "backward" : "forward");
        case_same(&f->c, &f->poison, what);
        for (size_t x = 0; x < f->workspace_bytes + 256; x++)
            if (f->workspace[x] != CASE_POISON) {
                CHECK_FAIL("%s: byte %zu of the workspace was written", what, x);
                break;
            }
    }
}

/* Change one thing of a call that is fine, expect a refusal of the passes that look at it. */
#define BOTH(change)     TRY(change, true, true)
#define FORWARD(change)  TRY(change, true, false)
#define BACKWARD(change) TRY(change, false, true)
#define TRY(change, forward, backward)                                                             \
    do {                                                                                           \
        ordo_call bad = f.c.call;                                                                  \
        change;                                                                                    \
        refuse(&f, &bad, #change, forward, backward);                                              \
    } while (0)

static void set_strides(ordo_tensor *t, int64_t batch, int64_t row, int64_t head, int64_t dim)
{
    const int64_t strides[4] = { batch, row, head, dim };
    memcpy(t->stride, strides, sizeof strides);
}

TEST(calls)
{
    fixture f;
    fixture_open(&f, ORDO_PADDED);
    const ordo_call *c = &f.c.call;
    BOTH(bad.size = 8);
    BOTH(bad.size = 0);
    BOTH(bad.q.data = NULL);
    BOTH(bad.k.data = NULL);
    BOTH(bad.v.data = NULL);
    BOTH(bad.o.data = NULL);
    BOTH(bad.lse = NULL);
    BACKWARD(bad.dout.data = NULL);
    BACKWARD((bad.dq.data = bad.dk.data = bad.dv.data = NULL));
    BACKWARD(bad.dk.data = NULL);
    BACKWARD(bad.dv.data = NULL);
    BOTH(bad.q.data = (char *)c->q.data + 1);
    BOTH(bad.lse = (float *)((char *)c->lse + 2));
    BACKWARD(bad.dlse = (const float *)((const char *)c->dlse + 1));
    BACKWARD(bad.workspace = NULL);
    BACKWARD(bad.workspace_bytes -= 1);
    BACKWARD(bad.workspace = f.workspace + 64);
    BOTH(set_strides(&bad.q, 1280, 64, 16, 2));
    BOTH(set_strides(&bad.k, -960, 32, 16, 1));
    BOTH(set_strides(&bad.v, INT64_C(1) << 62, 16, 8, 1));
    FORWARD(set_strides(&bad.o, 640, 32, 7, 1));
    BACKWARD(set_strides(&bad.dq, 0, 64, 16, 1));
    FORWARD(bad.o.data = c->q.data);
    FORWARD(bad.lse = (float *)c->v.data + 3);
    BACKWARD(bad.dq = bad.q);
    BACKWARD(bad.dv.data = c->dk.data);
    BACKWARD(bad.dk.data = f.workspace);
    BOTH(bad.q_lens = NULL);
    BOTH(bad.kv_lens = NULL);
    BOTH(bad.cu_q = f.c.cu_q);
    BOTH(bad.slopes = NULL);
    BOTH(bad.slopes_batch_stride = -4);
    BOTH(bad.offset = UINT64_C(1) << 32);
    BOTH(bad.threads = -1);
    const uint64_t far = UINT64_C(1) << 40;
    BOTH(bad.offset_ptr = &far);
    const int64_t ids[] = { 0, -3 }, large[] = { 0, INT64_C(1) << 31 };
    BOTH(bad.sequence_ids = ids);
    BOTH(bad.sequence_ids = large);
    const int32_t too_long[] = { 5, 21 }, negative[] = { -1, 5 };
    BOTH(bad.q_lens = too_long);
    BOTH(bad.q_lens = negative);
    BOTH(bad.kv_lens = negative);
    fixture_close(&f);

    fixture_open(&f, ORDO_PACKED);
    const int32_t late[] = { 1, 20, 39 }, back[] = { 0, 20, 19 }, more[] = { 0, 20, 40 };
    const int32_t wide[] = { 0, 31, 59 };
    BOTH(bad.cu_q = late);
    BOTH(bad.cu_q = back);
    BOTH(bad.cu_q = more);
    BOTH(bad.cu_kv = wide);
    BOTH(bad.cu_kv = NULL);
    BOTH(bad.q_lens = f.c.q_lens);
    fixture_close(&f);
    CHECK(ordo_attention_forward(NULL, NULL) == ORDO_ERR_ARGUMENT);
    printf("  %d calls refused\n", refused);
    CHECK(refused >= 60);
}

/* What the fixture refuses to break is fine as it is, or the test above shows nothing. */
TEST(the_call_that_was_broken_is_fine)
{
    for (int layout = 0; layout < 3; layout++) {
        fixture f;
        fixture_open(&f, (ordo_layout)layout);
        CHECK(ordo_attention_forward(f.plan, &f.c.call) == ORDO_OK);
        CHECK(ordo_attention_backward(f.plan, &f.c.call) == ORDO_OK);
        for (size_t x = 0; x < 256; x++)
            CHECK(f.workspace[f.workspace_bytes + x] == CASE_POISON);
        fixture_close(&f);
    }
}

/* Where the forward pass has a workspace, it looks at it as the backward pass does. */
TEST(workspace_of_the_forward_pass)
{
    fixture f = { .c = { .problem = ORDO_PROBLEM_INIT, .call = ORDO_CALL_INIT } };
    ordo_problem *p = &f.c.problem;
    p->batch = 1;
    p->heads = 2;
    p->kv_heads = 1;
    p->q_len = p->kv_len = 320; /* 10 tiles meet each key tile */
    p->head_dim = p->v_head_dim = 8;
    case_open(&f.c, 1);
    fixture_plan(&f);
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    CHECK(ordo_plan_query(f.plan, &info) == ORDO_OK);
    CHECK(info.forward_workspace_bytes > 0);
    FORWARD(bad.workspace = NULL);
    FORWARD(bad.workspace_bytes = info.forward_workspace_bytes - 1);
    FORWARD(bad.workspace = f.workspace + 64);
    FORWARD(bad.o.data = f.workspace);
    f.c.call.workspace_bytes = info.forward_workspace_bytes;
    CHECK(ordo_attention_forward(f.plan, &f.c.call) == ORDO_OK);
    for (size_t x = info.forward_workspace_bytes; x < f.workspace_bytes + 256; x++)
        CHECK(f.workspace[x] == CASE_POISON);
    fixture_close(&f);
}

TEST(plans)
{
    static const struct {
        ordo_order order;
        int64_t split, dim, tile;
        ordo_status status;
        const char *says;
    } bad[] = {
        { ORDO_ORDER_SHIFT, 0, 0, 0, ORDO_ERR_UNSUPPORTED, "resident together" },
        { ORDO_ORDER_DEFAULT, 2, 0, 0, ORDO_ERR_UNSUPPORTED, "split 2" },
        { ORDO_ORDER_DEFAULT, 0, 577, 0, ORDO_ERR_ARGUMENT, "head_dim 577" },
        { ORDO_ORDER_DEFAULT, 0, 0, 5000, ORDO_ERR_ARGUMENT, "forward_tile" },
    };
    for (size_t x = 0; x < sizeof bad / sizeof bad[0]; x++) {
        ordo_problem p = ORDO_PROBLEM_INIT;
        p.batch = p.heads = 1;
        p.q_len = 1000;
        p.head_dim = bad[x].dim ? bad[x].dim : 16;
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        options.backend = ORDO_BACKEND_CPU;
        options.order = bad[x].order;
        options.split = bad[x].split;
        options.forward_tile.q = options.forward_tile.k = bad[x].tile;
        ordo_plan *plan = (ordo_plan *)1;
        CHECK_INT(ordo_plan_create(&plan, &p, NULL, &options), bad[x].status);
        CHECK_HAS(ordo_last_error(), bad[x].says);
        CHECK(plan == NULL);
    }
}

CHECK_MAIN(RUN(calls), RUN(the_call_that_was_broken_is_fine), RUN(workspace_of_the_forward_pass),
           RUN(plans))
