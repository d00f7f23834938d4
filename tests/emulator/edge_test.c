/* edge_test.c: what the emulator gives where the drawn grid seldom comes: sinks that are not
 * finite, NaN behind a window by phases, negative scales. */
#include "check.h"
#include "ordo/ordo.h"

enum { ROWS = 320, DIM = 320, COUNT = ROWS * DIM };

static uint16_t q[COUNT], k[COUNT], v[COUNT], o[COUNT];
static float lse[ROWS], sink[1];

static uint16_t bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float value(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static ordo_problem problem_of(int64_t dim)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = ORDO_BF16;
    p.batch = p.heads = 1;
    p.q_len = ROWS;
    p.head_dim = dim;
    return p;
}

static void fill(void)
{
    uint64_t state = 4;
    for (int x = 0; x < COUNT; x++) {
        q[x] = bf16((float)check_uniform(&state));
        k[x] = bf16((float)check_uniform(&state));
        v[x] = bf16((float)check_uniform(&state));
    }
}

static void run(const ordo_problem *p)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_call call = ORDO_CALL_INIT;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    options.backend = ORDO_BACKEND_EMULATOR;
    call.q.data = q, call.k.data = k, call.v.data = v, call.o.data = o;
    call.lse = lse;
    call.sink = sink;
    CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    CHECK_INT(ordo_plan_create(&plan, p, machine, &options), ORDO_OK);
    CHECK_INT(ordo_attention_forward(plan, &call), ORDO_OK);
    ordo_plan_destroy(plan);
    ordo_machine_destroy(machine);
}

TEST(sinks_that_are_not_finite)
{
    const float sinks[] = { NAN, INFINITY };
    ordo_problem p = problem_of(64);
    for (int x = 0; x < 2; x++) {
        fill();
        sink[0] = sinks[x];
        run(&p);
        for (int c = 0; c < ROWS * 64; c++)
            CHECK(isnan(value(o[c])));
    }
    sink[0] = 0;
}

/* By phases: a tile of queries does not meet blocks of 64 keys that none of it sees. */
TEST(nan_behind_a_window)
{
    ordo_problem p = problem_of(DIM);
    p.q_len = 64;
    p.kv_len = ROWS;
    p.window = (ordo_window) { .on = true, .left = 40, .right = 0 };
    fill();
    for (int c = 0; c < 192 * DIM; c++)
        v[c] = 0x7fc0;
    run(&p);
    for (int c = 0; c < 64 * DIM; c++)
        CHECK(!isnan(value(o[c])));
}

/* A negative scale is that of negated queries, but for roundings. */
TEST(negative_scales)
{
    static uint16_t before[ROWS * 64];
    ordo_problem p = problem_of(64);
    fill();
    p.scale = 0.5;
    run(&p);
    memcpy(before, o, sizeof before);
    p.scale = -0.5;
    for (int x = 0; x < ROWS * 64; x++)
        q[x] ^= 0x8000;
    run(&p);
    for (int x = 0; x < ROWS * 64; x++)
        CHECK_NEAR(value(o[x]), value(before[x]), 0.02);
}

CHECK_MAIN()
