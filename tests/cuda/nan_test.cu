/* NaN and infinity among the inputs: every output is NaN, infinite or finite exactly where the
 * definition (src/ref) has it so, also in rows that do not see them, and its bits depend on neither
 * repeats nor grid nor batch. Each sequence of a case has a plague of its own.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include <thread>

#include "handmade_pass.h"
extern "C" {
#include "ref/attention.h"
}
#include "cuda/support/repair.h"

static int passed, failed;

static void report(bool ok, const char *what, const case_shape &z, const char *more)
{
    passed += ok;
    failed += !ok;
    printf("%s %s: heads %d/%d %dx%d dim %d %s %s\n", ok ? "ok  " : "FAIL", what, z.heads,
           z.kv_heads, z.q_len, z.kv_len, z.head_dim, ordo_mask_name(z.mask), more);
    fflush(stdout);
}

/* ---- plagues ---- */

typedef enum place { FIRST, INSIDE, LAST, PLACES } place;

/* Sequences 0 .. 11: one number of q, k, v or dout is NaN, +inf or -inf. 12: NaN in q and in v, and
 * infinities of both signs in dout. 13: a row of every input is NaN. 14: all of k is -inf. 15:
 * none.
 */
enum { PLAGUES = 16 };

struct victim {
    bf16 *data;
    const ordo_cuda_tensor *tensor;
    int rows, heads;
};

static int row_at(const victim &x, place where)
{
    return where == FIRST ? 0 : where == INSIDE ? x.rows * 3 / 7 : x.rows - 1;
}

static void strike(const victim &x, int sequence, int row, int head, int column, float value)
{
    const bf16 number = __float2bfloat16(value);
    MUST(cudaMemcpy(x.data + sequence * x.tensor->sequence + row * x.tensor->row +
                        head * x.tensor->head + column,
                    &number, sizeof number, cudaMemcpyHostToDevice));
}

static void infect(device_case &c, place where)
{
    const case_shape &z = c.z;
    const victim inputs[4] = { { c.q, &c.pass.q, z.q_len, z.heads },
                               { c.k, &c.pass.k, z.kv_len, z.kv_heads },
                               { c.v, &c.pass.v, z.kv_len, z.kv_heads },
                               { c.dout, &c.pass.dout, z.q_len, z.heads } };
    const float values[3] = { NAN, INFINITY, -INFINITY };
    for (int n = 0; n < 12; n++) {
        const victim &x = inputs[n % 4];
        strike(x, n, row_at(x, where), x.heads - 1, 5 * n, values[n / 4]);
    }
    strike(inputs[0], 12, row_at(inputs[0], where), 0, 1, NAN);
    strike(inputs[2], 12, z.kv_len / 2, 0, 2, NAN);
    strike(inputs[3], 12, row_at(inputs[3], where), 0, 3, INFINITY);
    strike(inputs[3], 12, z.q_len / 3, 0, 3, -INFINITY);
    for (const victim &x : inputs)
        for (int d = 0; d < z.head_dim; d++)
            strike(x, 13, row_at(x, where), 0, d, NAN);
    for (int row = 0; row < z.kv_len; row++)
        strike(inputs[1], 14, row, 0, 0, -INFINITY);
}

/* ---- the definition ---- */

struct outputs {
    std::vector<bf16> o, dq, dk, dv;
    std::vector<float> lse;
};

struct inputs {
    std::vector<bf16> q, k, v, dout;
};

static outputs take_outputs(const device_case &c)
{
    return { case_download(c.o, c.q_count), case_download(c.dq, c.q_count),
             case_download(c.dk, c.kv_count), case_download(c.dv, c.kv_count),
             case_download(c.lse, c.lse_count) };
}

static ordo_tensor tensor_of(std::vector<bf16> &x, const ordo_cuda_tensor &like, int sequence)
{
    ordo_tensor t = {};
    t.data = x.data() + sequence * like.sequence;
    t.stride[0] = like.sequence;
    t.stride[1] = like.row;
    t.stride[2] = like.head;
    t.stride[3] = 1;
    return t;
}

/* One sequence; the backward pass from what the device's forward pass gave. */
static void refer(const device_case *c, int n, inputs *in, outputs *got, outputs *want)
{
    const ordo_cuda_pass &pass = c->pass;
    const int64_t lse_at = (int64_t)n * c->z.heads * c->z.q_len;
    ordo_problem problem = c->plan->problem;
    ordo_call call = ORDO_CALL_INIT;
    problem.batch = 1;
    call.q = tensor_of(in->q, pass.q, n);
    call.k = tensor_of(in->k, pass.k, n);
    call.v = tensor_of(in->v, pass.v, n);
    call.o = tensor_of(want->o, pass.o, n);
    call.lse = want->lse.data() + lse_at;
    must_ordo(ordo_ref_forward(&problem, &call), "forward");
    call.o = tensor_of(got->o, pass.o, n);
    call.lse = got->lse.data() + lse_at;
    call.dout = tensor_of(in->dout, pass.dout, n);
    call.dq = tensor_of(want->dq, pass.dq, n);
    call.dk = tensor_of(want->dk, pass.dk, n);
    call.dv = tensor_of(want->dv, pass.dv, n);
    must_ordo(ordo_ref_backward(&problem, &call), "backward");
}

static outputs refer_all(const device_case &c, outputs &got)
{
    inputs in = { case_download(c.q, c.q_count), case_download(c.k, c.kv_count),
                  case_download(c.v, c.kv_count), case_download(c.dout, c.q_count) };
    outputs want = got;
    std::vector<std::thread> threads;
    for (int n = 0; n < c.z.batch; n++)
        threads.emplace_back(refer, &c, n, &in, &got, &want);
    for (std::thread &thread : threads)
        thread.join();
    return want;
}

/* ---- comparing ---- */

struct tally {
    size_t broken, class_differs, far, first; /* `first`: that differs */
};

static float value_of(bf16 x)
{
    return __bfloat162float(x);
}

static float value_of(float x)
{
    return x;
}

/* Values are about one, and rounded to bf16 on the way. */
template <class T> static tally compare(const std::vector<T> &got, const std::vector<T> &want)
{
    tally t = { 0, 0, 0, got.size() };
    for (size_t i = 0; i < got.size(); i++) {
        const float x = value_of(got[i]), y = value_of(want[i]);
        const bool same_bits = memcmp(&got[i], &want[i], sizeof(T)) == 0; /* one NaN */
        const bool same = isfinite(y) ? isfinite(x) : same_bits;
        const bool far = same && isfinite(y) && !(fabsf(x - y) <= 0.03f + 0.03f * fabsf(y));
        t.broken += !isfinite(y);
        t.class_differs += !same;
        t.far += far;
        if ((!same || far) && t.first == got.size())
            t.first = i;
    }
    return t;
}

static bool add_text(const char *name, const tally &t, size_t count, char (&text)[600])
{
    const size_t at = strlen(text);
    snprintf(text + at, sizeof text - at, " %s %zu", name, t.broken);
    if (t.class_differs || t.far) {
        const size_t end = strlen(text);
        snprintf(text + end, sizeof text - end, " (%zu of another class, %zu far, first %zu/%zu)",
                 t.class_differs, t.far, t.first, count);
    }
    return t.class_differs == 0 && t.far == 0;
}

template <class T> static bool same_bits(const std::vector<T> &a, const std::vector<T> &b)
{
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

static bool same_bits(const outputs &a, const outputs &b)
{
    return same_bits(a.o, b.o) && same_bits(a.lse, b.lse) && same_bits(a.dq, b.dq) &&
           same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv);
}

/* ---- checks ---- */

static outputs run(device_case &c)
{
    MUST(cudaMemset(c.o, 0xff, c.q_count * 2));
    MUST(cudaMemset(c.lse, 0xff, c.lse_count * 4));
    c.poison();
    c.forward();
    c.backward();
    MUST(cudaDeviceSynchronize());
    return take_outputs(c);
}

/* Heads before rows: other strides than a case has by itself. */
static void make_head_major(device_case &c)
{
    for (ordo_cuda_tensor *x : { &c.pass.q, &c.pass.o, &c.pass.dout, &c.pass.dq }) {
        x->row = c.z.head_dim;
        x->head = (int64_t)c.z.q_len * c.z.head_dim;
    }
    for (ordo_cuda_tensor *x : { &c.pass.k, &c.pass.v, &c.pass.dk, &c.pass.dv }) {
        x->row = c.z.head_dim;
        x->head = (int64_t)c.z.kv_len * c.z.head_dim;
    }
}

/* A sequence alone gives what it gave among the others. */
static bool alone(const device_case &all, const outputs &got, int n, bool head_major)
{
    case_shape z = all.z;
    z.batch = 1;
    device_case one(z, 9);
    const size_t q = one.q_count, kv = one.kv_count, lse = one.lse_count;
    if (head_major)
        make_head_major(one);
    MUST(cudaMemcpy(one.q, all.q + n * q, 2 * q, cudaMemcpyDeviceToDevice));
    MUST(cudaMemcpy(one.dout, all.dout + n * q, 2 * q, cudaMemcpyDeviceToDevice));
    MUST(cudaMemcpy(one.k, all.k + n * kv, 2 * kv, cudaMemcpyDeviceToDevice));
    MUST(cudaMemcpy(one.v, all.v + n * kv, 2 * kv, cudaMemcpyDeviceToDevice));
    const outputs x = run(one);
    return memcmp(x.o.data(), got.o.data() + n * q, 2 * q) == 0 &&
           memcmp(x.lse.data(), got.lse.data() + n * lse, 4 * lse) == 0 &&
           memcmp(x.dq.data(), got.dq.data() + n * q, 2 * q) == 0 &&
           memcmp(x.dk.data(), got.dk.data() + n * kv, 2 * kv) == 0 &&
           memcmp(x.dv.data(), got.dv.data() + n * kv, 2 * kv) == 0;
}

static void check(case_shape z, place where, bool head_major)
{
    z.batch = PLAGUES;
    device_case c(z, 40 + where);
    if (head_major)
        make_head_major(c);
    infect(c, where);
    outputs got = run(c);
    const outputs want = refer_all(c, got);
    char text[600] = "not finite:";
    bool ok = add_text("o", compare(got.o, want.o), got.o.size(), text);
    ok &= add_text("lse", compare(got.lse, want.lse), got.lse.size(), text);
    ok &= add_text("dq", compare(got.dq, want.dq), got.dq.size(), text);
    ok &= add_text("dk", compare(got.dk, want.dk), got.dk.size(), text);
    ok &= add_text("dv", compare(got.dv, want.dv), got.dv.size(), text);
    report(ok, "classes", z, text);

    bool same = true;
    for (const int workers : { 132, 132, 32, 3 }) {
        c.again(workers, z.order);
        same &= same_bits(run(c), got);
    }
    for (int n = where; n < PLAGUES; n += PLACES)
        same &= alone(c, got, n, head_major);
    if (!same)
        report(false, "bits over repeats, grids and batches", z, "");
}

static int flag_of(const device_case &c)
{
    return case_download(c.pass.ticket, 2)[ORDO_NOT_FINITE];
}

/* Finite inputs raise no flag; and a flag raised for nothing changes no bit. */
static void check_clean(case_shape z)
{
    char why[300] = "";
    device_case c(z, 60);
    c.forward();
    MUST(cudaDeviceSynchronize());
    const int after_forward = flag_of(c);
    const outputs got = run(c);
    const int after_backward = flag_of(c);
    report(after_forward == 0 && after_backward == 0, "no flag", z, "");
    MUST(cudaMemset(c.pass.ticket, 1, 2 * sizeof *c.pass.ticket));
    must_ordo(ordo_repair_forward(&c.pass, why, sizeof why), why);
    must_ordo(ordo_repair_backward(&c.pass, why, sizeof why), why);
    MUST(cudaDeviceSynchronize());
    report(same_bits(take_outputs(c), got), "a flag for nothing", z, "");
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    for (const int dim : { 64, 128, 512 })
        for (const ordo_mask mask :
             { ORDO_MASK_FULL, ORDO_MASK_CAUSAL, ORDO_MASK_CAUSAL_TOP_LEFT }) {
            for (int where = 0; where < PLACES; where++) {
                check({ 0, 2, 2, 200, 200, dim, mask }, (place)where, false);
                check({ 0, 2, 1, 150, 290, dim, mask }, (place)where, where == INSIDE);
                check({ 0, 2, 1, 260, 140, dim, mask }, (place)where, where == LAST);
            }
            check_clean({ 2, 4, 2, 500, 700, dim, mask });
            check_clean({ 2, 4, 2, 700, 500, dim, mask });
        }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
