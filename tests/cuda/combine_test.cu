/* Parts merged on the device: the bits of the CPU backend, for any number of parts, also of those
 * that saw nothing and of numbers that are none; whatever the strides, and again.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "handmade_pass.h"

#include "base/half.h"
#include "base/philox.h"
#include "cuda/ops/combine.h"
extern "C" {
#include "ordo/attention.h"
}

struct shape {
    ordo_dtype dtype;
    int parts, batch, heads, rows, dim;
    bool packed, head_major;
};

static uint32_t number_at(uint32_t at, uint32_t part)
{
    const ordo_philox_words counter = { { at, part, 0, 0 } };
    return ordo_philox(counter, 3, 4, 7).w[0];
}

static float lse_at(uint32_t at, uint32_t part)
{
    const uint32_t x = number_at(at, part);
    switch (x % 23) {
    case 0: return -INFINITY;
    case 1: return at % 101 == 0 ? NAN : 500.0f;
    case 2: return at % 97 == 0 ? INFINITY : -500.0f;
    default: return at % 53 == 0 ? -INFINITY : (float)(int32_t)x * 0x1p-29f;
    }
}

/* One part's o and lse. */
static void draw(const shape &z, uint32_t part, std::vector<uint16_t> &o, std::vector<float> &lse)
{
    for (size_t x = 0; x < o.size(); x++) {
        const float value = (float)(int32_t)number_at((uint32_t)x, part + 10000) * 0x1p-30f;
        o[x] = z.dtype == ORDO_F16 ? ordo_f16_from_f32(value) : ordo_bf16_from_f32(value);
        if (x % 4001 == 7 && part % 5 == 2)
            o[x] = 0x7fff; /* a NaN of either type */
    }
    for (size_t x = 0; x < lse.size(); x++)
        lse[x] = lse_at((uint32_t)x, part);
}

static ordo_tensor tensor_of(const shape &z, void *data)
{
    ordo_tensor t = { data, { 0, 0, 0, 0 } };
    if (z.head_major) {
        t.stride[0] = (int64_t)z.heads * z.rows * z.dim;
        t.stride[1] = z.dim;
        t.stride[2] = (int64_t)z.rows * z.dim;
        t.stride[3] = 1;
    }
    return t;
}

static ordo_plan *cpu_plan(const shape &z)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    p.dtype = z.dtype;
    p.layout = z.packed ? ORDO_PACKED : ORDO_DENSE;
    p.batch = z.packed ? 2 : z.batch;
    p.total_q = z.packed ? z.rows : 0;
    p.q_len = z.rows;
    p.heads = z.heads;
    p.head_dim = z.dim;
    options.backend = ORDO_BACKEND_CPU;
    must_ordo(ordo_plan_create(&plan, &p, NULL, &options), "plan");
    return plan;
}

static void check(const shape &z)
{
    const size_t rows = (size_t)z.batch * z.heads * z.rows, count = rows * z.dim;
    device_memory memory;
    std::vector<std::vector<uint16_t>> o(z.parts, std::vector<uint16_t>(count));
    std::vector<std::vector<float>> lse(z.parts, std::vector<float>(rows));
    std::vector<ordo_tensor> host_o, device_o;
    std::vector<const float *> host_lse, device_lse;
    for (int x = 0; x < z.parts; x++) {
        draw(z, (uint32_t)x, o[x], lse[x]);
        host_o.push_back(tensor_of(z, o[x].data()));
        host_lse.push_back(lse[x].data());
        device_o.push_back(tensor_of(z, memory.upload(o[x])));
        device_lse.push_back(memory.upload(lse[x]));
    }
    std::vector<uint16_t> want(count), got(count);
    std::vector<float> want_lse(rows), got_lse(rows);
    ordo_plan *plan = cpu_plan(z);
    ordo_combine merge = ORDO_COMBINE_INIT;
    merge.parts = z.parts, merge.o_parts = host_o.data(), merge.lse_parts = host_lse.data();
    merge.o = tensor_of(z, want.data()), merge.lse = want_lse.data();
    must_ordo(ordo_attention_combine(plan, &merge), "cpu");
    ordo_plan_destroy(plan);
    ordo_cuda_combine c = {};
    c.parts = z.parts, c.o_parts = device_o.data(), c.lse_parts = device_lse.data();
    c.table = memory.take<ordo_cuda_part>(z.parts);
    c.sequences = z.batch, c.heads = z.heads, c.rows = z.rows, c.dim = z.dim;
    c.f16 = z.dtype == ORDO_F16;
    c.o = tensor_of(z, memory.upload(std::vector<uint16_t>(count, 0xffff)));
    c.lse = memory.upload(std::vector<float>(rows, NAN));
    bool ok = true;
    for (int again = 0; again < 3; again++) {
        must_ordo(ordo_cuda_combine_parts(&c), ordo_cuda_why());
        got = case_download((const uint16_t *)c.o.data, count);
        got_lse = case_download(c.lse, rows);
        ok &= memcmp(got.data(), want.data(), count * 2) == 0;
        ok &= memcmp(got_lse.data(), want_lse.data(), rows * 4) == 0;
    }
    size_t wrong = 0, wrong_lse = 0;
    for (size_t x = 0; x < count; x++)
        wrong += got[x] != want[x];
    for (size_t x = 0; x < rows; x++)
        wrong_lse += memcmp(&got_lse[x], &want_lse[x], 4) != 0;
    verdict(ok, "%s %d parts, batch %d heads %d rows %d dim %d%s: o %zu of %zu, lse %zu differ",
            ordo_dtype_name(z.dtype), z.parts, z.batch, z.heads, z.rows, z.dim,
            z.head_major ? " head-major" : "", wrong, count, wrong_lse);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    for (const ordo_dtype dtype : { ORDO_BF16, ORDO_F16 }) {
        check({ dtype, 1, 2, 3, 37, 64, false, false });
        check({ dtype, 2, 1, 4, 301, 128, false, true });
        check({ dtype, 3, 2, 2, 100, 60, false, false });
        check({ dtype, 8, 2, 4, 500, 256, false, true });
        check({ dtype, 8, 1, 4, 200, 96, true, false });
        check({ dtype, 96, 1, 2, 50, 72, false, false });
        check({ dtype, 97, 1, 2, 50, 72, false, false });
        check({ dtype, 400, 1, 1, 20, 8, false, true });
    }
    return report_all();
}
