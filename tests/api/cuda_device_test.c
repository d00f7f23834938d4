/* cuda_device_test.c: the public functions on a real device: results near the oracle's, the same
 * bits for any strides and any number of workers, and nothing written beside the outputs. */
#include "base/half.h"
#include "check.h"
#include "have_device.h"
#include "ordo/ordo.h"

enum { TENSORS = 8, POISON = 0xff, MARGIN = 24 };
enum { T_Q, T_K, T_V, T_DOUT, T_O, T_DQ, T_DK, T_DV }; /* the first four are inputs */

typedef struct shape {
    int batch, heads, kv_heads, q_len, kv_len, dim;
    ordo_mask mask;
} shape;

static const shape shapes[] = {
    { 2, 4, 2, 300, 300, 64, ORDO_MASK_CAUSAL },
    { 2, 4, 2, 300, 300, 128, ORDO_MASK_CAUSAL },
    { 1, 3, 3, 129, 500, 128, ORDO_MASK_CAUSAL },
    { 1, 2, 1, 500, 129, 64, ORDO_MASK_CAUSAL }, /* the first rows see nothing */
    { 1, 2, 1, 500, 129, 128, ORDO_MASK_CAUSAL_TOP_LEFT },
    { 3, 2, 2, 257, 191, 64, ORDO_MASK_FULL },
    { 2, 6, 1, 65, 640, 128, ORDO_MASK_FULL },
    { 1, 1, 1, 1, 1, 64, ORDO_MASK_FULL },
    { 1, 1, 1, 1, 1000, 128, ORDO_MASK_CAUSAL },
};

/* How tensors lie on the device. */
typedef enum lying { CONTIGUOUS, BY_HEADS, PADDED, LYINGS } lying;

/* ---- host side: logical elements, (batch, row, head, dim) ---- */

typedef struct values {
    int64_t rows[TENSORS], heads[TENSORS];
    uint16_t *at[TENSORS];
    float *lse;
    size_t lse_count;
} values;

static size_t count_of(const shape *z, const values *v, int t)
{
    return (size_t)(z->batch * v->rows[t] * v->heads[t] * z->dim);
}

static values open_values(const shape *z, uint64_t seed)
{
    values v;
    for (int t = 0; t < TENSORS; t++) {
        const bool keys = t == T_K || t == T_V || t == T_DK || t == T_DV;
        v.rows[t] = keys ? z->kv_len : z->q_len;
        v.heads[t] = keys ? z->kv_heads : z->heads;
        const size_t count = count_of(z, &v, t);
        v.at[t] = malloc(count * 2);
        for (size_t x = 0; x < count; x++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const double uniform = (double)(seed >> 11) * 0x1p-53;
            v.at[t][x] = t <= T_DOUT ? ordo_bf16_from_f64(3.4 * uniform - 1.7) : 0xffff;
        }
    }
    v.lse_count = (size_t)z->batch * (size_t)z->heads * (size_t)z->q_len;
    v.lse = malloc(v.lse_count * sizeof *v.lse);
    return v;
}

static void close_values(values *v)
{
    for (int t = 0; t < TENSORS; t++)
        free(v->at[t]);
    free(v->lse);
}

static ordo_plan *make_plan(const shape *z, ordo_backend backend, ordo_plan_options options)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    problem.dtype = ORDO_BF16;
    problem.batch = z->batch, problem.heads = z->heads, problem.kv_heads = z->kv_heads;
    problem.q_len = z->q_len, problem.kv_len = z->kv_len, problem.head_dim = z->dim;
    problem.mask = z->mask;
    options.backend = backend;
    if (backend == ORDO_BACKEND_CUDA)
        CHECK_INT(ordo_device_machine(0, &machine), ORDO_OK);
    if (ordo_plan_create(&plan, &problem, machine, &options) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_machine_destroy(machine);
    return plan;
}

static void run_oracle(const shape *z, values *v)
{
    const ordo_plan_options none = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = make_plan(z, ORDO_BACKEND_REF, none);
    ordo_call call = ORDO_CALL_INIT;
    call.q.data = v->at[T_Q], call.k.data = v->at[T_K], call.v.data = v->at[T_V];
    call.o.data = v->at[T_O], call.dout.data = v->at[T_DOUT], call.dq.data = v->at[T_DQ];
    call.dk.data = v->at[T_DK], call.dv.data = v->at[T_DV];
    call.lse = v->lse;
    CHECK_INT(ordo_attention_forward(plan, &call), ORDO_OK);
    CHECK_INT(ordo_attention_backward(plan, &call), ORDO_OK);
    ordo_plan_destroy(plan);
}

/* ---- device side ---- */

/* A tensor on the device and its image on the host, a margin of poison before and behind it. */
typedef struct image {
    int64_t stride[3];
    size_t elements;
    uint16_t *host;
    void *device;
} image;

static uint16_t *element(const image *m, int64_t b, int64_t row, int64_t head)
{
    return m->host + MARGIN + b * m->stride[0] + row * m->stride[1] + head * m->stride[2];
}

/* Between the image and the logical elements; in which direction, `up` says. */
static void move(const shape *z, const values *v, int t, const image *m, bool up)
{
    uint16_t *logical = v->at[t];
    for (int64_t b = 0; b < z->batch; b++)
        for (int64_t row = 0; row < v->rows[t]; row++)
            for (int64_t h = 0; h < v->heads[t]; h++, logical += z->dim) {
                uint16_t *there = element(m, b, row, h);
                memcpy(up ? there : logical, up ? logical : there, (size_t)z->dim * 2);
                if (!up)
                    memset(there, POISON, (size_t)z->dim * 2); /* what is left must be poison */
            }
}

static image open_image(const shape *z, const values *v, int t, lying how)
{
    const int64_t rows = v->rows[t], heads = v->heads[t], dim = z->dim;
    image m = { .stride = { rows * heads * dim, heads * dim, dim } };
    if (how == BY_HEADS)
        m.stride[1] = dim, m.stride[2] = rows * dim;
    if (how == PADDED)
        m.stride[2] = dim + 8, m.stride[1] = heads * m.stride[2] + 16,
        m.stride[0] = rows * m.stride[1] + 40;
    m.elements = (size_t)(z->batch * m.stride[0] + 2 * MARGIN);
    m.host = malloc(m.elements * 2);
    memset(m.host, POISON, m.elements * 2);
    if (t <= T_DOUT)
        move(z, v, t, &m, true);
    CHECK_INT(ordo_device_alloc(&m.device, m.elements * 2), ORDO_OK);
    CHECK_INT(ordo_device_copy(m.device, m.host, m.elements * 2, NULL), ORDO_OK);
    return m;
}

/* Bring an output home; nothing but its elements may have changed. */
static void close_image(const shape *z, const values *v, int t, image *m)
{
    if (t > T_DOUT) {
        size_t changed = 0;
        CHECK_INT(ordo_device_copy(m->host, m->device, m->elements * 2, NULL), ORDO_OK);
        move(z, v, t, m, false);
        for (size_t x = 0; x < m->elements; x++)
            changed += m->host[x] != 0xffff;
        CHECK_INT(changed, 0);
    }
    CHECK_INT(ordo_device_free(m->device), ORDO_OK);
    free(m->host);
}

static ordo_tensor tensor_of(const image *m, lying how)
{
    ordo_tensor t = { .data = (uint16_t *)m->device + MARGIN };
    for (int i = 0; i < 3 && how != CONTIGUOUS; i++)
        t.stride[i] = m->stride[i];
    t.stride[3] = how != CONTIGUOUS;
    return t;
}

/* Run a plan, and destroy it. */
static void run_plan(const shape *z, values *v, lying how, ordo_plan *plan)
{
    ordo_call call = ORDO_CALL_INIT;
    image images[TENSORS];
    ordo_tensor *const tensors[] = { &call.q, &call.k,  &call.v,  &call.dout,
                                     &call.o, &call.dq, &call.dk, &call.dv };
    void *lse = NULL;
    if (!plan)
        return;
    for (int t = 0; t < TENSORS; t++) {
        images[t] = open_image(z, v, t, how);
        *tensors[t] = tensor_of(&images[t], how);
    }
    CHECK_INT(ordo_device_alloc(&lse, v->lse_count * 4), ORDO_OK);
    call.lse = lse;
    call.workspace_bytes = ordo_plan_workspace(plan);
    CHECK_INT(ordo_device_alloc(&call.workspace, call.workspace_bytes), ORDO_OK);
    CHECK_INT(ordo_device_stream_create(&call.stream), ORDO_OK);
    CHECK_INT(ordo_device_fill(call.workspace, 0x5a, call.workspace_bytes, call.stream), ORDO_OK);
    if (ordo_attention_forward(plan, &call) != ORDO_OK ||
        ordo_attention_backward(plan, &call) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    if (ordo_device_copy(v->lse, lse, v->lse_count * 4, call.stream) != ORDO_OK) {
        printf("  %s\n", ordo_last_error()); /* a fault: nothing on this device works any more */
        exit(1);
    }
    for (int t = 0; t < TENSORS; t++)
        close_image(z, v, t, &images[t]);
    CHECK_INT(ordo_device_free(lse), ORDO_OK);
    CHECK_INT(ordo_device_free(call.workspace), ORDO_OK);
    CHECK_INT(ordo_device_stream_destroy(call.stream), ORDO_OK);
    ordo_plan_destroy(plan);
}

static void run_device(const shape *z, values *v, lying how, ordo_plan_options options)
{
    run_plan(z, v, how, make_plan(z, ORDO_BACKEND_CUDA, options));
}

/* ---- comparisons ---- */

/* Norm of the error over norm of the exact answer: a few roundings to 8 bits. */
static void check_near(const shape *z, const values *got, const values *exact)
{
    static const char *const names[] = { "q", "k", "v", "dout", "o", "dq", "dk", "dv" };
    for (int t = T_O; t < TENSORS; t++) {
        double error = 0, norm = 0;
        for (size_t x = 0; x < count_of(z, got, t); x++) {
            const double e = ordo_f32_from_bf16(exact->at[t][x]);
            const double d = ordo_f32_from_bf16(got->at[t][x]) - e;
            error += d * d, norm += e * e;
        }
        /* a single key makes dq and dk 0 but for roundings */
        if (!(sqrt(error) <= 0.01 * sqrt(norm) + 1e-3))
            CHECK_FAIL("%d x %d, dim %d: %s off by %g of %g", z->q_len, z->kv_len, z->dim, names[t],
                       sqrt(error), sqrt(norm));
    }
    for (size_t x = 0; x < got->lse_count; x++) {
        const double g = got->lse[x], e = exact->lse[x];
        if (isinf(e) ? g != e : !(fabs(g - e) <= 1e-4))
            CHECK_FAIL("%d x %d, dim %d: lse[%zu] %g, expected %g", z->q_len, z->kv_len, z->dim, x,
                       g, e);
    }
}

static void check_same(const shape *z, const values *a, const values *b, const char *what)
{
    bool same = memcmp(a->lse, b->lse, a->lse_count * 4) == 0;
    for (int t = T_O; t < TENSORS; t++)
        same = same && memcmp(a->at[t], b->at[t], count_of(z, a, t) * 2) == 0;
    if (!same)
        CHECK_FAIL("%d x %d, dim %d: %s gives other bits", z->q_len, z->kv_len, z->dim, what);
}

TEST(near_the_oracle_and_the_same_bits_for_any_strides)
{
    const ordo_plan_options none = ORDO_PLAN_OPTIONS_INIT;
    if (!have_device())
        SKIP("no device of compute capability 9.0");
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const shape *z = &shapes[s];
        values exact = open_values(z, s), got = open_values(z, s), other = open_values(z, s);
        run_oracle(z, &exact);
        run_device(z, &got, CONTIGUOUS, none);
        check_near(z, &got, &exact);
        run_device(z, &other, BY_HEADS, none);
        check_same(z, &got, &other, "head after head in memory");
        run_device(z, &other, PADDED, none);
        check_same(z, &got, &other, "padding between rows");
        close_values(&exact), close_values(&got), close_values(&other);
    }
}

TEST(the_same_bits_for_any_number_of_workers)
{
    static const int workers[] = { 132, 114, 78, 32, 1 };
    if (!have_device())
        SKIP("no device of compute capability 9.0");
    for (size_t s = 0; s < 6; s++) {
        const shape *z = &shapes[s];
        values got = open_values(z, s), other = open_values(z, s);
        for (int w = 0; w < 5; w++) {
            ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
            options.workers = workers[w];
            run_device(z, w ? &other : &got, CONTIGUOUS, options);
            if (w)
                check_same(z, &got, &other, "another number of workers");
        }
        close_values(&got), close_values(&other);
    }
}

/* The backward pass of a plan that says form=phase. */
static ordo_plan *phases_of(const shape *z)
{
    const ordo_plan_options none = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = make_plan(z, ORDO_BACKEND_CUDA, none);
    char line[2048], phases[2100];
    CHECK_INT(ordo_plan_print(plan, line, sizeof line, NULL), ORDO_OK);
    ordo_plan_destroy(plan);
    const char *key = strstr(line, " key=");
    snprintf(phases, sizeof phases, "%.*s form=phase%s", (int)(key - line), line, key);
    CHECK_INT(ordo_plan_parse(&plan, phases), ORDO_OK);
    return plan;
}

TEST(forms_that_share_a_tile_give_the_same_bits)
{
    const ordo_plan_options none = ORDO_PLAN_OPTIONS_INIT;
    if (!have_device())
        SKIP("no device of compute capability 9.0");
    for (int x = 0; x < 3; x++) {
        const shape z = { 2, 4, 2, 700, 515, (const int[]) { 136, 192, 256 }[x], ORDO_MASK_CAUSAL };
        values chain = open_values(&z, x), phase = open_values(&z, x);
        run_device(&z, &chain, CONTIGUOUS, none);
        run_plan(&z, &phase, CONTIGUOUS, phases_of(&z));
        check_same(&z, &chain, &phase, "form=phase");
        close_values(&chain), close_values(&phase);
    }
}

/* Every order is near the oracle, and repeats itself. */
TEST(every_order)
{
    if (!have_device())
        SKIP("no device of compute capability 9.0");
    for (int dim = 64; dim <= 128; dim += 64) {
        const shape z = { 2, 2, 2, 400, 400, dim, ORDO_MASK_CAUSAL };
        values exact = open_values(&z, 1), got = open_values(&z, 1), again = open_values(&z, 1);
        run_oracle(&z, &exact);
        for (int order = 1; order <= ORDO_ORDER_COUNT; order++) {
            ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
            options.order = (ordo_order)order;
            run_device(&z, &got, CONTIGUOUS, options);
            check_near(&z, &got, &exact);
            run_device(&z, &again, CONTIGUOUS, options);
            check_same(&z, &got, &again, "a second run");
        }
        close_values(&exact), close_values(&got), close_values(&again);
    }
}

/* Many heads of chains that wait on each other in a circle and have different lengths: a block that
 * took two of a head would wait for ever. */
TEST(cyclic_orders_of_many_heads)
{
    if (!have_device())
        SKIP("no device of compute capability 9.0");
    for (int dim = 64; dim <= 128; dim += 64) {
        const shape z = { 8, 32, 32, 1024, 1024, dim, ORDO_MASK_CAUSAL };
        values first = open_values(&z, 1), again = open_values(&z, 1);
        for (int order = ORDO_ORDER_SHIFT; order <= ORDO_ORDER_SYMMETRIC; order++) {
            ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
            options.order = (ordo_order)order;
            run_device(&z, &first, CONTIGUOUS, options);
            for (int n = 0; n < 3; n++) {
                run_device(&z, &again, CONTIGUOUS, options);
                check_same(&z, &first, &again, "another run");
            }
        }
        close_values(&first), close_values(&again);
    }
}

CHECK_MAIN(RUN(near_the_oracle_and_the_same_bits_for_any_strides),
           RUN(the_same_bits_for_any_number_of_workers),
           RUN(forms_that_share_a_tile_give_the_same_bits), RUN(every_order),
           RUN(cyclic_orders_of_many_heads))
