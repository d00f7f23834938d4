/* handmade_pass.h: a pass of the CUDA module made by hand: one dense bf16 problem on a device, its
 * tensors, plan and workspace.
 *
 * For tests and benchmarks that the public API cannot serve: they launch kernels that the library
 * does not have (random delays before every turn), read or raise the flag that starts a repair,
 * change a pass between two launches, or time launches alone. What the public API can reach belongs
 * into the grid (grid_test.c, grid_fixed.h). */
#ifndef TESTS_CUDA_HANDMADE_PASS_H
#define TESTS_CUDA_HANDMADE_PASS_H

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "base/keep.h"
#include "cuda/sm90/backward/rows.h"
extern "C" {
#include "ordo/dropout.h"
#include "plan/family_sm90.h"
#include "plan/sizes.h"
}
#include "cuda/dispatch.h"
#include "cuda/support/launch.h"
#include "on_device.h"

/* What a case asks; a zero order or worker count leaves the choice to the plan. */
struct case_shape {
    int batch, heads, kv_heads, q_len, kv_len, head_dim;
    ordo_mask mask;
    ordo_order order = ORDO_ORDER_DEFAULT;
    int workers = 0, group = 0, section = 0;
};

static inline void must_ordo(ordo_status status, const char *why)
{
    if (status != ORDO_OK) {
        printf("status %d: %s %s\n", (int)status, ordo_last_error(), why);
        fflush(stdout);
        exit(1);
    }
}

typedef __nv_bfloat16 bf16;

static __global__ void case_fill(bf16 *x, size_t n, uint32_t seed, float scale)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        float u[2];
        for (int k = 0; k < 2; k++) {
            uint32_t h = (uint32_t)i * 2u + (uint32_t)k + seed * 0x9e3779b9u;
            h = (h ^ h >> 16) * 0x7feb352du;
            h = (h ^ h >> 15) * 0x846ca68bu;
            u[k] = (float)((h ^ h >> 16) >> 8) * 0x1p-24f + 0x1p-26f;
        }
        x[i] = __float2bfloat16(scale * sqrtf(-2.0f * logf(u[0])) * cospif(2.0f * u[1]));
    }
}

/* Memory of the device that a case owns. Filled with NaN, so that what is not written shows. */
struct device_memory {
    std::vector<void *> owned;

    ~device_memory()
    {
        for (void *memory : owned)
            cudaFree(memory);
    }

    template <class T> T *take(size_t count)
    {
        void *memory;
        MUST(cudaMalloc(&memory, count * sizeof(T) + 16));
        MUST(cudaMemset(memory, 0xff, count * sizeof(T) + 16));
        owned.push_back(memory);
        return (T *)memory;
    }

    template <class T> T *upload(const std::vector<T> &from)
    {
        T *const to = take<T>(from.size());
        MUST(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
        return to;
    }

    /* The workspace of a pass in chains or by phases, with panels of all heads; `sums`: elements of
     * dk. */
    void give_panels(ordo_cuda_pass &pass, size_t sums)
    {
        const ordo_run &run = pass.run;
        ordo_cuda_phase &x = pass.phase;
        if (pass.form == ORDO_FORM_FLASH)
            return;
        x.section = run.kv_heads;
        x.tiles = pass.batch.tiles;
        x.columns = ordo_band_key_tiles(&run.band) * run.band.bk;
        const size_t scores =
            (size_t)run.kv_heads * run.group_heads * x.tiles * run.band.bq * x.columns;
        x.p = pass.form == ORDO_FORM_PHASE ? take<uint16_t>(scores) : NULL;
        x.ds = take<uint16_t>(scores + 4 * sums); /* dk and dv follow it */
        x.dk = (float *)(x.ds + scores);
        x.dv = x.dk + sums;
        x.shrink = take<float>(scores / run.band.bk);
        x.score_bytes = (int64_t)(2 * scores);
        x.all_bytes = x.score_bytes + (int64_t)(8 * sums);
    }
};

struct device_case : device_memory {
    case_shape z;
    ordo_plan *plan;
    ordo_cuda_pass pass;
    size_t q_count, kv_count, lse_count;
    bf16 *q, *k, *v, *o, *dout, *dq, *dk, *dv;
    float *lse;

    ordo_cuda_tensor tensor(void *data, int rows, int heads)
    {
        const int64_t row = (int64_t)heads * z.head_dim;
        return { data, rows * row, row, z.head_dim };
    }

    ordo_problem problem(void) const
    {
        ordo_problem problem = ORDO_PROBLEM_INIT;
        problem.dtype = ORDO_BF16;
        problem.batch = z.batch;
        problem.heads = z.heads;
        problem.kv_heads = z.kv_heads;
        problem.q_len = z.q_len;
        problem.kv_len = z.kv_len;
        problem.head_dim = z.head_dim;
        problem.mask = z.mask;
        return problem;
    }

    void make_plan(void)
    {
        ordo_machine *machine;
        const ordo_problem asked = problem();
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        options.backend = ORDO_BACKEND_CUDA;
        options.order = z.order;
        options.workers = z.workers;
        options.group = z.group;
        options.section = z.section;
        must_ordo(ordo_machine_create(&machine, "h200"), "machine");
        must_ordo(ordo_plan_create(&plan, &asked, machine, &options), "plan");
        ordo_machine_destroy(machine);
        pass.run = ordo_plan_run(plan, z.batch, z.q_len, z.kv_len);
        make_batch();
    }

    void make_batch(void) /* in closed form */
    {
        const ordo_band &band = pass.run.band;
        ordo_cuda_batch &x = pass.batch;
        memset(&x, 0, sizeof x);
        x.sequences = z.batch;
        x.tiles = z.batch * ordo_band_query_tiles(&band);
        x.lse_head = z.q_len;
        x.first.q_len = z.q_len;
        x.first.kv_len = z.kv_len;
        x.first.low = band.low;
        x.first.high = band.high;
        x.first.keep_across = (z.kv_len + 127) / 128;
        x.first.keep_head = ordo_keep_blocks(z.q_len, z.kv_len);
        x.step.batch = x.step.id = 1;
        x.step.forward_tile =
            (int32_t)((z.q_len + plan->forward_tile.q - 1) / plan->forward_tile.q);
        x.step.query_tile = ordo_band_query_tiles(&band);
        x.step.key_tile = ordo_band_key_tiles(&band);
        x.step.keep = z.heads * x.first.keep_head;
        x.step.lse = (int64_t)z.heads * z.q_len;
    }

    void again(int workers, ordo_order order) /* the same tensors under another plan */
    {
        z.workers = workers;
        z.order = order;
        ordo_plan_destroy(plan);
        make_plan();
    }

    explicit device_case(case_shape shape, uint32_t seed = 1, float scale = 1.0f) : z(shape)
    {
        memset(&pass, 0, sizeof pass);
        make_plan();
        q_count = (size_t)z.batch * z.q_len * z.heads * z.head_dim;
        kv_count = (size_t)z.batch * z.kv_len * z.kv_heads * z.head_dim;
        lse_count = (size_t)z.batch * z.heads * z.q_len;
        q = take<bf16>(q_count);
        o = take<bf16>(q_count);
        dout = take<bf16>(q_count);
        dq = take<bf16>(q_count);
        k = take<bf16>(kv_count);
        v = take<bf16>(kv_count);
        dk = take<bf16>(kv_count);
        dv = take<bf16>(kv_count);
        lse = take<float>(lse_count);
        case_fill<<<1024, 256>>>(q, q_count, seed + 1, scale);
        case_fill<<<1024, 256>>>(k, kv_count, seed + 2, scale);
        case_fill<<<1024, 256>>>(v, kv_count, seed + 3, 1.0f);
        case_fill<<<1024, 256>>>(dout, q_count, seed + 4, 1.0f);
        const size_t tiles = (size_t)ordo_band_query_tiles(&pass.run.band) * z.heads * z.batch;
        const size_t rows = tiles * (size_t)pass.run.band.bq;
        pass.head_dim = pass.v_head_dim = z.head_dim;
        pass.form = plan->backward_form;
        pass.kernels = ORDO_KERNELS_WGMMA;
        pass.q_rows = z.q_len;
        pass.kv_rows = z.kv_len;
        pass.scale = 1.0f / sqrtf((float)z.head_dim);
        pass.q = tensor(q, z.q_len, z.heads);
        pass.o = tensor(o, z.q_len, z.heads);
        pass.dout = tensor(dout, z.q_len, z.heads);
        pass.dq = tensor(dq, z.q_len, z.heads);
        pass.k = tensor(k, z.kv_len, z.kv_heads);
        pass.v = tensor(v, z.kv_len, z.kv_heads);
        pass.dk = tensor(dk, z.kv_len, z.kv_heads);
        pass.dv = tensor(dv, z.kv_len, z.kv_heads);
        pass.lse = lse;
        pass.ticket = take<int32_t>(64);
        pass.turns = take<int32_t>(tiles);
        pass.dq_sum = take<float>(rows * z.head_dim);
        pass.delta = take<float>(rows);
        pass.lse2 = take<float>(rows);
        give_panels(pass, kv_count);
    }

    /* Dropout from now on, with bits that the host made. */
    void drop(ordo_dropout dropout, uint64_t seed)
    {
        ordo_problem dropped = problem();
        ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
        ordo_dropout_info info;
        dropped.dropout = dropout;
        call.seed = seed;
        must_ordo(ordo_dropout_query(&dropped, &call, &info), "bits");
        std::vector<uint32_t> words(info.bytes / 4);
        must_ordo(ordo_dropout_fill(&dropped, &call, 0, info.blocks, words.data(), info.bytes),
                  "bits");
        pass.keep_scale = (float)info.scale;
        pass.keep_bits = upload(words);
    }

    ~device_case()
    {
        ordo_plan_destroy(plan);
    }

    void poison(void)
    {
        MUST(cudaMemset(dq, 0xff, q_count * 2));
        MUST(cudaMemset(dk, 0xff, kv_count * 2));
        MUST(cudaMemset(dv, 0xff, kv_count * 2));
    }

    void forward(void)
    {
        must_ordo(ordo_cuda_launch_forward(&pass, NULL), ordo_cuda_why());
    }

    void backward(void)
    {
        must_ordo(ordo_cuda_launch_backward(&pass), ordo_cuda_why());
    }

    double flops(double products) const /* 2 in the forward pass, 5 in the backward */
    {
        const double pairs = (double)z.q_len * z.kv_len * (z.mask == ORDO_MASK_FULL ? 1 : 0.5);
        return products * 2 * pairs * z.head_dim * z.heads * z.batch;
    }
};

template <class T> static std::vector<T> case_download(const T *from, size_t count)
{
    std::vector<T> to(count);
    MUST(cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
}

#endif
