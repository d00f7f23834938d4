/* attention_test.c: a call that breaks a rule is refused by name and writes nothing; one that
 * breaks none computes what the oracle computes. */
#include "host_call.h"

#include "data_attention.h"

static ordo_problem small(void)
{
    return (ordo_problem) { .size = sizeof(ordo_problem),
                            .batch = 2,
                            .heads = 4,
                            .kv_heads = 2,
                            .q_len = 5,
                            .kv_len = 6,
                            .head_dim = 4,
                            .v_head_dim = 3 };
}

static ordo_backend backend = ORDO_BACKEND_REF;

static fixture *open_fixture(const ordo_problem *p)
{
    return fixture_create(p, backend);
}

static void pointers_and_versions(void)
{
    const ordo_problem p = small();
    fixture *f = open_fixture(&p);
    ordo_call *c = &f->call;
    CHECK_REFUSED(ordo_attention_forward(NULL, c), ORDO_ERR_ARGUMENT, "plan NULL");
    CHECK_REFUSED(ordo_attention_forward(f->plan, NULL), ORDO_ERR_ARGUMENT, "call NULL");
    REFUSE(f, forward, c->size = 0, ORDO_ERR_ARGUMENT, "call.size 0", "ORDO_CALL_INIT");
    REFUSE(f, forward, c->size = offsetof(ordo_call, dv) + 16, ORDO_ERR_ARGUMENT, "ends within dv");
    REFUSE(f, forward, c->size = offsetof(ordo_call, lse) + 4, ORDO_ERR_ARGUMENT, "call.size");
    REFUSE(f, forward, c->q.data = NULL, ORDO_ERR_ARGUMENT, "q.data NULL");
    REFUSE(f, forward, c->v.data = NULL, ORDO_ERR_ARGUMENT, "v.data NULL");
    REFUSE(f, forward, c->o.data = NULL, ORDO_ERR_ARGUMENT, "o.data NULL");
    REFUSE(f, forward, c->lse = NULL, ORDO_ERR_ARGUMENT, "lse NULL", "40 f32");
    REFUSE(f, backward, c->dout.data = NULL, ORDO_ERR_ARGUMENT, "dout.data NULL");
    REFUSE(f, backward, c->dk.data = NULL, ORDO_ERR_ARGUMENT, "dk.data NULL");
    REFUSE(f, forward, c->q.data = (char *)f->q + 2, ORDO_ERR_ALIGN, "q.data", "multiple of 4");
    REFUSE(f, forward, c->threads = -1, ORDO_ERR_ARGUMENT, "threads -1");
    if (ordo_plan_workspace(f->plan) > 0) {
        REFUSE(f, backward, c->workspace = NULL, ORDO_ERR_SHAPE, "workspace_bytes 0");
        REFUSE(f, backward, c->workspace_bytes = 1, ORDO_ERR_SHAPE, "workspace_bytes 1");
        REFUSE(f, backward, c->workspace = f->work + 16, ORDO_ERR_ALIGN, "multiple of 256");
        REFUSE(f, backward, c->dk.data = f->work, ORDO_ERR_ARGUMENT, "dk", "workspace", "overlap");
        REFUSE(f, backward, c->q.data = f->work, ORDO_ERR_ARGUMENT, "q and workspace overlap");
    }
    c->dq.data = NULL; /* forward does not ask for what it does not use */
    c->dlse = NULL;
    CHECK(ordo_attention_forward(f->plan, c) == ORDO_OK);
    fixture_destroy(f);
}

static void set_strides(ordo_tensor *t, int64_t batch, int64_t row, int64_t head, int64_t dim)
{
    const int64_t strides[4] = { batch, row, head, dim };
    memcpy(t->stride, strides, sizeof strides);
}

static void strides(void)
{
    const ordo_problem p = small();
    fixture *f = open_fixture(&p);
    ordo_call *c = &f->call;
    const int64_t huge = INT64_C(1) << 61;
    REFUSE(f, forward, set_strides(&c->q, 80, 16, 4, 2), ORDO_ERR_ALIGN, "q.stride[3] 2");
    REFUSE(f, forward, set_strides(&c->q, 80, 16, 4, 0), ORDO_ERR_ALIGN, "q.stride[3] 0");
    REFUSE(f, forward, set_strides(&c->k, 80, -8, 4, 1), ORDO_ERR_ALIGN, "k.stride[1] -8");
    REFUSE(f, forward, set_strides(&c->k, huge, 8, 4, 1), ORDO_ERR_OVERFLOW, "k.stride");
    REFUSE(f, forward, set_strides(&c->k, huge / 2, 8, 4, 1), ORDO_ERR_OVERFLOW, "k.stride");
    REFUSE(f, forward, set_strides(&c->o, 0, 12, 3, 1), ORDO_ERR_ALIGN, "o.stride 0 12 3 1");
    REFUSE(f, forward, set_strides(&c->o, 60, 12, 2, 1), ORDO_ERR_ALIGN, "o.stride 60 12 2 1");
    set_strides(&c->k, 0, 8, 4, 1); /* one batch entry broadcast: fine for an input */
    CHECK(ordo_attention_forward(f->plan, c) == ORDO_OK);
    fixture_destroy(f);
}

static void biases(void)
{
    static float bias[4 * 5 * 6], dbias[4 * 5 * 6];
    ordo_problem p = small();
    fixture *f = open_fixture(&p);
    REFUSE(f, forward, f->call.bias.data = bias, ORDO_ERR_ARGUMENT, "bias.data given");
    REFUSE(f, backward, f->call.dbias = dbias, ORDO_ERR_ARGUMENT, "dbias given", "bias.on false");
    fixture_destroy(f);
    p.bias = (ordo_bias) { .on = true, .per_head = true };
    f = open_fixture(&p);
    ordo_call *c = &f->call;
    REFUSE(f, forward, (void)c, ORDO_ERR_ARGUMENT, "bias.data NULL");
    c->bias.data = bias;
    REFUSE(f, forward, set_strides(&c->bias, 0, 30, 6, 2), ORDO_ERR_ALIGN, "bias.stride[3] 2");
    REFUSE(f, forward, set_strides(&c->bias, 0, 30, -6, 1), ORDO_ERR_ALIGN, "bias.stride[2] -6");
    REFUSE(f, forward, c->bias.data = (char *)bias + 2, ORDO_ERR_ALIGN, "bias.data");
    REFUSE(f, forward, c->bias.data = f->o, ORDO_ERR_ARGUMENT, "o and bias overlap");
    REFUSE(f, backward, c->dbias = bias + 119, ORDO_ERR_ARGUMENT, "bias and dbias overlap");
    REFUSE(f, backward, c->dbias = f->q + 30, ORDO_ERR_ARGUMENT, "q and dbias overlap");
    c->dbias = dbias;
    CHECK(ordo_attention_forward(f->plan, c) == ORDO_OK);
    CHECK(ordo_attention_backward(f->plan, c) == ORDO_OK);
    fixture_destroy(f);
}

static void outputs_overlap_nothing(void)
{
    const ordo_problem p = small();
    fixture *f = open_fixture(&p);
    ordo_call *c = &f->call;
    REFUSE(f, forward, c->o.data = f->q, ORDO_ERR_ARGUMENT, "q and o overlap");
    REFUSE(f, forward, c->lse = f->v + 7, ORDO_ERR_ARGUMENT, "v and lse overlap");
    REFUSE(f, backward, c->dq.data = f->q, ORDO_ERR_ARGUMENT, "q and dq overlap");
    REFUSE(f, backward, c->dv.data = f->dk + 95, ORDO_ERR_ARGUMENT, "dk and dv overlap");
    REFUSE(f, backward, c->dq.data = f->dout, ORDO_ERR_ARGUMENT, "dout and dq overlap");
    c->dv.data = f->dk + 96; /* dk has 2*6*2*4 elements: touching is not overlapping */
    CHECK(ordo_attention_forward(f->plan, c) == ORDO_OK);
    CHECK(ordo_attention_backward(f->plan, c) == ORDO_OK);
    fixture_destroy(f);

    /* dq, dk and dv interleaved in one buffer, as frameworks lay them out. */
    ordo_problem square = small();
    square.kv_heads = 0, square.kv_len = 0, square.v_head_dim = 0;
    f = open_fixture(&square);
    c = &f->call;
    ordo_tensor *grads[] = { &c->dq, &c->dk, &c->dv };
    CHECK(ordo_attention_forward(f->plan, c) == ORDO_OK);
    CHECK(ordo_attention_backward(f->plan, c) == ORDO_OK);
    float *fused = calloc(2 * 5 * 48, sizeof *fused);
    for (int g = 0; g < 3; g++)
        *grads[g] = (ordo_tensor) { fused + 16 * g, { 5 * 48, 48, 4, 1 } };
    CHECK(ordo_attention_backward(f->plan, c) == ORDO_OK);
    for (int row = 0; row < 10; row++) {
        CHECK_BITS(fused + row * 48, f->dq + row * 16, 16);
        CHECK_BITS(fused + row * 48 + 16, f->dk + row * 16, 16);
        CHECK_BITS(fused + row * 48 + 32, f->dv + row * 16, 16);
    }
    free(fused);
    fixture_destroy(f);
}

static void lengths(void)
{
    ordo_problem p = small();
    fixture *f = open_fixture(&p);
    REFUSE(f, forward, f->call.cu_q = f->cu_q, ORDO_ERR_ARGUMENT, "cu_q given", "dense");
    REFUSE(f, forward, f->call.kv_lens = f->kv_lens, ORDO_ERR_ARGUMENT, "kv_lens given");
    fixture_destroy(f);

    p.layout = ORDO_PACKED, p.total_q = 7, p.total_kv = 8;
    f = open_fixture(&p);
    f->cu_q[1] = 5, f->cu_q[2] = 7, f->cu_kv[1] = 2, f->cu_kv[2] = 8;
    CHECK(ordo_attention_forward(f->plan, &f->call) == ORDO_OK);
    REFUSE(f, forward, f->call.cu_q = NULL, ORDO_ERR_ARGUMENT, "cu_q NULL", "packed");
    REFUSE(f, forward, f->cu_q[0] = 1, ORDO_ERR_SHAPE, "cu_q[0] 1: expected 0");
    f->cu_q[0] = 0;
    REFUSE(f, forward, f->cu_q[1] = 6, ORDO_ERR_SHAPE, "cu_q[1] 6", "0..5");
    f->cu_q[1] = 5;
    REFUSE(f, forward, f->cu_q[2] = 4, ORDO_ERR_SHAPE, "cu_q[2] 4", "5..10");
    REFUSE(f, forward, f->cu_q[2] = 8, ORDO_ERR_SHAPE, "cu_q[2] 8: expected at most the total, 7");
    f->cu_q[2] = 7;
    REFUSE(f, forward, f->cu_kv[1] = 7, ORDO_ERR_SHAPE, "cu_kv[1] 7", "0..6");
    REFUSE(f, forward, f->cu_kv[1] = 1, ORDO_ERR_SHAPE, "cu_kv[2] 8", "1..7");
    fixture_destroy(f);

    p = small();
    p.layout = ORDO_PADDED;
    f = open_fixture(&p);
    f->q_lens[1] = 5;
    CHECK(ordo_attention_forward(f->plan, &f->call) == ORDO_OK);
    REFUSE(f, forward, f->call.q_lens = NULL, ORDO_ERR_ARGUMENT, "q_lens NULL", "padded");
    REFUSE(f, forward, f->q_lens[1] = 6, ORDO_ERR_SHAPE, "q_lens[1] 6", "0..5");
    f->q_lens[1] = 5;
    REFUSE(f, forward, f->kv_lens[0] = -1, ORDO_ERR_SHAPE, "kv_lens[0] -1", "0..6");
    fixture_destroy(f);
}

static void slopes_and_dropout(void)
{
    ordo_problem p = small();
    fixture *f = open_fixture(&p);
    REFUSE(f, forward, f->call.slopes = f->slopes, ORDO_ERR_ARGUMENT, "slopes given");
    REFUSE(f, forward, f->call.keep_bits = f->bits, ORDO_ERR_ARGUMENT, "keep_bits given");
    fixture_destroy(f);

    p.alibi = true;
    p.dropout.p = 0.5;
    f = open_fixture(&p);
    CHECK(ordo_attention_forward(f->plan, &f->call) == ORDO_OK);
    const uint64_t big = UINT64_C(1) << 32;
    f->ids[0] = 1 << 30;
    f->ids[1] = -1;
    REFUSE(f, forward, f->call.slopes = NULL, ORDO_ERR_ARGUMENT, "slopes NULL", "expected 4");
    REFUSE(f, forward, f->call.slopes_batch_stride = -1, ORDO_ERR_ARGUMENT,
           "slopes_batch_stride -1");
    REFUSE(f, forward, f->call.offset = big, ORDO_ERR_ARGUMENT, "offset 4294967296");
    REFUSE(f, forward, f->call.offset_ptr = &big, ORDO_ERR_ARGUMENT, "offset 4294967296");
    REFUSE(f, forward, f->call.sequence_ids = f->ids, ORDO_ERR_ARGUMENT,
           "sequence_ids[0] 1073741824", "0..1073741823");
    f->ids[0] = 0;
    REFUSE(f, forward, f->call.sequence_ids = f->ids, ORDO_ERR_ARGUMENT, "sequence_ids[1] -1");
    fixture_destroy(f);
}

/* What is read beside the tensors: none of it in an output, all of it aligned. */
static void arrays_beside_the_tensors(void)
{
    ordo_problem p = small();
    p.alibi = true;
    p.dropout.p = 0.5;
    fixture *f = open_fixture(&p);
    ordo_call *c = &f->call;
    void *const o = f->o + 2, *const dq = f->dq + 2; /* zeros, and sequence 0 */
    REFUSE(f, forward, c->slopes = o, ORDO_ERR_ARGUMENT, "o and slopes overlap");
    c->slopes_batch_stride = 100; /* those of the second sequence */
    REFUSE(f, forward, c->slopes = f->o - 100, ORDO_ERR_ARGUMENT, "o and slopes overlap");
    c->slopes_batch_stride = 0;
    memset(f->o, 0, sizeof f->o);
    memset(f->dq, 0, sizeof f->dq);
    REFUSE(f, forward, c->sequence_ids = o, ORDO_ERR_ARGUMENT, "o and sequence_ids overlap");
    REFUSE(f, backward, c->seed_ptr = dq, ORDO_ERR_ARGUMENT, "dq and seed_ptr overlap");
    REFUSE(f, forward, c->keep_bits = f->bits;
           c->lse = (void *)(f->bits + 511), ORDO_ERR_ARGUMENT, "lse and keep_bits overlap");
    REFUSE(f, forward, c->offset_ptr = (void *)(f->dlse + 1), ORDO_ERR_ALIGN, "offset_ptr",
           "multiple of 8");
    REFUSE(f, forward, c->seed_ptr = (void *)(f->dlse + 1), ORDO_ERR_ALIGN, "seed_ptr");
    REFUSE(f, forward, c->sequence_ids = (void *)(f->dlse + 1), ORDO_ERR_ALIGN, "sequence_ids");
    REFUSE(f, forward, c->slopes = (void *)((char *)f->slopes + 1), ORDO_ERR_ALIGN, "slopes",
           "multiple of 4");
    REFUSE(f, forward, c->keep_bits = (void *)((char *)f->bits + 2), ORDO_ERR_ALIGN, "keep_bits");
    c->keep_bits = f->bits; /* 2 x 4 blocks of 64 words: lse may begin behind them */
    c->lse = (void *)f->q, c->q.data = f->k, c->slopes = f->slopes;
    CHECK_INT(ordo_attention_forward(f->plan, c), ORDO_OK);
    fixture_destroy(f);

    p = small();
    p.layout = ORDO_PACKED, p.total_q = 7, p.total_kv = 8;
    f = open_fixture(&p);
    c = &f->call;
    REFUSE(f, forward, c->cu_q = (void *)((char *)f->cu_q + 1), ORDO_ERR_ALIGN, "cu_q",
           "multiple of 4");
    REFUSE(f, forward, c->cu_kv = (void *)(f->lse + 2), ORDO_ERR_ARGUMENT, "lse and cu_kv overlap");
    fixture_destroy(f);
    p = small();
    p.layout = ORDO_PADDED;
    f = open_fixture(&p);
    c = &f->call;
    REFUSE(f, forward, c->kv_lens = (void *)((char *)f->kv_lens + 2), ORDO_ERR_ALIGN, "kv_lens");
    REFUSE(f, forward, c->q_lens = (void *)(f->lse + 2), ORDO_ERR_ARGUMENT, "lse and q_lens");
    fixture_destroy(f);
}

/* Bits of a packed batch are as many as its sequences have blocks of 16 rows. */
static void bits_of_packed_sequences(void)
{
    ordo_problem p = { .size = sizeof p, .layout = ORDO_PACKED, .batch = 1, .heads = 1 };
    p.q_len = p.total_q = 40;
    p.head_dim = 4;
    p.dropout.p = 0.5;
    fixture *f = open_fixture(&p);
    ordo_call *c = &f->call;
    f->cu_q[1] = f->cu_kv[1] = 40;
    c->keep_bits = f->bits;
    c->lse = (void *)(f->bits + 3 * ORDO_KEEP_WORDS);
    CHECK_INT(ordo_attention_forward(f->plan, c), ORDO_OK);
    REFUSE(f, forward, c->lse = (void *)(f->bits + 3 * ORDO_KEEP_WORDS - 1), ORDO_ERR_ARGUMENT,
           "lse and keep_bits overlap");
    fixture_destroy(f);
}

/* All of it before a backend sees the call: the oracle, and one with a workspace. */
static void refuse_all(ordo_backend which)
{
    backend = which;
    pointers_and_versions();
    strides();
    biases();
    outputs_overlap_nothing();
    lengths();
    slopes_and_dropout();
    arrays_beside_the_tensors();
    bits_of_packed_sequences();
    backend = ORDO_BACKEND_REF;
}

TEST(refused_on_ref)
{
    refuse_all(ORDO_BACKEND_REF);
}

TEST(refused_on_cpu)
{
    refuse_all(ORDO_BACKEND_CPU);
}

/* Seed and offset by value, by pointer, or as the bits they stand for: the same results. */
static void three_ways(ordo_backend which)
{
    ordo_problem p = small();
    backend = which;
    p.dropout.p = 0.5;
    fixture *f = open_fixture(&p);
    float first[120], other[120];
    f->call.seed = 11;
    f->call.offset = 12;
    CHECK(ordo_attention_forward(f->plan, &f->call) == ORDO_OK);
    memcpy(first, f->o, sizeof first);

    const uint64_t seed = 11, offset = 12;
    f->call.seed = f->call.offset = 99;
    CHECK(ordo_attention_forward(f->plan, &f->call) == ORDO_OK);
    int changed = 0;
    for (int i = 0; i < 120; i++)
        changed += first[i] != f->o[i];
    CHECK(changed > 50);
    f->call.seed_ptr = &seed;
    f->call.offset_ptr = &offset;
    CHECK(ordo_attention_forward(f->plan, &f->call) == ORDO_OK);
    memcpy(other, f->o, sizeof other);
    CHECK_BITS(first, other, 120);

    const ordo_keep keep = { 11, 12, 7, 8, 128 };
    for (uint32_t bh = 0; bh < 8; bh++)
        for (uint32_t row = 0; row < 5; row++)
            for (uint32_t quad = 0; quad < 4; quad++)
                f->bits[bh * ORDO_KEEP_WORDS + ordo_keep_index(6, row, 0, quad)] =
                    ordo_keep_word(&keep, bh, row, 0, quad);
    f->call.seed_ptr = f->call.offset_ptr = NULL;
    f->call.keep_bits = f->bits;
    CHECK(ordo_attention_forward(f->plan, &f->call) == ORDO_OK);
    CHECK_BITS(first, f->o, 120);
    fixture_destroy(f);
    backend = ORDO_BACKEND_REF;
}

TEST(three_ways_to_give_keep_bits)
{
    three_ways(ORDO_BACKEND_REF);
    three_ways(ORDO_BACKEND_CPU);
}

static void put(float *to, const data_list *from)
{
    for (int i = 0; i < from->count; i++)
        to[i] = (float)from->at[i];
}

static void compare(const attention_case *k, const char *what, const float *got,
                    const data_list *expected)
{
    for (int i = 0; i < expected->count; i++) {
        const double e = expected->at[i];
        const double slack = 1e-6 * fmax(1, fabs(e)); /* o and lse pass through f32 */
        if (isinf(e) ? (double)got[i] != e : !(fabs((double)got[i] - e) <= slack))
            CHECK_FAIL("%s: %s[%d] is %g, expected %g", k->name, what, i, (double)got[i], e);
    }
}

static void visit(const attention_case *k)
{
    fixture *f = open_fixture(&k->problem);
    put(f->q, &k->q), put(f->k, &k->k), put(f->v, &k->v), put(f->dout, &k->dout);
    put(f->dlse, &k->dlse);
    memcpy(f->cu_q, k->cu_q, sizeof f->cu_q);
    memcpy(f->cu_kv, k->cu_kv, sizeof f->cu_kv);
    memcpy(f->q_lens, k->q_lens, sizeof f->q_lens);
    memcpy(f->kv_lens, k->kv_lens, sizeof f->kv_lens);
    memcpy(f->slopes, k->slopes, sizeof f->slopes);
    if (k->dlse.count == 0)
        f->call.dlse = NULL;
    if (k->has_bits)
        f->call.keep_bits = k->keep_bits;
    if (ordo_attention_forward(f->plan, &f->call) != ORDO_OK ||
        ordo_attention_backward(f->plan, &f->call) != ORDO_OK)
        CHECK_FAIL("%s: %s", k->name, ordo_last_error());
    compare(k, "o", f->o, &k->o);
    compare(k, "lse", f->lse, &k->lse);
    compare(k, "dq", f->dq, &k->dq);
    compare(k, "dk", f->dk, &k->dk);
    compare(k, "dv", f->dv, &k->dv);
    fixture_destroy(f);
}

TEST(known_answers_through_the_public_functions)
{
    attention_cases(visit);
}

TEST(backends)
{
    const char *why = NULL;
    CHECK(ordo_backend_available(ORDO_BACKEND_REF, &why));
    CHECK(ordo_backend_available(ORDO_BACKEND_REF, NULL));
    CHECK(!ordo_backend_available((ordo_backend)17, &why));
    CHECK_HAS(why, "expected ref, cpu, cuda or emulator");
    if (!ordo_backend_available(ORDO_BACKEND_CPU, &why))
        CHECK_HAS(why, "backend cpu");
    if (!ordo_backend_available(ORDO_BACKEND_CUDA, &why))
        CHECK_HAS(why, "backend cuda");
}

CHECK_MAIN()
