/* cuda_segments_test.c: passes in segments of a cuda plan, down to a module that computes on the
 * host (fake_module.so): the results of one pass, the order of what is launched on two streams, and
 * what is refused before anything is. */
#include "fake_load.h"
#include "plan_requests.h"

#include "ordo/attention.h"

enum { SEQUENCES = 2, HEADS = 2, KV_HEADS = 1, ROWS = 150, DIM = 128 };
enum { Q = SEQUENCES * ROWS * HEADS * DIM, K = SEQUENCES * ROWS * KV_HEADS * DIM };

typedef struct tensors {
    _Alignas(256) uint16_t q[Q], k[K], v[K], dout[Q];
    struct {
        uint16_t o[Q], dq[Q], dk[K], dv[K];
        float lse[SEQUENCES * HEADS * ROWS];
    } out;
    float dlse[SEQUENCES * HEADS * ROWS];
    int64_t ids[SEQUENCES];
    uint64_t rng[2];
} tensors;

static tensors one, many;

static void fill(tensors *t)
{
    uint64_t seed = 260;
    uint16_t *const inputs[] = { t->q, t->k, t->v, t->dout };
    const int counts[] = { Q, K, K, Q };
    memset(t, 0x5a, sizeof *t);
    for (int x = 0; x < 4; x++)
        for (int i = 0; i < counts[x]; i++) /* bf16 of magnitude 0.5 to 2 */
            inputs[x][i] = (uint16_t)((check_random(&seed) & 0x80ff) | 0x3f00);
    for (int i = 0; i < SEQUENCES * HEADS * ROWS; i++)
        t->dlse[i] = (float)check_uniform(&seed);
    for (int b = 0; b < SEQUENCES; b++)
        t->ids[b] = 11 - 3 * b;
    t->rng[0] = 77, t->rng[1] = 5;
}

static request asked(int64_t segments, ordo_mask mask)
{
    request r = on_h200();
    setenv("FAKE_ATTENTION", "1", 1);
    r.problem.batch = SEQUENCES;
    r.problem.heads = HEADS;
    r.problem.kv_heads = KV_HEADS;
    r.problem.q_len = ROWS;
    r.problem.mask = mask;
    r.problem.dropout.p = 0.25;
    r.options.segments = segments;
    return r;
}

/* Without a workspace. */
static ordo_call call_of(tensors *t, const ordo_plan *plan, void *side)
{
    static int stream;
    ordo_call c = ORDO_CALL_INIT;
    c.q.data = t->q, c.k.data = t->k, c.v.data = t->v, c.dout.data = t->dout;
    c.o.data = t->out.o, c.dq.data = t->out.dq, c.dk.data = t->out.dk, c.dv.data = t->out.dv;
    c.lse = t->out.lse;
    c.dlse = t->dlse;
    c.sequence_ids = t->ids;
    c.seed_ptr = &t->rng[0], c.offset_ptr = &t->rng[1];
    c.stream = &stream;
    c.side_stream = side;
    c.workspace_bytes = ordo_plan_workspace(plan);
    return c;
}

static void *workspace_of(const ordo_call *c)
{
    void *memory = aligned_alloc(256, c->workspace_bytes);
    if (!memory)
        exit(1);
    memset(memory, 0xa5, c->workspace_bytes);
    return memory;
}

static void run(tensors *t, const request *r, void *side)
{
    ordo_plan *plan = make(r);
    ordo_call c = call_of(t, plan, side);
    c.workspace = workspace_of(&c);
    CHECK_INT(ordo_attention_forward(plan, &c), ORDO_OK);
    CHECK_INT(ordo_attention_backward(plan, &c), ORDO_OK);
    free(c.workspace);
    ordo_plan_destroy(plan);
}

TEST(results_are_those_of_one_pass)
{
    LOAD_FAKE(f);
    int side;
    for (int mask = 0; mask < 2; mask++) {
        request r = asked(0, mask ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL);
        fill(&one);
        run(&one, &r, NULL);
        static const int counts[] = { 1, 2, 3, 3 };
        for (int x = 0; x < 4; x++) {
            r.options.segments = counts[x];
            fill(&many);
            run(&many, &r, x % 2 ? &side : NULL);
            CHECK(memcmp((const char *)&one.out, (const char *)&many.out, sizeof one.out) == 0);
        }
    }
}

/* Index of the last launch before `end` of a kind on a stream; -1: none. */
static int last(const fake_record *f, int end, int kind, const void *stream, const void *thing)
{
    while (--end >= 0)
        if ((int)f->launches[end].kind == kind && f->launches[end].stream == stream &&
            (!thing || f->launches[end].thing == thing))
            return end;
    return -1;
}

/* Whether launch `b` waits for launch `a`, on another stream: an event is recorded after `a`, and
 * then waited for before `b`. */
static bool waits(const fake_record *f, int a, int b)
{
    const fake_launch *l = f->launches;
    for (int w = b - 1; w > a; w--) {
        if (l[w].kind != FAKE_WAIT || l[w].stream != l[b].stream)
            continue;
        for (int r = w - 1; r > a; r--)
            if (l[r].kind == FAKE_RECORD && l[r].stream == l[a].stream && l[r].thing == l[w].thing)
                return true;
    }
    return false;
}

/* Bits wait for the pass that had their place, a pass for its bits; and bits of the next segment
 * are launched before the pass that they run beside. */
static void check_order(const fake_record *f, const void *side, int segments)
{
    const fake_launch *l = f->launches;
    int bits[16] = { 0 }, passes[16] = { 0 }, filled = 0, ran = 0;
    for (int i = 0; i < f->launched; i++) {
        if (l[i].kind == FAKE_BITS && filled < 16)
            bits[filled++] = i;
        if (l[i].kind == FAKE_PASS && ran < 16)
            passes[ran++] = i;
    }
    CHECK_INT(filled, segments);
    CHECK_INT(ran, segments);
    for (int n = 0; n < segments && filled == segments && ran == segments; n++) {
        CHECK(l[bits[n]].stream == side && l[passes[n]].stream != side);
        CHECK(l[bits[n]].thing == l[passes[n]].thing);
        CHECK(n == 0 || l[passes[n]].thing != l[passes[n - 1]].thing);
        CHECK(waits(f, bits[n], passes[n]));
        CHECK(n < 2 || waits(f, passes[n - 2], bits[n]));
        CHECK(n + 1 == segments || bits[n + 1] < passes[n]);
    }
    CHECK(last(f, bits[0], FAKE_WAIT, side, NULL) >
          last(f, bits[0], FAKE_RECORD, l[passes[0]].stream, NULL));
    CHECK(last(f, bits[0], FAKE_RECORD, l[passes[0]].stream, NULL) >= 0);
}

TEST(order_on_two_streams)
{
    LOAD_FAKE(f);
    int side;
    setenv("FAKE_BLIND", "1", 1);
    for (int segments = 1; segments <= 3; segments++) {
        const request r = asked(segments, ORDO_MASK_CAUSAL);
        ordo_plan *plan = make(&r);
        fill(&many);
        ordo_call c = call_of(&many, plan, &side);
        c.workspace = workspace_of(&c);
        c.sequence_ids = NULL;
        f->launched = 0;
        CHECK_INT(ordo_attention_forward(plan, &c), ORDO_OK);
        check_order(f, &side, segments);
        f->launched = 0;
        CHECK_INT(ordo_attention_backward(plan, &c), ORDO_OK);
        check_order(f, &side, segments);
        free(c.workspace);
        ordo_plan_destroy(plan);
    }
    unsetenv("FAKE_BLIND");
}

/* Nothing is launched for a call that the kernels do not take. */
TEST(refused_before_the_first_launch)
{
    LOAD_FAKE(f);
    int side;
    const request r = asked(3, ORDO_MASK_CAUSAL);
    ordo_plan *plan = make(&r);
    fill(&many);
    ordo_call c = call_of(&many, plan, &side);
    c.workspace = workspace_of(&c);
    f->launched = 0;
    c.q.data = many.q + 1;
    CHECK_REFUSED(ordo_attention_forward(plan, &c), ORDO_ERR_ALIGN, "q.data");
    c.q.data = many.q;
    c.workspace_bytes--;
    CHECK_INT(ordo_attention_backward(plan, &c), ORDO_ERR_SHAPE);
    CHECK_INT(f->launched, 0);
    free(c.workspace);
    ordo_plan_destroy(plan);
}

/* Bits in the workspace: no longer than the plan says, at 128k tokens too. */
TEST(long_sequences_allocate_two_segments)
{
    LOAD_FAKE(f);
    request r = asked(0, ORDO_MASK_CAUSAL);
    r.problem.batch = 1;
    r.problem.heads = r.problem.kv_heads = 32;
    r.problem.q_len = 131072;
    r.options.keep_bits_memory = 64 << 20;
    ordo_plan *plan = make(&r);
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    CHECK_INT(ordo_plan_query(plan, &info), ORDO_OK);
    CHECK_INT(info.segment_bytes, 64 << 20);
    ordo_call c = call_of(&many, plan, NULL); /* the module touches no memory */
    c.sequence_ids = NULL, c.dlse = NULL;
    c.workspace = (void *)((uintptr_t)1 << 40);
    c.q.data = (void *)((uintptr_t)2 << 40), c.k.data = (void *)((uintptr_t)3 << 40);
    c.v.data = (void *)((uintptr_t)4 << 40), c.o.data = (void *)((uintptr_t)5 << 40);
    c.lse = (float *)((uintptr_t)6 << 40);
    setenv("FAKE_BLIND", "1", 1);
    f->launched = 0;
    const int before = f->forward;
    CHECK_INT(ordo_attention_forward(plan, &c), ORDO_OK);
    CHECK_INT(f->forward - before, 2048);
    const char *const begin = c.workspace;
    for (int i = 0; i < f->launched; i++) {
        const char *bits = f->launches[i].thing;
        CHECK(bits >= begin && bits + (32 << 20) <= begin + info.forward_workspace_bytes);
    }
    unsetenv("FAKE_BLIND");
    ordo_plan_destroy(plan);
}

CHECK_MAIN()
