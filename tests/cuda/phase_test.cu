/* The passes by phases (head sizes above 256; backward above 128), kernels alone: o, lse, dq, dk
 * and dv against the oracle in fp64, and equal bits whatever the workspace: all heads at once, one
 * key head at a time, panels of 512 rows and of 128; and of dq alone. Dense batches, full and
 * causal masks, values of another width. Everything else that these passes do is in the grid.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include <cuda_fp16.h>

#include "handmade_call.h"
extern "C" {
#include "ordo/attention.h"
#include "plan/workspace.h"
}

struct shape {
    const char *name;
    int dim, v_dim, batch, heads, kv_heads, q_len, kv_len;
    ordo_mask mask;
    bool f16;
};

static int passed, failed;

static void report(const shape &z, const char *what, bool good, const char *note)
{
    printf("%s %-22s %s %s\n", good ? "ok  " : "FAIL", z.name, what, note);
    fflush(stdout);
    passed += good;
    failed += !good;
}

static float number(uint16_t x, bool f16)
{
    __half_raw half;
    half.x = x;
    const uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return f16 ? __half2float(half) : value;
}

static std::vector<float> numbers(const std::vector<uint16_t> &x, bool f16)
{
    std::vector<float> y(x.size());
    for (size_t i = 0; i < x.size(); i++)
        y[i] = number(x[i], f16);
    return y;
}

static __global__ void to_f16(uint16_t *x, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        x[i] = __half_as_ushort(__float2half(__uint_as_float((uint32_t)x[i] << 16)));
}

struct results {
    std::vector<uint16_t> o, dq, dk, dv;
    std::vector<float> lse;
};

struct phase_case : device_memory {
    shape z;
    ordo_problem problem = ORDO_PROBLEM_INIT;
    size_t q_count, o_count, k_count, v_count, lse_count;
    uint16_t *q, *k, *v, *dout;

    uint16_t *values(size_t count, uint32_t seed)
    {
        uint16_t *x = take<uint16_t>(count);
        case_fill<<<256, 256>>>((bf16 *)x, count, seed, 1.0f);
        if (z.f16)
            to_f16<<<256, 256>>>(x, count);
        return x;
    }

    explicit phase_case(const shape &s) : z(s)
    {
        problem.dtype = z.f16 ? ORDO_F16 : ORDO_BF16;
        problem.batch = z.batch;
        problem.heads = z.heads;
        problem.kv_heads = z.kv_heads;
        problem.q_len = z.q_len;
        problem.kv_len = z.kv_len;
        problem.head_dim = z.dim;
        problem.v_head_dim = z.v_dim;
        problem.mask = z.mask;
        q_count = (size_t)z.batch * z.q_len * z.heads * z.dim;
        o_count = (size_t)z.batch * z.q_len * z.heads * z.v_dim;
        k_count = (size_t)z.batch * z.kv_len * z.kv_heads * z.dim;
        v_count = (size_t)z.batch * z.kv_len * z.kv_heads * z.v_dim;
        lse_count = (size_t)z.batch * z.heads * z.q_len;
        q = values(q_count, 1), k = values(k_count, 2);
        v = values(v_count, 3), dout = values(o_count, 4);
    }

    /* Both passes with a workspace of no more than `limit` bytes, if that is possible; `alone`: of
     * the gradients only dq. */
    results run(int64_t limit, ordo_phase_panels *panels, bool alone = false)
    {
        device_memory memory; /* all NaN: what is not written shows */
        ordo_machine *machine = NULL;
        ordo_plan *plan = NULL;
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        options.backend = ORDO_BACKEND_CUDA;
        options.workspace_limit = limit;
        must_ordo(ordo_machine_create(&machine, "h200"), "machine");
        must_ordo(ordo_plan_create(&plan, &problem, machine, &options), z.name);
        ordo_machine_destroy(machine);
        ordo_backward_parts parts;
        uint64_t tiles = 0;
        (void)(ordo_plan_query_tiles(plan, &tiles) &&
               ordo_plan_backward_parts(plan, tiles, &parts));
        *panels = parts.panels;
        ordo_call call = ORDO_CALL_INIT;
        call.q.data = q, call.k.data = k, call.v.data = v, call.dout.data = dout;
        uint16_t *const o = memory.take<uint16_t>(o_count), *const dq =
                                                                memory.take<uint16_t>(q_count);
        uint16_t *const dk = memory.take<uint16_t>(k_count);
        uint16_t *const dv = memory.take<uint16_t>(v_count);
        call.o.data = o, call.dq.data = dq;
        call.dk.data = alone ? NULL : dk, call.dv.data = alone ? NULL : dv;
        call.lse = memory.take<float>(lse_count);
        call.workspace_bytes = ordo_plan_workspace(plan);
        call.workspace = memory.take<uint8_t>(call.workspace_bytes);
        run_call(plan, ORDO_FORWARD, call);
        run_call(plan, ORDO_BACKWARD, call);
        MUST(cudaDeviceSynchronize());
        ordo_plan_destroy(plan);
        return { case_download(o, o_count), case_download(dq, q_count), case_download(dk, k_count),
                 case_download(dv, v_count), case_download(call.lse, lse_count) };
    }

    struct exact {
        std::vector<float> o, dq, dk, dv, lse;
    };

    exact oracle(void)
    {
        ordo_problem p = problem;
        ordo_plan *plan = NULL;
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        options.backend = ORDO_BACKEND_REF;
        p.dtype = ORDO_F32;
        must_ordo(ordo_plan_create(&plan, &p, NULL, &options), "oracle");
        std::vector<float> q_ = numbers(case_download(q, q_count), z.f16);
        std::vector<float> k_ = numbers(case_download(k, k_count), z.f16);
        std::vector<float> v_ = numbers(case_download(v, v_count), z.f16);
        std::vector<float> dout_ = numbers(case_download(dout, o_count), z.f16);
        exact x = { std::vector<float>(o_count), std::vector<float>(q_count),
                    std::vector<float>(k_count), std::vector<float>(v_count),
                    std::vector<float>(lse_count) };
        ordo_call call = ORDO_CALL_INIT;
        call.q.data = q_.data(), call.k.data = k_.data(), call.v.data = v_.data();
        call.dout.data = dout_.data(), call.o.data = x.o.data(), call.lse = x.lse.data();
        call.dq.data = x.dq.data(), call.dk.data = x.dk.data(), call.dv.data = x.dv.data();
        must_ordo(ordo_attention_forward(plan, &call), "oracle's forward pass");
        must_ordo(ordo_attention_backward(plan, &call), "oracle's backward pass");
        ordo_plan_destroy(plan);
        return x;
    }
};

/* Root mean square of the error over that of the exact values, and the largest error over the
 * largest exact value. P and dS are rounded to 16 bits, and so are the results: about three
 * rounding errors of 2^-9 / sqrt 3 (bf16) or 2^-12 / sqrt 3 (f16), relative to the elements. */
static void compare(const shape &z, const char *what, const std::vector<float> &got,
                    const std::vector<float> &want, double most)
{
    const double least =
        1e-3; /* what exact values count for: a row of one key has gradients of 0 */
    double error = 0, size = least * least * (double)got.size(), worst = 0, largest = least;
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const double e = fabs((double)got[i] - (double)want[i]);
        if (!(e < 1e30) && (double)got[i] != (double)want[i])
            wrong++;
        else if (isfinite(want[i])) {
            error += e * e, size += (double)want[i] * want[i];
            worst = fmax(worst, e), largest = fmax(largest, fabs((double)want[i]));
        }
    }
    char note[120];
    snprintf(note, sizeof note, "rms %.2e, worst %.2e of the largest, %zu not finite",
             sqrt(error / fmax(size, 1e-30)), worst / fmax(largest, 1e-30), wrong);
    report(z, what, wrong == 0 && sqrt(error) <= most * sqrt(size) && worst <= 10 * most * largest,
           note);
}

static size_t differing(const results &a, const results &b)
{
    size_t n = 0;
    const std::vector<uint16_t> *x[4] = { &a.o, &a.dq, &a.dk, &a.dv };
    const std::vector<uint16_t> *y[4] = { &b.o, &b.dq, &b.dk, &b.dv };
    for (int t = 0; t < 4; t++)
        for (size_t i = 0; i < x[t]->size(); i++)
            n += (*x[t])[i] != (*y[t])[i];
    for (size_t i = 0; i < a.lse.size(); i++)
        n += memcmp(&a.lse[i], &b.lse[i], 4) != 0;
    return n;
}

static void check(const shape &z)
{
    phase_case c(z);
    ordo_phase_panels panels;
    const results whole = c.run(0, &panels);
    const phase_case::exact want = c.oracle();
    const double most = z.f16 ? 1.2e-3 : 8e-3;
    compare(z, "o  ", numbers(whole.o, z.f16), want.o, most);
    compare(z, "lse", whole.lse, want.lse, 1e-4);
    compare(z, "dq ", numbers(whole.dq, z.f16), want.dq, most);
    compare(z, "dk ", numbers(whole.dk, z.f16), want.dk, most);
    compare(z, "dv ", numbers(whole.dv, z.f16), want.dv, most);
    /* One tile, four tiles, and all of one key head: with the sums and row statistics. */
    const int64_t group = z.heads / z.kv_heads, columns = (z.kv_len + 255) / 256 * 256;
    const bool chained = z.dim <= ORDO_CHAIN_D && z.v_dim <= ORDO_CHAIN_D;
    const int64_t tile = (chained ? 2 : 4) * columns * 128 * group;
    const int64_t sums = (int64_t)z.batch * z.kv_len * (z.dim + z.v_dim) * 4 +
                         (int64_t)c.lse_count * 12 + (int64_t)z.batch * z.heads * 2048 + 65536;
    const int64_t tiles = (int64_t)z.batch * ((z.q_len + 127) / 128);
    for (const int64_t limit : { (int64_t)1, sums + 4 * tile, sums + tiles * tile }) {
        char note[120];
        const results got = c.run(limit, &panels);
        const size_t n = differing(got, whole);
        snprintf(note, sizeof note, "panels of %d tiles, %d key heads: %zu differ",
                 (int)panels.tiles, (int)panels.section, n);
        report(z, "bits", n == 0, note);
    }
    const results again = c.run(0, &panels);
    report(z, "bits", differing(again, whole) == 0, "again");
    /* Up to 256 another kernel computes its dS. */
    report(z, "bits", c.run(0, &panels, true).dq == whole.dq, "dq alone");
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    const ordo_mask full = ORDO_MASK_FULL, causal = ORDO_MASK_CAUSAL;
    const shape shapes[] = {
        /*                     D    DV  B  H  Hk  rows keys */
        { "one tile 512", 512, 512, 1, 1, 1, 128, 256, full, false },
        { "full 512", 512, 512, 1, 2, 2, 640, 1280, full, false },
        { "causal 512", 512, 512, 2, 2, 1, 700, 700, causal, false },
        { "causal 512 f16", 512, 512, 1, 2, 2, 512, 512, causal, true },
        { "full 576, 512", 576, 512, 1, 2, 1, 300, 333, full, false },
        { "causal 320", 320, 320, 1, 4, 2, 384, 384, causal, false },
        { "causal 264 f16", 264, 264, 2, 1, 1, 257, 511, causal, true },
        { "full 384, 128", 384, 128, 1, 1, 1, 129, 65, full, false },
        { "causal 128, 448", 128, 448, 1, 2, 2, 200, 100, causal, false },
        { "one row 512", 512, 512, 1, 1, 1, 1, 1, full, false },
        { "full 192, 128", 192, 128, 1, 2, 2, 640, 1280, full, false },
        { "causal 192, 128", 192, 128, 2, 4, 2, 700, 700, causal, false },
        { "causal 192, 128 f16", 192, 128, 1, 2, 1, 300, 513, causal, true },
        { "causal 192", 192, 192, 1, 2, 1, 700, 700, causal, false },
        { "full 192 f16", 192, 192, 2, 1, 1, 300, 400, full, true },
        { "causal 192, 64", 192, 64, 1, 2, 2, 129, 65, causal, false },
        { "unseen keys 192, 128", 192, 128, 1, 2, 2, 65, 700, ORDO_MASK_CAUSAL_TOP_LEFT, false },
        { "full 256", 256, 256, 1, 2, 2, 640, 1280, full, false },
        { "causal 256", 256, 256, 2, 4, 2, 700, 700, causal, false },
        { "causal 256 f16", 256, 256, 1, 2, 1, 300, 513, causal, true },
        { "causal 256, 128", 256, 128, 1, 2, 1, 700, 700, causal, false },
        { "full 200, 72 f16", 200, 72, 1, 1, 1, 300, 400, full, true },
        { "causal 64, 232", 64, 232, 1, 2, 2, 129, 65, causal, false },
        { "unseen keys 256", 256, 256, 1, 2, 2, 65, 700, ORDO_MASK_CAUSAL_TOP_LEFT, false },
    };
    for (const shape &z : shapes)
        check(z);
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
