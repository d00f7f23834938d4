/* cuda_call_test.c: the public functions of a device, down to a module that stands for one
 * (fake_module.so): what reaches it, what is refused, what is never read on the host. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "api/cuda_pass.h"
#include "cuda_call.h"
#include "fake_load.h"
#include "ordo/dropout.h"
#include "ordo/sum.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Digests, sums, merges and keep bits need a device of any family. */
static bool digests_run(void)
{
    static uint64_t word, room[1], digest;
    const ordo_bytes span = { &word, sizeof word };
    ordo_digest_call c = ORDO_DIGEST_CALL_INIT;
    c.backend = ORDO_BACKEND_CUDA, c.count = 1, c.spans = &span, c.digests = &digest;
    c.workspace = room, c.workspace_bytes = sizeof room;
    return ordo_digest_run(&c) == ORDO_OK;
}

/* What ordo_backend_available() says in a child with another environment. */
static void availability(const char *module, const char *capability, char *why, size_t size)
{
    int ends[2];
    memset(why, 0, size);
    if (pipe(ends) != 0)
        exit(1);
    const pid_t child = fork();
    if (child == 0) {
        const char *said = NULL;
        setenv("ORDO_CUDA_MODULE", module, 1);
        setenv("FAKE_CAPABILITY", capability, 1);
        const bool available = ordo_backend_available(ORDO_BACKEND_CUDA, &said);
        const request r = small();
        fixture *f = open_fixture(&r);
        const ordo_status status = ordo_attention_forward(f->plan, &f->call);
        const bool same = available == (status == ORDO_OK) && available == !*said &&
                          (available || strcmp(said, ordo_last_error()) == 0);
        if (!same)
            said = "availability and a pass disagree";
        if (digests_run() != (strcmp(module, "/no/such/module.so") != 0))
            said = "digests need another device than any";
        _exit(write(ends[1], said, strlen(said)) < 0);
    }
    close(ends[1]);
    CHECK(read(ends[0], why, size - 1) >= 0);
    close(ends[0]);
    waitpid(child, NULL, 0);
}

TEST(available_or_why_not)
{
    char why[512];
    if (!fake_path())
        SKIP("ORDO_BUILD is not set");
    availability("/no/such/module.so", "90", why, sizeof why);
    CHECK_HAS(why, "backend cuda: CUDA module: /no/such/module.so");
    availability(fake_path(), "80", why, sizeof why);
    CHECK_TEXT(why,
               "backend cuda: device 0, NVIDIA H200, has compute capability 8.0, expected sm90");
    availability(fake_path(), "90", why, sizeof why);
    CHECK_TEXT(why, "");
}

/* From here on the fake module is loaded into this process. */
TEST(passes_reach_the_module)
{
    LOAD_FAKE(passes);
    const request r = small();
    fixture *f = open_fixture(&r);
    for (int x = 0; x < Q; x++)
        f->q[x] = (uint16_t)x, f->dout[x] = (uint16_t)(x * 3);
    for (int x = 0; x < K; x++)
        f->k[x] = (uint16_t)(x * 5), f->v[x] = (uint16_t)(x * 7);
    CHECK_INT(ordo_attention_forward(f->plan, &f->call), ORDO_OK);
    CHECK_INT(passes->forward, 1);
    CHECK(memcmp(f->o, f->q, sizeof f->o) == 0);
    CHECK_INT(ordo_attention_backward(f->plan, &f->call), ORDO_OK);
    CHECK_INT(passes->backward, 1);
    CHECK(memcmp(f->dq, f->dout, sizeof f->dq) == 0);
    CHECK(memcmp(f->dk, f->k, sizeof f->dk) == 0);
    CHECK(memcmp(f->dv, f->v, sizeof f->dv) == 0);
    CHECK_INT(passes->last.run.sequences, BATCH);

    /* Refused before anything is launched: workspace, alignment, what the kernels do not do. */
    f->call.workspace_bytes--;
    CHECK_INT(ordo_attention_backward(f->plan, &f->call), ORDO_ERR_SHAPE);
    f->call.workspace_bytes = 255;
    CHECK_REFUSED(ordo_attention_forward(f->plan, &f->call), ORDO_ERR_SHAPE,
                  "workspace_bytes 255: expected at least 256");
    f->call.workspace_bytes = ordo_plan_workspace(f->plan);
    f->call.q.data = f->q + 1;
    CHECK_INT(ordo_attention_forward(f->plan, &f->call), ORDO_ERR_ALIGN);
    CHECK_INT(passes->forward, 1);
    CHECK_INT(passes->backward, 1);
    close_fixture(f);
}

/* Sums to continue, and passes that compute some gradients only. */
TEST(carried_sums_reach_the_module)
{
    LOAD_FAKE(passes);
    static _Alignas(16) float dk_sums[K], dv_sums[K];
    const request r = small();
    fixture *f = open_fixture(&r);
    f->call.dk_sums = dk_sums, f->call.dv_sums = dv_sums;
    f->call.carry = ORDO_CARRY_OUT;
    CHECK_INT(ordo_attention_backward(f->plan, &f->call), ORDO_OK);
    CHECK(passes->last.carry.out && !passes->last.carry.in && passes->last.carry.dk == dk_sums);
    CHECK(!passes->last.dk.data && !passes->last.dv.data); /* not written, although given */
    CHECK(passes->last.dq.data == f->dq);
    f->call.carry = ORDO_CARRY_IN;
    f->call.dq.data = NULL;
    CHECK_INT(ordo_attention_backward(f->plan, &f->call), ORDO_OK);
    CHECK(passes->last.carry.in && !passes->last.carry.out && passes->last.carry.dv == dv_sums);
    CHECK(passes->last.dk.data == f->dk && !passes->last.dq.data);
    f->call.dk_sums = dk_sums + 2; /* 8 bytes */
    CHECK_REFUSED(ordo_attention_backward(f->plan, &f->call), ORDO_ERR_ALIGN, "dk_sums");
    f->call.carry = 0, f->call.dk_sums = f->call.dv_sums = NULL;
    f->call.dq.data = f->dq, f->call.dk.data = f->call.dv.data = NULL;
    CHECK_INT(ordo_attention_backward(f->plan, &f->call), ORDO_OK);
    CHECK(!passes->last.dk.data && passes->last.dq.data == f->dq);
    close_fixture(f);
}

TEST(combinations_reach_the_module)
{
    enum { PARTS = 97 };
    LOAD_FAKE(passes);
    request r = small();
    r.problem.dtype = ORDO_F16;
    r.problem.head_dim = 60; /* rows are read element by element */
    fixture *f = open_fixture(&r);
    ordo_tensor o[PARTS];
    const float *lse[PARTS];
    for (int x = 0; x < PARTS; x++)
        o[x] = (ordo_tensor) { f->q, { 0 } }, lse[x] = f->lse;
    static float out_lse[BATCH * HEADS * ROWS];
    ordo_combine c = ORDO_COMBINE_INIT;
    c.parts = PARTS - 1, c.o_parts = o, c.lse_parts = lse;
    c.o.data = f->o, c.lse = out_lse, c.stream = f;
    CHECK_INT(ordo_attention_combine(f->plan, &c), ORDO_OK);
    const ordo_cuda_combine *got = &passes->last_combine;
    CHECK_INT(got->parts, PARTS - 1);
    CHECK(got->o_parts == o && got->lse_parts == lse);
    CHECK_INT(got->sequences, BATCH);
    CHECK_INT(got->heads, HEADS);
    CHECK_INT(got->rows, ROWS);
    CHECK_INT(got->dim, 60);
    CHECK(got->f16 && got->o.data == f->o && got->lse == out_lse && got->stream == f);

    c.parts = PARTS; /* more than a launch's parameters hold */
    CHECK_REFUSED(ordo_attention_combine(f->plan, &c), ORDO_ERR_SHAPE,
                  "workspace_bytes 0: backend cuda expects at least 3880 for 97");
    c.workspace = (char *)f->call.workspace + 16, c.workspace_bytes = 3880;
    CHECK_INT(ordo_attention_combine(f->plan, &c), ORDO_ERR_ALIGN);
    c.workspace = f->call.workspace;
    const int before = passes->combine;
    CHECK_INT(ordo_attention_combine(f->plan, &c), ORDO_OK);
    CHECK_INT(passes->combine, before + 1);
    CHECK((void *)got->table == c.workspace);
    close_fixture(f);
}

TEST(digests_reach_the_module)
{
    LOAD_FAKE(passes);
    static _Alignas(8) unsigned char data[100000];
    uint64_t here[2], there[2], room[3];
    const ordo_bytes spans[2] = { { data, sizeof data }, { data + 8, 77 } };
    for (size_t x = 0; x < sizeof data; x++)
        data[x] = (unsigned char)(x * 7 + x / 256);
    ordo_digest_call c = ORDO_DIGEST_CALL_INIT;
    c.backend = ORDO_BACKEND_CPU, c.count = 2, c.spans = spans, c.digests = here;
    c.workspace = room, c.workspace_bytes = sizeof room;
    CHECK_INT(ordo_digest_run(&c), ORDO_OK);
    const int before = passes->digest;
    c.backend = ORDO_BACKEND_CUDA, c.digests = there;
    CHECK_INT(ordo_digest_run(&c), ORDO_OK);
    CHECK_INT(passes->digest, before + 1);
    CHECK_BITS(here, there, 2);
    const ordo_bytes odd = { data + 4, 77 };
    c.count = 1, c.spans = &odd;
    CHECK_REFUSED(ordo_digest_run(&c), ORDO_ERR_ALIGN, "spans[0].data");
    c.count = 0;
    CHECK_INT(ordo_digest_run(&c), ORDO_OK);
    CHECK_INT(passes->digest, before + 1);
}

TEST(sums_reach_the_module)
{
    enum { ELEMENTS = 32 };
    static float data[2][ELEMENTS], out[ELEMENTS];
    const void *const inputs[] = { data[0], data[1] };
    LOAD_FAKE(passes);
    ordo_sum s = ORDO_SUM_INIT;
    s.dtype = ORDO_F32;
    s.count = 2;
    s.elements = ELEMENTS;
    s.inputs = inputs;
    s.out = out;
    CHECK_INT(ordo_sum_tree_device(&s, &s), ORDO_OK);
    CHECK_INT(passes->sum, 1);
    CHECK(passes->last_sum_stream == &s);
    CHECK(passes->last_sum.out == out && passes->last_sum.inputs == inputs);
    CHECK_INT(passes->last_sum.count, 2);
    CHECK_INT(passes->last_sum.elements, ELEMENTS);
    s.out = NULL;
    CHECK_INT(ordo_sum_tree_device(&s, NULL), ORDO_ERR_ARGUMENT);
    s.elements = 0;
    CHECK_INT(ordo_sum_tree_device(&s, NULL), ORDO_OK);
    CHECK_INT(passes->sum, 1); /* nothing to launch */
}

/* Nothing is launched, no workspace needed; what has elements is written. */
static void check_empty(const fake_record *passes, const request *r, bool rows, bool keys)
{
    enum { MOST = Q > K ? Q : K, LSE = BATCH * HEADS * ROWS };
    static uint16_t zeros[MOST], poison[MOST];
    static const float lse[LSE], *const lse_part = lse;
    const int32_t ends[BATCH + 1] = { 0 };
    fixture *f = open_fixture(r);
    ordo_call *c = &f->call;
    const int before = passes->forward + passes->backward, merges = passes->combine;
    memset(poison, POISON, sizeof poison);
    CHECK_INT(ordo_plan_workspace(f->plan), 0);
    if (!rows)
        c->q.data = c->o.data = c->dout.data = c->dq.data = c->lse = NULL;
    if (!keys)
        c->k.data = c->v.data = c->dk.data = c->dv.data = NULL;
    if (r->problem.layout == ORDO_PACKED)
        c->cu_q = c->cu_kv = ends;
    CHECK_INT(ordo_attention_forward(f->plan, c), ORDO_OK);
    for (int x = 0; rows && x < LSE; x++)
        CHECK(f->lse[x] == -INFINITY);
    CHECK_INT(ordo_attention_backward(f->plan, c), ORDO_OK);
    CHECK_INT(passes->forward + passes->backward, before);
    CHECK(memcmp(f->o, rows ? zeros : poison, sizeof f->o) == 0);
    CHECK(memcmp(f->dq, rows ? zeros : poison, sizeof f->dq) == 0);
    CHECK(memcmp(f->dk, keys ? zeros : poison, sizeof f->dk) == 0);
    CHECK(memcmp(f->dv, keys ? zeros : poison, sizeof f->dv) == 0);
    const ordo_combine merge = { .size = sizeof merge,
                                 .parts = 1,
                                 .o_parts = &c->q,
                                 .lse_parts = &lse_part,
                                 .o = c->o,
                                 .lse = c->lse };
    CHECK_INT(ordo_attention_combine(f->plan, &merge), ORDO_OK);
    CHECK_INT(passes->combine, merges + rows);
    close_fixture(f);
}

TEST(empty_problems_of_a_device)
{
    LOAD_FAKE(passes);
    request r = small();
    r.problem.batch = 0;
    check_empty(passes, &r, false, false);
    r = small();
    r.problem.q_len = 0;
    check_empty(passes, &r, false, true);
    r = small();
    r.problem.kv_len = ORDO_NO_KEYS;
    check_empty(passes, &r, true, false);
    r.problem.layout = ORDO_PACKED;
    r.problem.total_q = BATCH * ROWS;
    check_empty(passes, &r, true, false);
    r.problem.kv_len = COLS, r.problem.total_q = 0, r.problem.total_kv = BATCH * COLS;
    check_empty(passes, &r, false, true);
}

/* Bits of a device against those of the host, and how many launches they took. */
static void check_bits(const fake_record *passes, const ordo_problem *p, const ordo_dropout_call *c,
                       int launches)
{
    ordo_dropout_info info;
    CHECK_INT(ordo_dropout_query(p, c, &info), ORDO_OK);
    uint32_t *want = malloc(info.bytes), *got = aligned_alloc(256, info.bytes);
    if (!want || !got)
        exit(1);
    memset(got, POISON, info.bytes);
    const int before = passes->dropout;
    CHECK_INT(ordo_dropout_fill(p, c, 0, info.blocks, want, info.bytes), ORDO_OK);
    CHECK_INT(ordo_dropout_fill_device(p, c, got, info.bytes, NULL), ORDO_OK);
    CHECK(memcmp(got, want, info.bytes) == 0);
    CHECK_INT(passes->dropout - before, launches);
    free(want);
    free(got);
}

TEST(bits_of_a_device)
{
    const int64_t ids[] = { 7, 8, 3 };
    const int32_t cu_q[] = { 0, 40, 80, 80 }, cu_kv[] = { 0, 200, 400, 500 };
    const uint64_t seed = 99, offset = 5;
    LOAD_FAKE(passes);
    request r = small();
    ordo_problem *p = &r.problem;
    ordo_dropout_call c = ORDO_DROPOUT_CALL_INIT;
    p->batch = 3;
    p->dropout.p = 0.17;
    c.seed = 0x123456789abcdef, c.offset = 7;
    check_bits(passes, p, &c, 1);
    c.sequence_ids = ids; /* two that count on, and one that does not */
    check_bits(passes, p, &c, 2);
    c.seed_ptr = &seed, c.offset_ptr = &offset;
    check_bits(passes, p, &c, 2);
    p->shard = (ordo_shard) { .batch0 = 2,
                              .head0 = 4,
                              .row0 = 32,
                              .col0 = 256,
                              .heads_total = 16,
                              .q_total = 1000,
                              .kv_total = 1000 };
    c.sequence_ids = NULL;
    check_bits(passes, p, &c, 1);
    p->shard = (ordo_shard) { 0 };
    p->layout = ORDO_PADDED;
    check_bits(passes, p, &c, 1);
    p->layout = ORDO_PACKED, p->total_q = 80, p->total_kv = 500, p->kv_len = 200;
    c.cu_q = cu_q, c.cu_kv = cu_kv;
    check_bits(passes, p, &c, 1); /* the third has no rows */
    p->dropout.keying = ORDO_KEYING_FA2;
    check_bits(passes, p, &c, 1);
}

/* The same words where only the device knows the ends and ids (the fake one's are the host's), in
 * memory for the most that the totals allow, with a table behind. */
TEST(bits_of_sequences_that_the_device_knows)
{
    const int64_t ids[] = { 7, 8, 3 };
    const int32_t cu_q[] = { 0, 40, 80, 80 }, cu_kv[] = { 0, 200, 400, 500 };
    LOAD_FAKE(passes);
    for (int packed = 0; packed < 2; packed++)
        for (int listed = 0; listed < 2; listed++) {
            request r = small();
            ordo_problem *p = &r.problem;
            ordo_dropout_call c = ORDO_DROPOUT_CALL_INIT;
            ordo_dropout_info exact, most;
            p->batch = 3, p->dropout.p = 0.17, p->shard.heads_total = 8, p->shard.head0 = 2;
            if (packed) {
                p->layout = ORDO_PACKED, p->total_q = 80, p->total_kv = 500, p->kv_len = 200;
                c.cu_q = cu_q, c.cu_kv = cu_kv;
            }
            c.seed = 5, c.offset = 7, c.sequence_ids = listed ? ids : NULL;
            CHECK_INT(ordo_dropout_query(p, &c, &exact), ORDO_OK);
            c.on_device = true;
            CHECK_INT(ordo_dropout_query(p, &c, &most), ORDO_OK);
            CHECK_INT(most.blocks, packed ? HEADS * 8 * 2 : exact.blocks);
            CHECK_INT(most.bytes, most.blocks * 256 + 512);
            CHECK(most.blocks >= exact.blocks && most.elements >= exact.elements);
            uint32_t *words = aligned_alloc(256, most.bytes), *want = malloc(exact.bytes);
            if (!words || !want)
                exit(1);
            memset(words, POISON, most.bytes);
            CHECK_INT(ordo_dropout_fill_device(p, &c, words, most.bytes - 1, NULL), ORDO_ERR_SHAPE);
            CHECK_INT(ordo_dropout_fill_device(p, &c, words, most.bytes, NULL), ORDO_OK);
            CHECK_INT(ordo_dropout_fill(p, &c, 0, exact.blocks, want, exact.bytes),
                      ORDO_ERR_ARGUMENT);
            CHECK_HAS(ordo_last_error(), "on_device true: expected false, except for");
            c.on_device = false;
            CHECK_INT(ordo_dropout_fill(p, &c, 0, exact.blocks, want, exact.bytes), ORDO_OK);
            CHECK(memcmp(words, want, exact.bytes) == 0);
            free(words);
            free(want);
        }
}

/* Memory that faults when the host touches it, as a device's does. */
static char *out_of_reach(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(1);
    return memory;
}

enum { REACH = 1 << 20, PIECES = 24 }; /* bytes reserved for a pointer of a call; most pointers */

static void name_everything(const ordo_problem *p, char *device, ordo_call *c)
{
    ordo_tensor *tensors[] = { &c->q, &c->k, &c->v, &c->o, &c->dout, &c->dq, &c->dk, &c->dv };
    for (int i = 0; i < 8; i++, device += REACH)
        tensors[i]->data = device;
    c->lse = (float *)device, device += REACH;
    c->dlse = (const float *)device, device += REACH;
    if (p->layout == ORDO_PACKED)
        c->cu_q = (const int32_t *)device, c->cu_kv = (const int32_t *)(device + REACH);
    if (p->layout == ORDO_PADDED)
        c->q_lens = (const int32_t *)device, c->kv_lens = (const int32_t *)(device + REACH);
    device += 2 * REACH;
    c->sequence_ids = (const int64_t *)device, device += REACH;
    c->slopes = (const float *)device, c->slopes_batch_stride = p->heads, device += REACH;
    c->seed_ptr = (const uint64_t *)device, device += REACH;
    c->offset_ptr = (const uint64_t *)device, device += REACH;
    c->workspace = device;
}

/* Every layout and mode of dropout: nothing that a call names is touched before it is launched. */
TEST(memory_of_a_device_is_out_of_reach)
{
    LOAD_FAKE(passes);
    setenv("FAKE_BLIND", "1", 1);
    char *device = out_of_reach((size_t)REACH * PIECES);
    for (int layout = ORDO_DENSE; layout <= ORDO_PADDED; layout++)
        for (int given = 0; given < 2; given++) {
            request r = small();
            ordo_problem *p = &r.problem;
            p->layout = (ordo_layout)layout;
            p->alibi = true, p->dropout.p = 0.1;
            if (layout == ORDO_PACKED)
                p->total_q = ROWS + 20, p->total_kv = COLS + 7;
            ordo_plan *plan = make(&r);
            ordo_call call = ORDO_CALL_INIT;
            name_everything(p, device, &call);
            call.workspace_bytes = ordo_plan_workspace(plan);
            call.keep_bits = given ? (const uint32_t *)(device + (PIECES - 1) * REACH) : NULL;
            const int before = passes->forward + passes->dropout;
            CHECK_INT(ordo_attention_forward(plan, &call), ORDO_OK);
            CHECK_INT(ordo_attention_backward(plan, &call), ORDO_OK);

            ordo_dropout_call drop = ORDO_DROPOUT_CALL_INIT;
            ordo_dropout_info info;
            drop.cu_q = call.cu_q, drop.cu_kv = call.cu_kv;
            drop.sequence_ids = given ? call.sequence_ids : NULL;
            drop.seed_ptr = call.seed_ptr, drop.offset_ptr = call.offset_ptr;
            drop.on_device = true;
            CHECK_INT(ordo_dropout_query(p, &drop, &info), ORDO_OK);
            CHECK_INT(ordo_dropout_fill_device(p, &drop, (uint32_t *)device, info.bytes, NULL),
                      ORDO_OK);
            CHECK_INT(passes->forward + passes->dropout, before + 2);

            ordo_combine merge = ORDO_COMBINE_INIT;
            merge.parts = 1, merge.o_parts = &call.q, merge.o = call.o, merge.lse = call.lse;
            merge.lse_parts = &call.dlse;
            CHECK_INT(ordo_attention_combine(plan, &merge), ORDO_OK);
            const bool packed = layout == ORDO_PACKED; /* one sequence of all rows */
            CHECK_INT(passes->last_combine.sequences, packed ? 1 : p->batch);
            CHECK_INT(passes->last_combine.rows, packed ? p->total_q : p->q_len);
            ordo_plan_destroy(plan);
        }
    munmap(device, (size_t)REACH * PIECES);
    unsetenv("FAKE_BLIND");
}

TEST(bits_of_a_device_refused)
{
    _Alignas(16) static uint32_t words[2 * HEADS * BATCH * 7 * ORDO_KEEP_WORDS];
    LOAD_FAKE(passes);
    request r = small();
    ordo_problem *p = &r.problem;
    ordo_dropout_call c = ORDO_DROPOUT_CALL_INIT;
    const int before = passes->dropout;
    p->dropout.p = 0.1;
    CHECK_INT(ordo_dropout_fill_device(p, NULL, words, sizeof words, NULL), ORDO_ERR_ARGUMENT);
    CHECK_REFUSED(ordo_dropout_fill_device(p, &c, NULL, sizeof words, NULL), ORDO_ERR_ARGUMENT,
                  "words NULL");
    CHECK_INT(ordo_dropout_fill_device(p, &c, words, sizeof words - 1, NULL), ORDO_ERR_SHAPE);
    CHECK_REFUSED(ordo_dropout_fill_device(p, &c, words + 2, sizeof words, NULL), ORDO_ERR_ALIGN,
                  "expected a multiple of 16");
    c.offset = UINT64_C(1) << 32;
    CHECK_INT(ordo_dropout_fill_device(p, &c, words, sizeof words, NULL), ORDO_ERR_ARGUMENT);
    c.offset = 0;
    p->q_len = p->kv_len = 1 << 20;
    CHECK_REFUSED(ordo_dropout_fill_device(p, &c, words, sizeof words, NULL), ORDO_ERR_UNSUPPORTED,
                  "blocks of keep bits: backend cuda expects at most 2^31 - 1");
    CHECK_INT(passes->dropout, before);
}

TEST(memory_streams_and_events)
{
    char host[1000], back[1000];
    void *memory = NULL, *stream = NULL, *from = NULL, *to = NULL;
    double seconds = -1;
    bool equal = true;
    LOAD_FAKE(passes);
    memset(host, 7, sizeof host);
    CHECK_INT(ordo_device_select(0), ORDO_OK);
    CHECK_INT(ordo_device_select(1), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_device_alloc(&memory, sizeof host), ORDO_OK);
    CHECK_INT(ordo_device_stream_create(&stream), ORDO_OK);
    CHECK_INT(ordo_device_event_create(&from), ORDO_OK);
    CHECK_INT(ordo_device_event_create(&to), ORDO_OK);
    CHECK_INT(ordo_device_event_record(from, stream), ORDO_OK);
    CHECK_INT(ordo_device_copy(memory, host, sizeof host, stream), ORDO_OK);
    CHECK_INT(ordo_device_fill(memory, 9, 500, stream), ORDO_OK);
    CHECK_INT(ordo_device_copy(back, memory, sizeof host, stream), ORDO_OK);
    CHECK_INT(ordo_device_equal(memory, host, sizeof host, stream, &equal), ORDO_OK);
    CHECK(!equal);
    CHECK_INT(ordo_device_equal(memory, back, sizeof host, stream, &equal), ORDO_OK);
    CHECK(equal);
    CHECK_INT(ordo_device_event_record(to, stream), ORDO_OK);
    CHECK_INT(ordo_device_synchronise(stream), ORDO_OK);
    CHECK_INT(ordo_device_event_elapsed(from, to, &seconds), ORDO_OK);
    CHECK(seconds >= 0);
    CHECK(back[0] == 9 && back[499] == 9 && back[500] == 7 && back[999] == 7);
    CHECK_INT(ordo_device_event_destroy(from), ORDO_OK);
    CHECK_INT(ordo_device_event_destroy(to), ORDO_OK);
    CHECK_INT(ordo_device_stream_destroy(stream), ORDO_OK);
    CHECK_INT(ordo_device_free(memory), ORDO_OK);
    CHECK_INT(ordo_device_free(NULL), ORDO_OK);
    CHECK_REFUSED(ordo_device_alloc(NULL, 1), ORDO_ERR_ARGUMENT, "memory NULL");
    CHECK_INT(ordo_device_event_elapsed(from, to, NULL), ORDO_ERR_ARGUMENT);
}

static void check_machine(const char *part, const char *capability, const char *workers,
                          const char *name)
{
    ordo_machine *machine = NULL;
    double value = 0;
    setenv("FAKE_NAME", part, 1);
    setenv("FAKE_CAPABILITY", capability, 1);
    setenv("FAKE_WORKERS", workers, 1);
    CHECK_INT(ordo_device_machine(0, &machine), ORDO_OK);
    CHECK_TEXT(ordo_machine_name(machine), name);
    CHECK_TEXT(ordo_machine_title(machine), part);
    CHECK_INT(ordo_machine_get(machine, "workers", &value), ORDO_OK);
    CHECK_INT((int64_t)value, atoi(workers));
    CHECK_TEXT(ordo_machine_source(machine, "workers"), "read from the device");
    ordo_machine_destroy(machine);
}

TEST(a_device_as_a_machine)
{
    ordo_machine *machine = NULL;
    LOAD_FAKE(passes);
    check_machine("NVIDIA H200", "90", "132", "h200");
    check_machine("NVIDIA H100 80GB HBM3", "90", "132", "h100");
    check_machine("NVIDIA H100 PCIe", "90", "114", "h100");
    check_machine("NVIDIA H20", "90", "78", "h200"); /* none of its own */
    check_machine("NVIDIA A100-SXM4-80GB", "80", "108", "a100");
    check_machine("NVIDIA B200", "100", "148", "b200");
    setenv("FAKE_NAME", "Tesla V100", 1);
    setenv("FAKE_CAPABILITY", "70", 1);
    CHECK_REFUSED(ordo_device_machine(0, &machine), ORDO_ERR_UNSUPPORTED,
                  "device 0, Tesla V100: no built-in machine has compute "
                  "capability 7.0");
    CHECK(machine == NULL);
    CHECK_INT(ordo_device_machine(3, &machine), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_device_machine(0, NULL), ORDO_ERR_ARGUMENT);
}

CHECK_MAIN()
