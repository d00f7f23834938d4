/* A backward pass in parts of its rows, each continuing the f32 sums of dk and dv of the part
 * before it, where the grid has none: a NaN in one part spoils the keys that see it and no others.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "handmade_call.h"

#include "base/half.h"

#include <algorithm>
#include <cuda_fp16.h>

enum { HEADS = 4, KV_HEADS = 2 };

/* One causal sequence; head 0 of row `nan_row` of q has a NaN. */
struct cut_shape {
    const char *name;
    int dim, rows, nan_row;
    bool f16;
    double dropout; /* bits made inside */
};

static __global__ void parts_to_f16(uint16_t *x, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        x[i] = __half_as_ushort(__float2half(__uint_as_float((uint32_t)x[i] << 16)));
}

struct gradients {
    std::vector<uint16_t> dq, dk, dv;
};

struct cut_case : device_memory {
    cut_shape z;
    size_t q_count, kv_count;
    uint16_t *q, *k, *v, *o, *dout, *dq, *dk, *dv;
    float *lse, *dk_sums, *dv_sums;

    uint16_t *values(size_t count, uint32_t seed)
    {
        uint16_t *x = take<uint16_t>(count);
        case_fill<<<1024, 256>>>((bf16 *)x, count, seed, 1.0f);
        if (z.f16)
            parts_to_f16<<<1024, 256>>>(x, count);
        return x;
    }

    explicit cut_case(const cut_shape &shape) : z(shape)
    {
        q_count = (size_t)z.rows * HEADS * z.dim, kv_count = (size_t)z.rows * KV_HEADS * z.dim;
        q = values(q_count, 1), dout = values(q_count, 4);
        k = values(kv_count, 2), v = values(kv_count, 3);
        o = take<uint16_t>(q_count), dq = take<uint16_t>(q_count);
        dk = take<uint16_t>(kv_count), dv = take<uint16_t>(kv_count);
        dk_sums = take<float>(kv_count), dv_sums = take<float>(kv_count);
        lse = take<float>((size_t)HEADS * z.rows);
        MUST(cudaMemset(q + (size_t)z.nan_row * HEADS * z.dim, 0xff, 2));
    }

    /* A plan of rows first .. end - 1; `order` 0: the default. */
    ordo_plan *plan_of(int64_t first, int64_t end, ordo_order order, ordo_plan_info *info)
    {
        ordo_problem p = ORDO_PROBLEM_INIT;
        ordo_machine *machine = NULL;
        ordo_plan *plan = NULL;
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        options.backend = ORDO_BACKEND_CUDA;
        options.order = order;
        p.dtype = z.f16 ? ORDO_F16 : ORDO_BF16;
        p.batch = 1, p.heads = HEADS, p.kv_heads = KV_HEADS, p.head_dim = z.dim;
        p.q_len = end - first, p.kv_len = z.rows;
        p.mask = ORDO_MASK_CAUSAL;
        p.dropout.p = z.dropout;
        p.shard.row0 = first;
        p.shard.q_total = p.shard.kv_total = z.rows;
        must_ordo(ordo_machine_create(&machine, "h200"), "machine");
        must_ordo(ordo_plan_create(&plan, &p, machine, &options), z.name);
        must_ordo(ordo_plan_query(plan, info), "query");
        ordo_machine_destroy(machine);
        return plan;
    }

    /* One pass over rows first .. end - 1; a part sees the whole's tensors through strides, and has
     * its lse copied. */
    void run(ordo_pass which, int64_t first, int64_t end, unsigned carry, ordo_order order)
    {
        device_memory own;
        ordo_plan_info info = ORDO_PLAN_INFO_INIT;
        ordo_plan *plan = plan_of(first, end, order, &info);
        const int64_t row = (int64_t)HEADS * z.dim;
        const auto from = [&](uint16_t *x) {
            return ordo_tensor { x + first * row, { z.rows * row, row, z.dim, 1 } };
        };
        const auto all = [&](uint16_t *x) { return ordo_tensor { x, { 0, 0, 0, 0 } }; };
        ordo_call call = ORDO_CALL_INIT;
        call.q = from(q), call.o = from(o), call.dout = from(dout), call.dq = from(dq);
        call.k = all(k), call.v = all(v), call.dk = all(dk), call.dv = all(dv);
        call.lse = lse;
        if (end - first < z.rows) {
            call.lse = own.take<float>((size_t)(HEADS * (end - first)));
            MUST(cudaMemcpy2D(call.lse, (end - first) * 4, lse + first, (size_t)z.rows * 4,
                              (end - first) * 4, HEADS, cudaMemcpyDeviceToDevice));
        }
        call.seed = 5;
        call.carry = carry;
        if (carry)
            call.dk_sums = dk_sums, call.dv_sums = dv_sums;
        call.workspace_bytes = ordo_plan_workspace(plan);
        call.workspace = own.take<uint8_t>(call.workspace_bytes);
        run_call(plan, which, call);
        MUST(cudaDeviceSynchronize());
        ordo_plan_destroy(plan);
    }

    /* The backward pass in `count` parts of whole tiles, in the order of the plan. */
    gradients backward(int count)
    {
        ordo_plan_info info = ORDO_PLAN_INFO_INIT;
        ordo_plan_destroy(plan_of(0, z.rows, ORDO_ORDER_DEFAULT, &info));
        const int64_t tile = info.backward_tile.q, tiles = (z.rows + tile - 1) / tile;
        const int64_t rows = (tiles + count - 1) / count * tile;
        const int64_t parts = (z.rows + rows - 1) / rows;
        for (uint16_t *x : { dk, dv })
            MUST(cudaMemset(x, 0xff, kv_count * 2));
        for (float *x : { dk_sums, dv_sums })
            MUST(cudaMemset(x, 0xff, kv_count * 4));
        MUST(cudaMemset(dq, 0xff, q_count * 2));
        for (int64_t n = 0; n < parts; n++) {
            const int64_t at = (info.order == ORDO_ORDER_DESCENDING ? parts - 1 - n : n) * rows;
            const unsigned in = n > 0 ? (unsigned)ORDO_CARRY_IN : 0u;
            const unsigned out = n + 1 < parts ? (unsigned)ORDO_CARRY_OUT : 0u;
            run(ORDO_BACKWARD, at, std::min<int64_t>(at + rows, z.rows), in | out, info.order);
        }
        return { case_download(dq, q_count), case_download(dk, kv_count),
                 case_download(dv, kv_count) };
    }

    float number(uint16_t x) const
    {
        return z.f16 ? ordo_f32_from_f16(x) : ordo_f32_from_bf16(x);
    }

    /* Keys that the repair may have computed, all in the key tiles that the row's query tile meets
     * at its diagonal: one pass sums them in f64 at once, parts in f32 from part to part, from
     * weights that were rounded. They must be NaN alike, and else near; all others must be equal.
     */
    size_t differing(const std::vector<uint16_t> &a, const std::vector<uint16_t> &b)
    {
        ordo_plan_info info = ORDO_PLAN_INFO_INIT;
        ordo_plan_destroy(plan_of(0, z.rows, ORDO_ORDER_DEFAULT, &info));
        const int64_t bq = info.backward_tile.q, bk = info.backward_tile.k;
        const int64_t tile = z.nan_row / bq * bq;
        const int64_t begin = tile / bk * bk, end = (tile + bq + bk - 1) / bk * bk;
        const int64_t width = (int64_t)KV_HEADS * z.dim;
        float largest = 0;
        for (const uint16_t x : b)
            if (isfinite(number(x)))
                largest = fmaxf(largest, fabsf(number(x)));
        size_t wrong = 0;
        for (size_t x = 0; x < a.size(); x++) {
            const int64_t key = (int64_t)x / width;
            const bool near =
                fabsf(number(a[x]) - number(b[x])) <= (z.f16 ? 0x1p-10f : 0x1p-7f) * largest;
            wrong += a[x] != b[x] && (key < begin || key >= end || !near);
        }
        return wrong;
    }
};

static void check(const cut_shape &shape)
{
    cut_case c(shape);
    c.run(ORDO_FORWARD, 0, shape.rows, 0, ORDO_ORDER_DEFAULT);
    const gradients want = c.backward(1);
    size_t lost = 0;
    for (const uint16_t x : want.dk)
        lost += isnan(c.number(x));
    verdict(lost > 0 && lost < want.dk.size(), "%s: both kinds", shape.name);
    for (const int count : { 2, 4, 8 }) {
        const gradients got = c.backward(count);
        size_t wrong = c.differing(got.dk, want.dk) + c.differing(got.dv, want.dv);
        for (size_t x = 0; x < want.dq.size(); x++)
            wrong += got.dq[x] != want.dq[x];
        verdict(wrong == 0, "%s: %d parts: %zu differ", shape.name, count, wrong);
    }
}

int main(void)
{
    if (device_is_missing())
        return 77;
    check({ "NaN D 128", 128, 4096, 1500, false, 0 });
    check({ "NaN D 64 f16", 64, 4096, 3000, true, 0 });
    check({ "NaN D 128, bits made", 128, 4096, 70, false, 0.1 });
    check({ "NaN D 256", 256, 2048, 1000, false, 0 });
    check({ "NaN D 512", 512, 2048, 1000, false, 0 });
    return report_all();
}
