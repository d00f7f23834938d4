/* handmade_parts.h: a dense problem on a device whose backward pass runs in parts of its rows, each
 * continuing the sums of dk and dv of the part before it. For carry_test.cu.
 *
 * A part sees the whole's tensors through strides; what is contiguous by rows (lse, dlse, keep
 * bits) is copied or made for it. */
#ifndef TESTS_CUDA_HANDMADE_PARTS_H
#define TESTS_CUDA_HANDMADE_PARTS_H

#include <cuda_fp16.h>

#include "handmade_call.h"

struct cut_shape {
    const char *name;
    int dim = 0, heads = 0, kv_heads = 0, q_len = 0, kv_len = 0;
    ordo_mask mask = ORDO_MASK_FULL;
    int left = -1; /* of a window; -1: none */
    int batch = 1;
    bool f16 = false;
    double dropout = 0;
    bool given = false; /* keep bits given, else made inside */
    double softcap = 0;
    bool alibi = false, dlse = false;
    int nan_row = -1; /* a row of q that has a NaN, in head 0 */
};

static __global__ void parts_to_f16(uint16_t *x, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        x[i] = __half_as_ushort(__float2half(__uint_as_float((uint32_t)x[i] << 16)));
}

static inline unsigned carry_of(bool in, bool out)
{
    const unsigned began = ORDO_CARRY_IN, goes_on = ORDO_CARRY_OUT;
    return (in ? began : 0) | (out ? goes_on : 0);
}

/* Rows first .. end - 1, with a plan and what a call needs of its own. */
struct row_part {
    int64_t first, end;
    ordo_plan *plan;
    ordo_call call;
};

struct cut_case : device_memory {
    cut_shape z;
    ordo_problem problem = ORDO_PROBLEM_INIT;
    ordo_plan *plan = NULL;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    size_t q_count, kv_count, lse_count;
    uint16_t *q, *k, *v, *o, *dout, *dq, *dk, *dv;
    float *lse, *dlse, *slopes, *dk_sums, *dv_sums;
    ordo_call call = ORDO_CALL_INIT;
    std::vector<row_part> parts;

    uint16_t *values(size_t count, uint32_t seed)
    {
        uint16_t *x = take<uint16_t>(count);
        case_fill<<<1024, 256>>>((bf16 *)x, count, seed, 1.0f);
        if (z.f16)
            parts_to_f16<<<1024, 256>>>(x, count);
        return x;
    }

    float *numbers(size_t count, float scale)
    {
        std::vector<float> x(count);
        for (size_t i = 0; i < count; i++)
            x[i] = scale * (float)((i * 2654435761u >> 7) % 1000 + 1) * 1e-3f;
        return upload(x);
    }

    void describe(void)
    {
        problem.dtype = z.f16 ? ORDO_F16 : ORDO_BF16;
        problem.batch = z.batch;
        problem.heads = z.heads;
        problem.kv_heads = z.kv_heads;
        problem.q_len = z.q_len;
        problem.kv_len = z.kv_len;
        problem.head_dim = z.dim;
        problem.mask = z.mask;
        problem.window = { z.left >= 0, z.left,
                           z.left >= 0 && z.mask == ORDO_MASK_FULL ? z.left : 0 };
        problem.softcap = z.softcap;
        problem.alibi = z.alibi;
        problem.dropout.p = z.dropout;
    }

    ordo_plan *plan_of(const ordo_problem &p, ordo_order order)
    {
        ordo_machine *machine = NULL;
        ordo_plan *made = NULL;
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        options.backend = ORDO_BACKEND_CUDA;
        options.order = order;
        must_ordo(ordo_machine_create(&machine, "h200"), "machine");
        must_ordo(ordo_plan_create(&made, &p, machine, &options), z.name);
        ordo_machine_destroy(machine);
        return made;
    }

    const uint32_t *bits(void)
    {
        ordo_dropout_call c = ORDO_DROPOUT_CALL_INIT;
        ordo_dropout_info about;
        c.seed = call.seed;
        must_ordo(ordo_dropout_query(&problem, &c, &about), "bits");
        std::vector<uint32_t> words(about.bytes / 4);
        must_ordo(ordo_dropout_fill(&problem, &c, 0, about.blocks, words.data(), about.bytes),
                  "bits");
        return upload(words);
    }

    void give_workspace(ordo_call &c, const ordo_plan *made)
    {
        c.workspace_bytes = ordo_plan_workspace(made);
        c.workspace = take<uint8_t>(c.workspace_bytes);
    }

    explicit cut_case(const cut_shape &shape) : z(shape)
    {
        describe();
        plan = plan_of(problem, ORDO_ORDER_DEFAULT);
        must_ordo(ordo_plan_query(plan, &info), "query");
        q_count = (size_t)z.batch * z.q_len * z.heads * z.dim;
        kv_count = (size_t)z.batch * z.kv_len * z.kv_heads * z.dim;
        lse_count = (size_t)z.batch * z.heads * z.q_len;
        q = values(q_count, 1), dout = values(q_count, 4);
        k = values(kv_count, 2), v = values(kv_count, 3);
        o = take<uint16_t>(q_count), dq = take<uint16_t>(q_count);
        dk = take<uint16_t>(kv_count), dv = take<uint16_t>(kv_count);
        dk_sums = take<float>(kv_count), dv_sums = take<float>(kv_count);
        lse = take<float>(lse_count);
        dlse = z.dlse ? numbers(lse_count, 1.0f) : NULL;
        slopes = z.alibi ? numbers(z.heads, 0.01f) : NULL;
        if (z.nan_row >= 0)
            MUST(cudaMemset(q + (size_t)z.nan_row * z.heads * z.dim, 0xff, 2));
        call.q.data = q, call.k.data = k, call.v.data = v, call.o.data = o, call.dout.data = dout;
        call.dq.data = dq, call.dk.data = dk, call.dv.data = dv;
        call.lse = lse, call.dlse = dlse, call.slopes = slopes, call.seed = 5;
        if (z.given && z.dropout > 0)
            call.keep_bits = bits();
        give_workspace(call, plan);
    }

    ~cut_case()
    {
        forget();
        ordo_plan_destroy(plan);
    }

    void forget(void)
    {
        for (row_part &x : parts)
            ordo_plan_destroy(x.plan);
        parts.clear();
    }

    /* ---- parts ---- */

    ordo_tensor rows_of(uint16_t *x, int64_t first) const
    {
        const int64_t row = (int64_t)z.heads * z.dim;
        return { x + first * row, { z.q_len * row, row, z.dim, 1 } };
    }

    float *lines_of(const float *x, int64_t first, int64_t rows)
    {
        float *to = take<float>((size_t)z.batch * z.heads * rows);
        MUST(cudaMemcpy2D(to, rows * 4, x + first, (size_t)z.q_len * 4, rows * 4,
                          (size_t)z.batch * z.heads, cudaMemcpyDeviceToDevice));
        return to;
    }

    /* Blocks of keep bits are stored by head, then by sixteen rows. */
    uint32_t *bits_of(int64_t first, int64_t rows)
    {
        const size_t block = ORDO_KEEP_WORDS * 4;
        const size_t all = block * (size_t)ordo_keep_blocks(z.q_len, z.kv_len);
        const size_t some = block * (size_t)ordo_keep_blocks(rows, z.kv_len);
        const size_t before = block * (size_t)ordo_keep_blocks(first, z.kv_len);
        uint32_t *to = take<uint32_t>(some / 4 * (size_t)(z.batch * z.heads));
        MUST(cudaMemcpy2D(to, some, (const char *)call.keep_bits + before, all, some,
                          (size_t)(z.batch * z.heads), cudaMemcpyDeviceToDevice));
        return to;
    }

    row_part part_of(int64_t first, int64_t end)
    {
        ordo_problem p = problem;
        row_part x = { first, end, NULL, call };
        p.q_len = end - first;
        p.shard.row0 = first;
        p.shard.q_total = z.q_len;
        p.shard.kv_total = z.kv_len;
        x.plan = plan_of(p, info.order);
        x.call.q = rows_of(q, first), x.call.o = rows_of(o, first);
        x.call.dout = rows_of(dout, first), x.call.dq = rows_of(dq, first);
        x.call.lse = lines_of(lse, first, p.q_len);
        if (dlse)
            x.call.dlse = lines_of(dlse, first, p.q_len);
        if (call.keep_bits)
            x.call.keep_bits = bits_of(first, p.q_len);
        x.call.dk_sums = dk_sums, x.call.dv_sums = dv_sums;
        give_workspace(x.call, x.plan);
        return x;
    }

    /* Cut the rows into `count` parts of whole tiles, in the order of the plan. After forward(). */
    void cut(int count)
    {
        const int64_t tile = info.backward_tile.q, tiles = (z.q_len + tile - 1) / tile;
        const int64_t rows = (tiles + count - 1) / count * tile;
        forget();
        for (int64_t first = 0; first < z.q_len; first += rows) {
            const row_part x = part_of(first, first + rows < z.q_len ? first + rows : z.q_len);
            parts.insert(info.order == ORDO_ORDER_DESCENDING ? parts.begin() : parts.end(), x);
        }
        for (size_t x = 0; x < parts.size(); x++)
            parts[x].call.carry = carry_of(x > 0, x + 1 < parts.size());
        if (parts.size() == 1)
            parts[0].call.dk_sums = parts[0].call.dv_sums = NULL;
    }

    /* ---- passes ---- */

    void forward(void) const
    {
        run_call(plan, ORDO_FORWARD, call);
    }

    void backward(void) const
    {
        run_call(plan, ORDO_BACKWARD, call);
    }

    void backward_parts(void) const
    {
        for (const row_part &x : parts)
            run_call(x.plan, ORDO_BACKWARD, x.call);
    }

    /* Whatever is not written shows. */
    void poison(void) const
    {
        MUST(cudaMemset(dq, 0xff, q_count * 2));
        MUST(cudaMemset(dk, 0xff, kv_count * 2));
        MUST(cudaMemset(dv, 0xff, kv_count * 2));
        MUST(cudaMemset(dk_sums, 0xff, kv_count * 4));
        MUST(cudaMemset(dv_sums, 0xff, kv_count * 4));
    }
};

struct gradients {
    std::vector<uint16_t> dq, dk, dv;
};

static inline gradients gradients_of(const cut_case &c)
{
    MUST(cudaDeviceSynchronize());
    return { case_download(c.dq, c.q_count), case_download(c.dk, c.kv_count),
             case_download(c.dv, c.kv_count) };
}

static inline size_t differing(const std::vector<uint16_t> &a, const std::vector<uint16_t> &b)
{
    size_t wrong = 0;
    for (size_t x = 0; x < a.size(); x++)
        wrong += a[x] != b[x];
    return wrong;
}

static inline size_t differing(const gradients &a, const gradients &b)
{
    return differing(a.dq, b.dq) + differing(a.dk, b.dk) + differing(a.dv, b.dv);
}

#endif
