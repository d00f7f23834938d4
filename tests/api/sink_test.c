/* sink_test.c: what a call with sinks must not ask for, callers that do not know them, and problems
 * without keys. */
#include "check.h"
#include "ordo/ordo.h"

enum { BATCH = 2, HEADS = 3, ROWS = 4, DIM = 8, COUNT = BATCH * HEADS * ROWS * DIM };

typedef struct fixture {
    ordo_plan *plan;
    ordo_call call;
    float q[COUNT], k[COUNT], v[COUNT], o[COUNT], dout[COUNT], dq[COUNT], dk[COUNT], dv[COUNT];
    float lse[BATCH * HEADS * ROWS], dlse[BATCH * HEADS * ROWS];
    float sink[HEADS + 1], dsink[HEADS], dsink_parts[BATCH * HEADS];
    int32_t q_lens[BATCH], kv_lens[BATCH];
} fixture;

static ordo_problem problem(void)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.batch = BATCH;
    p.heads = HEADS;
    p.q_len = ROWS;
    p.head_dim = DIM;
    return p;
}

static fixture *fixture_create(const ordo_problem *p, ordo_backend backend)
{
    fixture *f = calloc(1, sizeof *f);
    uint64_t state = 9;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.backend = backend;
    ordo_machine *machine = NULL;
    if (backend == ORDO_BACKEND_CUDA)
        CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    if (!f || ordo_plan_create(&f->plan, p, machine, &options) != ORDO_OK) {
        printf("  %s\n", ordo_last_error());
        exit(1);
    }
    ordo_machine_destroy(machine);
    float *const inputs[] = { f->q, f->k, f->v, f->dout };
    for (int x = 0; x < 4 * COUNT; x++)
        inputs[x / COUNT][x % COUNT] = (float)check_uniform(&state);
    for (int x = 0; x < BATCH * HEADS * ROWS; x++)
        f->dlse[x] = (float)check_uniform(&state);
    for (int h = 0; h < HEADS; h++)
        f->sink[h] = (float)(h - 1);
    f->call = (ordo_call)ORDO_CALL_INIT;
    void **const data[] = {
        &f->call.q.data,  &f->call.k.data,  &f->call.v.data,    &f->call.o.data,
        &f->call.dq.data, &f->call.dk.data, &f->call.dout.data, &f->call.dv.data
    };
    float *const memory[] = { f->q, f->k, f->v, f->o, f->dq, f->dk, f->dout, f->dv };
    for (int x = 0; x < 8; x++)
        *data[x] = memory[x];
    f->call.lse = f->lse;
    f->call.dlse = f->dlse;
    f->call.sink = f->sink;
    f->call.dsink = f->dsink;
    f->call.dsink_parts = f->dsink_parts;
    f->call.workspace_bytes = ordo_plan_workspace(f->plan);
    f->call.workspace = aligned_alloc(256, (f->call.workspace_bytes + 511) / 256 * 256);
    return f;
}

static void fixture_destroy(fixture *f)
{
    ordo_plan_destroy(f->plan);
    free(f->call.workspace);
    free(f);
}

/* Change one thing, expect a refusal that says so and writes nothing, put it back. */
#define REFUSE(f, pass, set, status, ...)                                                          \
    do {                                                                                           \
        const ordo_call saved_ = (f)->call;                                                        \
        (f)->o[0] = (f)->dq[0] = (f)->dsink[0] = (f)->dsink_parts[0] = 77;                         \
        set;                                                                                       \
        CHECK_REFUSED_AS(#set, ordo_attention_##pass((f)->plan, &(f)->call), status, __VA_ARGS__); \
        CHECK((f)->o[0] == 77 && (f)->dq[0] == 77);                                                \
        CHECK((f)->dsink[0] == 77 && (f)->dsink_parts[0] == 77);                                   \
        (f)->call = saved_;                                                                        \
    } while (0)

TEST(refusals)
{
    const ordo_problem p = problem();
    fixture *f = fixture_create(&p, ORDO_BACKEND_CPU);
    ordo_call *c = &f->call;
    REFUSE(f, backward, c->sink = NULL, ORDO_ERR_ARGUMENT, "dsink given, sink NULL", "3 logits");
    REFUSE(f, backward, (c->sink = NULL, c->dsink = NULL), ORDO_ERR_ARGUMENT,
           "dsink_parts given, sink NULL");
    REFUSE(f, forward, c->sink = (float *)((char *)f->sink + 2), ORDO_ERR_ALIGN, "sink",
           "multiple of 4");
    REFUSE(f, backward, c->dsink = (float *)((char *)f->dsink + 1), ORDO_ERR_ALIGN, "dsink");
    REFUSE(f, backward, c->dsink = f->sink + 1, ORDO_ERR_ARGUMENT, "sink and dsink overlap");
    REFUSE(f, backward, c->dsink = f->dsink_parts + 2, ORDO_ERR_ARGUMENT, "dsink", "overlap");
    REFUSE(f, backward, c->dsink_parts = f->dq, ORDO_ERR_ARGUMENT, "dq and dsink_parts overlap");
    REFUSE(f, forward, c->sink = f->o, ORDO_ERR_ARGUMENT, "o and sink overlap");
    fixture_destroy(f);
}

TEST(columns_after_the_first)
{
    ordo_problem p = problem();
    p.shard.col0 = 128;
    p.shard.kv_total = 128 + ROWS;
    fixture *f = fixture_create(&p, ORDO_BACKEND_CPU);
    REFUSE(f, forward, (void)0, ORDO_ERR_ARGUMENT, "sink given, shard.col0 128", "column 0");
    REFUSE(f, backward, (void)0, ORDO_ERR_ARGUMENT, "sink given, shard.col0 128");
    fixture_destroy(f);
}

/* Rows that see a sink and no key are the host's: refused before a device is looked for. */
TEST(cuda_has_no_sinks_without_keys)
{
    ordo_problem p = problem();
    p.dtype = ORDO_BF16;
    p.kv_len = ORDO_NO_KEYS;
    fixture *f = fixture_create(&p, ORDO_BACKEND_CUDA);
    REFUSE(f, forward, (void)0, ORDO_ERR_UNSUPPORTED, "sink given, kv_len 0", "backend cpu");
    REFUSE(f, backward, (void)0, ORDO_ERR_UNSUPPORTED, "sink given, kv_len 0");
    fixture_destroy(f);
}

/* A program that was compiled before there were sinks: its struct ends before them. */
TEST(older_callers)
{
    const ordo_problem p = problem();
    fixture *f = fixture_create(&p, ORDO_BACKEND_CPU);
    float without[COUNT];
    f->call.sink = NULL;
    CHECK_INT(ordo_attention_forward(f->plan, &f->call), ORDO_OK);
    memcpy(without, f->o, sizeof without);
    f->call.sink = f->sink;
    f->call.size = offsetof(ordo_call, sink);
    CHECK_INT(ordo_attention_forward(f->plan, &f->call), ORDO_OK);
    CHECK_BITS(f->o, without, COUNT);
    fixture_destroy(f);
}

/* Without keys each row of a sequence sees only the sink: lse is it, and dsink the sum of dlse. */
TEST(no_keys)
{
    static const ordo_backend backends[] = { ORDO_BACKEND_REF, ORDO_BACKEND_CPU };
    for (int x = 0; x < 4; x++) {
        const bool padded = x >= 2;
        ordo_problem p = problem();
        p.kv_len = ORDO_NO_KEYS;
        p.layout = padded ? ORDO_PADDED : ORDO_DENSE;
        fixture *f = fixture_create(&p, backends[x % 2]);
        f->q_lens[0] = 3, f->q_lens[1] = ROWS;
        f->call.q_lens = padded ? f->q_lens : NULL;
        f->call.kv_lens = padded ? f->kv_lens : NULL;
        CHECK_INT(ordo_attention_forward(f->plan, &f->call), ORDO_OK);
        CHECK_INT(ordo_attention_backward(f->plan, &f->call), ORDO_OK);
        for (int h = 0; h < HEADS; h++) {
            double all = 0;
            for (int b = 0; b < BATCH; b++) {
                double sum = 0;
                for (int r = 0; r < ROWS; r++) {
                    const int at = (b * HEADS + h) * ROWS + r;
                    const bool held = !padded || r < f->q_lens[b];
                    CHECK(f->lse[at] == (held ? f->sink[h] : -INFINITY));
                    sum += held ? (double)f->dlse[at] : 0;
                }
                all += sum;
                CHECK(fabs((double)f->dsink_parts[b * HEADS + h] - sum) < 1e-6);
            }
            CHECK(fabs((double)f->dsink[h] - all) < 1e-6);
        }
        fixture_destroy(f);
    }
}

/* A batch of none has a gradient too: 0. */
TEST(no_sequence)
{
    ordo_problem p = problem();
    p.batch = 0;
    fixture *f = fixture_create(&p, ORDO_BACKEND_CPU);
    f->dsink[0] = f->dsink[HEADS - 1] = 77;
    CHECK_INT(ordo_attention_forward(f->plan, &f->call), ORDO_OK);
    CHECK_INT(ordo_attention_backward(f->plan, &f->call), ORDO_OK);
    CHECK(f->dsink[0] == 0 && f->dsink[HEADS - 1] == 0);
    fixture_destroy(f);
}

CHECK_MAIN()
