/* cuda_sink_test.c: sinks on a real device: -inf has the bits of none, in dense and varlen kernels
 * alike, and NaN and infinities come out where the oracle has them, also where a repair computes
 * rows again. Accuracy and the promise are tests/cuda/grid_test.c's. */
#include "base/half.h"
#include "check.h"
#include "have_device.h"
#include "ordo/ordo.h"

enum { BATCH = 2, HEADS = 3, ROWS = 200, PIECES = 8 };
enum { T_Q, T_K, T_V, T_DOUT, T_O, T_DQ, T_DK, T_DV };

/* Everything of a call on the host. */
typedef struct host {
    uint16_t *at[PIECES];
    float lse[BATCH * HEADS * ROWS], dsink[HEADS], parts[BATCH * HEADS];
    size_t count;
} host;

static host *open_host(int64_t dim)
{
    host *h = calloc(1, sizeof *h);
    uint64_t state = (uint64_t)dim;
    if (!h)
        exit(1);
    h->count = (size_t)(BATCH * ROWS * HEADS * dim);
    for (int t = 0; t < PIECES; t++) {
        h->at[t] = calloc(h->count, sizeof(uint16_t));
        for (size_t x = 0; h->at[t] && t <= T_DOUT && x < h->count; x++)
            h->at[t][x] = ordo_bf16_from_f64(2 * check_uniform(&state));
    }
    return h;
}

static void close_host(host *h)
{
    for (int t = 0; t < PIECES; t++)
        free(h->at[t]);
    free(h);
}

static ordo_plan *plan_of(int64_t dim, ordo_backend backend)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    p.dtype = ORDO_BF16;
    p.batch = BATCH;
    p.heads = HEADS;
    p.q_len = ROWS;
    p.head_dim = dim;
    p.mask = ORDO_MASK_CAUSAL;
    options.backend = backend;
    if (backend == ORDO_BACKEND_CUDA)
        CHECK_INT(ordo_device_machine(0, &machine), ORDO_OK);
    if (ordo_plan_create(&plan, &p, machine, &options) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_machine_destroy(machine);
    return plan;
}

static ordo_call call_of(void *const at[PIECES])
{
    ordo_call c = ORDO_CALL_INIT;
    c.q.data = at[T_Q], c.k.data = at[T_K], c.v.data = at[T_V], c.dout.data = at[T_DOUT];
    c.o.data = at[T_O], c.dq.data = at[T_DQ], c.dk.data = at[T_DK], c.dv.data = at[T_DV];
    return c;
}

/* Both passes on the device, results to the host. `sink` NULL: none. */
static void run_device(const ordo_plan *plan, host *h, const float *sink)
{
    void *at[PIECES], *more[5], *workspace = NULL;
    const size_t bytes = h->count * sizeof(uint16_t), room = ordo_plan_workspace(plan);
    const size_t sizes[5] = { sizeof h->lse, HEADS * sizeof(float), sizeof h->dsink,
                              sizeof h->parts, 1 };
    for (int t = 0; t < PIECES; t++) {
        CHECK_INT(ordo_device_alloc(&at[t], bytes), ORDO_OK);
        CHECK_INT(ordo_device_copy(at[t], h->at[t], bytes, NULL), ORDO_OK);
    }
    for (int x = 0; x < 5; x++)
        CHECK_INT(ordo_device_alloc(&more[x], sizes[x]), ORDO_OK);
    CHECK_INT(ordo_device_alloc(&workspace, room + 1), ORDO_OK);
    ordo_call c = call_of(at);
    c.lse = more[0];
    if (sink) {
        CHECK_INT(ordo_device_copy(more[1], sink, sizes[1], NULL), ORDO_OK);
        c.sink = more[1], c.dsink = more[2], c.dsink_parts = more[3];
    }
    c.workspace = workspace;
    c.workspace_bytes = room;
    if (ordo_attention_forward(plan, &c) != ORDO_OK || ordo_attention_backward(plan, &c) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    CHECK_INT(ordo_device_synchronise(NULL), ORDO_OK);
    for (int t = 0; t < PIECES; t++) {
        CHECK_INT(ordo_device_copy(h->at[t], at[t], bytes, NULL), ORDO_OK);
        CHECK_INT(ordo_device_free(at[t]), ORDO_OK);
    }
    CHECK_INT(ordo_device_copy(h->lse, more[0], sizes[0], NULL), ORDO_OK);
    if (sink) {
        CHECK_INT(ordo_device_copy(h->dsink, more[2], sizes[2], NULL), ORDO_OK);
        CHECK_INT(ordo_device_copy(h->parts, more[3], sizes[3], NULL), ORDO_OK);
    }
    for (int x = 0; x < 5; x++)
        CHECK_INT(ordo_device_free(more[x]), ORDO_OK);
    CHECK_INT(ordo_device_free(workspace), ORDO_OK);
}

static void run_oracle(host *h, int64_t dim, const float *sink)
{
    ordo_plan *plan = plan_of(dim, ORDO_BACKEND_REF);
    ordo_call c = call_of((void *const *)h->at);
    c.lse = h->lse;
    c.sink = sink, c.dsink = h->dsink, c.dsink_parts = h->parts;
    CHECK_INT(ordo_attention_forward(plan, &c), ORDO_OK);
    CHECK_INT(ordo_attention_backward(plan, &c), ORDO_OK);
    ordo_plan_destroy(plan);
}

static const int64_t dims[] = { 64, 128, 192, 256, 80 };
enum { DIMS = sizeof dims / sizeof dims[0] };

TEST(minus_infinity_is_no_sink)
{
    const float none[HEADS] = { -INFINITY, -INFINITY, -INFINITY };
    if (!have_device())
        SKIP("no device of compute capability 9.0");
    for (int x = 0; x < DIMS; x++) {
        ordo_plan *plan = plan_of(dims[x], ORDO_BACKEND_CUDA);
        host *without = open_host(dims[x]), *with = open_host(dims[x]);
        run_device(plan, without, NULL);
        run_device(plan, with, none);
        for (int t = T_O; t < PIECES; t++)
            CHECK_BITS(with->at[t], without->at[t], with->count);
        CHECK_BITS(with->lse, without->lse, BATCH * HEADS * ROWS);
        for (int h = 0; h < HEADS; h++)
            CHECK(with->dsink[h] == 0);
        close_host(without);
        close_host(with);
        ordo_plan_destroy(plan);
    }
}

/* NaN in the last key and an infinity in the last value, which one row sees; a sink of NaN. */
TEST(not_finite)
{
    const float sinks[2][HEADS] = { { 1, -2, 0.5f }, { 1, NAN, 0.5f } };
    if (!have_device())
        SKIP("no device of compute capability 9.0");
    for (int x = 0; x < 2 * DIMS; x++) {
        const int64_t dim = dims[x / 2], line = HEADS * dim;
        ordo_plan *plan = plan_of(dim, ORDO_BACKEND_CUDA);
        host *got = open_host(dim), *want = open_host(dim);
        host *const both[] = { got, want };
        for (int n = 0; n < 2; n++) {
            both[n]->at[T_K][(ROWS - 1) * line] = 0x7fc0;
            both[n]->at[T_V][(2 * ROWS - 1) * line + 1] = 0x7f80;
        }
        run_device(plan, got, sinks[x % 2]);
        run_oracle(want, dim, sinks[x % 2]);
        for (int t = T_O; t < PIECES; t++)
            for (size_t i = 0; i < got->count; i++) {
                const float a = ordo_f32_from_bf16(got->at[t][i]);
                const float b = ordo_f32_from_bf16(want->at[t][i]);
                if (isfinite(a) != isfinite(b) || (isfinite(b) && fabsf(a - b) > 0.1f)) {
                    CHECK_FAIL("dim %d, tensor %d[%zu] is %g, in the oracle %g", (int)dim, t, i,
                               (double)a, (double)b);
                    break;
                }
            }
        for (int i = 0; i < BATCH * HEADS * ROWS; i++)
            CHECK(isnan(got->lse[i]) ? isnan(want->lse[i])
                                     : fabsf(got->lse[i] - want->lse[i]) < 1e-3f);
        for (int i = 0; i < BATCH * HEADS; i++)
            CHECK(isfinite(got->parts[i]) == isfinite(want->parts[i]) &&
                  !(fabsf(got->parts[i] - want->parts[i]) > 0.5f));
        close_host(got);
        close_host(want);
        ordo_plan_destroy(plan);
    }
}

CHECK_MAIN()
