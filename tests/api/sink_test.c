/* sink_test.c: what a call with sinks must not ask for, callers that do not know them, and problems
 * without keys. */
#include "host_call.h"

enum { BATCH = 2, HEADS = 3, ROWS = 4, DIM = 8, COUNT = BATCH * HEADS * ROWS * DIM };

static ordo_problem problem(void)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.batch = BATCH;
    p.heads = HEADS;
    p.q_len = ROWS;
    p.head_dim = DIM;
    return p;
}

static fixture *open_fixture(const ordo_problem *p, ordo_backend backend)
{
    fixture *f = fixture_create(p, backend);
    for (int h = 0; h < HEADS; h++)
        f->sink[h] = (float)(h - 1);
    f->call.sink = f->sink;
    f->call.dsink = f->dsink;
    f->call.dsink_parts = f->dsink_parts;
    return f;
}

TEST(refusals)
{
    const ordo_problem p = problem();
    fixture *f = open_fixture(&p, ORDO_BACKEND_CPU);
    ordo_call *c = &f->call;
    REFUSE(f, backward, c->sink = NULL, ORDO_ERR_ARGUMENT, "dsink given, sink NULL", "3 logits");
    REFUSE(f, backward, (c->sink = NULL, c->dsink = NULL), ORDO_ERR_ARGUMENT,
           "dsink_parts given, sink NULL");
    REFUSE(f, forward, c->sink = (float *)((char *)f->sink + 2), ORDO_ERR_ALIGN, "sink",
           "multiple of 4");
    REFUSE(f, backward, c->dsink = (float *)((char *)f->dsink + 1), ORDO_ERR_ALIGN, "dsink");
    REFUSE(f, backward, c->dsink = f->sink + 1, ORDO_ERR_ARGUMENT, "sink and dsink overlap");
    REFUSE(f, backward, c->dsink = f->dsink_parts + 5, ORDO_ERR_ARGUMENT, "dsink", "overlap");
    REFUSE(f, backward, c->dsink_parts = f->dq, ORDO_ERR_ARGUMENT, "dq and dsink_parts overlap");
    REFUSE(f, forward, c->sink = f->o, ORDO_ERR_ARGUMENT, "o and sink overlap");
    fixture_destroy(f);
}

TEST(columns_after_the_first)
{
    ordo_problem p = problem();
    p.shard.col0 = 128;
    p.shard.kv_total = 128 + ROWS;
    fixture *f = open_fixture(&p, ORDO_BACKEND_CPU);
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
    fixture *f = open_fixture(&p, ORDO_BACKEND_CUDA);
    REFUSE(f, forward, (void)0, ORDO_ERR_UNSUPPORTED, "sink given, kv_len 0", "backend cpu");
    REFUSE(f, backward, (void)0, ORDO_ERR_UNSUPPORTED, "sink given, kv_len 0");
    fixture_destroy(f);
}

/* A program that was compiled before there were sinks: its struct ends before them. */
TEST(older_callers)
{
    const ordo_problem p = problem();
    fixture *f = open_fixture(&p, ORDO_BACKEND_CPU);
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
        fixture *f = open_fixture(&p, backends[x % 2]);
        f->q_lens[0] = 3, f->q_lens[1] = ROWS;
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
    fixture *f = open_fixture(&p, ORDO_BACKEND_CPU);
    f->dsink[0] = f->dsink[HEADS - 1] = 77;
    CHECK_INT(ordo_attention_forward(f->plan, &f->call), ORDO_OK);
    CHECK_INT(ordo_attention_backward(f->plan, &f->call), ORDO_OK);
    CHECK(f->dsink[0] == 0 && f->dsink[HEADS - 1] == 0);
    fixture_destroy(f);
}

CHECK_MAIN()
