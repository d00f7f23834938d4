/* handmade_batch.h: passes made by hand (handmade_pass.h says why) over a batch of sequences of any
 * lengths, in any layout, type and head size.
 *
 * An element's value depends on its sequence, row, head and column only, whatever the layout. */
#ifndef TESTS_CUDA_HANDMADE_BATCH_H
#define TESTS_CUDA_HANDMADE_BATCH_H

#include <cuda_fp16.h>

#include <algorithm>

#include "handmade_pass.h"
#include "plan/family_sm90.h"

struct general_shape {
    int head_dim, heads, kv_heads;
    bool f16;
    std::vector<int> q_lens, kv_lens;
    int left = -1, right = -1; /* of the window, about the diagonal that ends in both corners */
    float softcap = 0;
    bool alibi = false;
    ordo_keep_source keep = ORDO_KEEP_NONE;
    int bits = 8, rounds = 7;    /* of dropout */
    uint32_t row0 = 0, col0 = 0; /* likewise: the shard */
    bool quick = false;          /* any numbers will do, for measurements */
};

static __host__ __device__ inline float case_value(uint32_t tensor, int sequence, int row, int head,
                                                   int column)
{
    uint32_t h = tensor * 0x9e3779b9u ^ (uint32_t)sequence * 0x85ebca6bu;
    float sum = 0;
    h = (h ^ (uint32_t)row) * 0xc2b2ae35u;
    h = (h ^ h >> 15 ^ (uint32_t)head) * 0x27d4eb2fu;
    h = (h ^ h >> 13 ^ (uint32_t)column) * 0x165667b1u;
    for (int n = 0; n < 4; n++) { /* nearly normal, variance 1 */
        h = (h ^ h >> 16) * 0x7feb352du;
        h = (h ^ h >> 15) * 0x846ca68bu;
        sum += (float)(h >> 8) * 0x1p-24f - 0.5f;
    }
    return sum * 1.7320508f;
}

static __host__ __device__ inline uint16_t case_half(float x, bool f16)
{
    return f16 ? __half_as_ushort(__float2half(x)) : __bfloat16_as_ushort(__float2bfloat16(x));
}

/* `rows` rows of a sequence; where it has none, NaN. */
static __global__ void case_fill_sequence(uint16_t *x, uint32_t tensor, int number, int rows,
                                          int valid, int heads, int head_dim, bool f16)
{
    const size_t count = (size_t)rows * heads * head_dim;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        const int column = (int)(i % head_dim), head = (int)(i / head_dim % heads);
        const int row = (int)(i / head_dim / heads);
        x[i] = case_half(row < valid ? case_value(tensor, number, row, head, column) : NAN, f16);
    }
}

static __host__ __device__ inline double case_number(uint16_t bits, bool f16)
{
    if (!f16)
        return (double)__bfloat162float(__nv_bfloat16_raw { bits });
    return (double)__half2float(__half_raw { bits });
}

struct general_case : device_memory {
    general_shape z;
    ordo_layout layout;
    ordo_cuda_pass pass;
    int sequences, q_most, kv_most;
    std::vector<ordo_cuda_sequence> table; /* with the totals */
    size_t q_count, kv_count, lse_count;
    uint16_t *q, *k, *v, *o;
    std::vector<float> slopes;

    general_case(const general_shape &shape, ordo_layout layout_)
        : z(shape), layout(layout_), sequences((int)shape.q_lens.size()), q_most(0), kv_most(0)
    {
        memset(&pass, 0, sizeof pass);
        for (int b = 0; b < sequences; b++) {
            q_most = std::max(q_most, z.q_lens[b]);
            kv_most = std::max(kv_most, z.kv_lens[b]);
        }
        pass.layout = layout;
        pass.head_dim = pass.v_head_dim = z.head_dim;
        pass.form = ORDO_FORM_FLASH; /* of the forward pass */
        pass.kernels = ORDO_KERNELS_WGMMA;
        pass.f16 = z.f16;
        pass.scale = 1.0f / sqrtf((float)z.head_dim);
        pass.softcap = z.softcap;
        make_run();
        make_table();
        make_tensors();
        make_bits();
        if (z.alibi) { /* of each sequence and head their own */
            for (int b = 0; b < sequences; b++)
                for (int h = 0; h < z.heads; h++)
                    slopes.push_back(0.02f * (float)(1 + h) + 0.01f * (float)b);
            pass.slopes = upload(slopes);
            pass.slopes_sequence = z.heads;
        }
        pass.ticket = take<int32_t>(64);
        pass.lse = take<float>(lse_count);
    }

    void make_table(void)
    {
        const int rows = ORDO_SM90_FORWARD_Q(ordo_pass_bucket(&pass)); /* of forward tiles */
        const bool packed = layout == ORDO_PACKED;
        ordo_cuda_sequence s = {};
        int32_t q_row = 0, kv_row = 0;
        for (int b = 0; b < sequences; b++) {
            s.q_len = z.q_lens[b];
            s.kv_len = z.kv_lens[b];
            s.q_row = packed ? q_row : 0;
            s.kv_row = packed ? kv_row : 0;
            s.batch = packed ? 0 : b;
            s.diagonal = s.kv_len - s.q_len;
            s.low = z.left < 0 ? -ORDO_BAND_OPEN : s.diagonal - z.left;
            s.high = z.right < 0 ? ORDO_BAND_OPEN : s.diagonal + z.right;
            s.id = (uint32_t)b;
            s.keep_across = ((packed ? s.kv_len : kv_most) + 127) / 128;
            s.keep_head = ordo_keep_blocks(packed ? s.q_len : q_most, packed ? s.kv_len : kv_most);
            s.lse = packed ? q_row : (int64_t)b * z.heads * q_most;
            table.push_back(s);
            q_row += s.q_len;
            kv_row += s.kv_len;
            s.forward_tile += (s.q_len + rows - 1) / rows;
            s.keep += s.keep_head * z.heads;
        }
        table.push_back(s);
        pass.run.band.low = table[0].low;
        pass.run.band.high = table[0].high;
        pass.q_rows = packed ? q_row : q_most;
        pass.kv_rows = packed ? kv_row : kv_most;
        pass.batch.sequences = sequences;
        pass.batch.lse_head = pass.q_rows;
        if (layout == ORDO_DENSE) {
            pass.batch.first = table[0];
            pass.batch.step.batch = 1;
            pass.batch.step.id = 1;
            pass.batch.step.forward_tile = table[1].forward_tile;
            pass.batch.step.keep = table[1].keep;
            pass.batch.step.lse = (int64_t)z.heads * q_most;
        } else {
            pass.table = upload(table); /* and made again by every pass */
            pass.batch.table = pass.table;
            make_ragged(rows);
        }
    }

    void make_ragged(int rows)
    {
        ordo_cuda_ragged &r = pass.ragged;
        std::vector<int32_t> cu_q(1, 0), cu_kv(1, 0);
        std::vector<int64_t> ids;
        for (int b = 0; b < sequences; b++) {
            cu_q.push_back(cu_q[b] + z.q_lens[b]);
            cu_kv.push_back(cu_kv[b] + z.kv_lens[b]);
            ids.push_back(b);
        }
        r.cu_q = upload(cu_q);
        r.cu_kv = upload(cu_kv);
        r.q_lens = upload(z.q_lens);
        r.kv_lens = upload(z.kv_lens);
        r.ids = upload(ids);
        r.forward_rows = rows;
        r.backward_rows = pass.run.band.bq;
        r.backward_keys = pass.run.band.bk;
        r.mask = ORDO_MASK_FULL;
        r.left = z.left;
        r.right = z.right;
    }

    void make_run(void)
    {
        ordo_run &run = pass.run;
        run.band.q_len = q_most;
        run.band.kv_len = kv_most;
        run.band.bq = ORDO_SM90_BACKWARD_Q(ordo_pass_bucket(&pass));
        run.band.bk = ORDO_SM90_BACKWARD_K(ordo_pass_bucket(&pass));
        run.sequences = sequences;
        run.kv_heads = z.kv_heads;
        run.group_heads = z.heads / z.kv_heads;
        run.workers = 132;
    }

    int64_t q_at(int b, int64_t row) const
    {
        const int64_t first = layout == ORDO_PACKED ? table[b].q_row : (int64_t)b * q_most;
        return (first + row) * z.heads * z.head_dim;
    }

    int64_t kv_at(int b, int64_t row) const
    {
        const int64_t first = layout == ORDO_PACKED ? table[b].kv_row : (int64_t)b * kv_most;
        return (first + row) * z.kv_heads * z.head_dim;
    }

    uint16_t *make_tensor(uint32_t tensor, size_t count, bool of_keys)
    {
        uint16_t *const x = take<uint16_t>(count);
        if (z.quick) {
            case_fill<<<1024, 256>>>((bf16 *)x, count, tensor, 1.0f);
            return x;
        }
        for (int b = 0; b < sequences; b++) {
            const int valid = (of_keys ? z.kv_lens : z.q_lens)[b];
            const int rows = layout == ORDO_PACKED ? valid : of_keys ? kv_most : q_most;
            if (rows > 0)
                case_fill_sequence<<<64, 256>>>(x + (of_keys ? kv_at(b, 0) : q_at(b, 0)), tensor, b,
                                                rows, valid, of_keys ? z.kv_heads : z.heads,
                                                z.head_dim, z.f16);
        }
        return x;
    }

    ordo_cuda_tensor tensor(void *data, int64_t rows, int heads) const
    {
        const int64_t row = (int64_t)heads * z.head_dim;
        return { data, rows * row, row, z.head_dim };
    }

    void make_tensors(void)
    {
        const size_t count = layout == ORDO_PACKED ? 1 : (size_t)sequences;
        q_count = count * (size_t)pass.q_rows * z.heads * z.head_dim;
        kv_count = count * (size_t)pass.kv_rows * z.kv_heads * z.head_dim;
        lse_count = count * (size_t)pass.q_rows * z.heads;
        q = make_tensor(1, q_count, false);
        k = make_tensor(2, kv_count, true);
        v = make_tensor(3, kv_count, true);
        o = take<uint16_t>(q_count);
        pass.q = tensor(q, pass.q_rows, z.heads);
        pass.o = tensor(o, pass.q_rows, z.heads);
        pass.k = tensor(k, pass.kv_rows, z.kv_heads);
        pass.v = tensor(v, pass.kv_rows, z.kv_heads);
    }

    uint32_t bh(int b, int head) const
    {
        return table[b].id * pass.heads_total + pass.head0 + (uint32_t)head;
    }

    void make_bits(void)
    {
        if (z.keep == ORDO_KEEP_NONE)
            return;
        pass.keep = { 0x1234567890abcdef, 77, z.rounds, z.bits, ordo_keep_threshold(0.15, z.bits),
                      ORDO_KEYING_ORDO };
        pass.keep_scale = (float)(1u << z.bits) / (float)pass.keep.threshold;
        pass.heads_total = (uint32_t)z.heads + 3; /* of a model with more heads */
        pass.head0 = 2;
        pass.row0 = z.row0;
        pass.col0 = z.col0;
        if (z.keep != ORDO_KEEP_GIVEN)
            return;
        std::vector<uint32_t> words((size_t)table[sequences].keep * ORDO_KEEP_WORDS);
        for (int b = 0; b < sequences; b++)
            for (int h = 0; h < z.heads; h++)
                for (int r = 0; r < z.q_lens[b]; r++)
                    for (int x = 0; x < (z.kv_lens[b] + 127) / 128; x++)
                        for (int quad = 0; quad < 4; quad++)
                            words[(size_t)(table[b].keep + h * table[b].keep_head) *
                                      ORDO_KEEP_WORDS +
                                  (size_t)ordo_keep_index(table[b].keep_across * 128, r, x, quad)] =
                                ordo_keep_word(&pass.keep, bh(b, h), z.row0 + (uint32_t)r,
                                               z.col0 / 128 + (uint32_t)x, (uint32_t)quad);
        pass.keep_bits = upload(words);
    }

    void launch(void)
    {
        must_ordo(ordo_cuda_launch_forward(&pass), ordo_cuda_why());
    }

    /* lse of the forward pass, as the tensor has it. */
    std::vector<float> forward(void)
    {
        MUST(cudaMemset(pass.lse, 0xff, lse_count * 4));
        launch();
        return case_download(pass.lse, lse_count);
    }
};

/* What a pass wrote, sequence by sequence, row by row, head by head. */
struct gradients {
    std::vector<uint16_t> dq, dk, dv;
    bool operator==(const gradients &b) const
    {
        return dq == b.dq && dk == b.dk && dv == b.dv;
    }
};

/* With the gradients. */
struct backward_case : general_case {
    uint16_t *dout, *dq, *dk, *dv;

    backward_case(const general_shape &shape, ordo_layout layout_, bool with_dlse = false,
                  ordo_order order = ORDO_ORDER_SPT)
        : general_case(shape, layout_)
    {
        finish_table(order);
        dout = make_tensor(4, q_count, false);
        dq = take<uint16_t>(q_count);
        dk = take<uint16_t>(kv_count);
        dv = take<uint16_t>(kv_count);
        pass.dout = tensor(dout, pass.q_rows, z.heads);
        pass.dq = tensor(dq, pass.q_rows, z.heads);
        pass.dk = tensor(dk, pass.kv_rows, z.kv_heads);
        pass.dv = tensor(dv, pass.kv_rows, z.kv_heads);
        if (with_dlse)
            make_dlse();
        const size_t tiles = (size_t)pass.batch.tiles * z.heads, rows = tiles * pass.run.band.bq;
        pass.turns = take<int32_t>(tiles);
        pass.dq_sum = take<float>(rows * ordo_pass_bucket(&pass));
        pass.delta = take<float>(rows);
        pass.lse2 = take<float>(rows);
        if (!z.quick)
            launch(); /* o and lse */
        if (z.head_dim > 128)
            pass.form = ORDO_FORM_CHAIN;
        give_panels(pass, kv_count);
        for (int b = 0; layout == ORDO_PADDED && b < sequences; b++)
            spoil(b, z.q_lens[b], q_most, z.kv_lens[b], kv_most);
    }

    /* What the backward pass reads of batch and run beside the forward pass. */
    void finish_table(ordo_order order)
    {
        pass.run.order = order;
        pass.run.group = 1;
        pass.run.issue = ORDO_ISSUE_HEAD;
        pass.run.section = 1;
        int32_t query = 0, key = 0;
        for (int b = 0; b <= sequences; b++) {
            table[b].query_tile = query;
            table[b].key_tile = key;
            if (b == sequences)
                break;
            query += (z.q_lens[b] + pass.run.band.bq - 1) / pass.run.band.bq;
            key += (z.kv_lens[b] + pass.run.band.bk - 1) / pass.run.band.bk;
        }
        pass.batch.tiles = query + 2; /* no more than these */
        if (layout == ORDO_DENSE) {
            pass.batch.tiles = query;
            pass.batch.step.query_tile = table[1].query_tile;
            pass.batch.step.key_tile = table[1].key_tile;
        }
    }

    void make_dlse(void)
    {
        std::vector<float> x(lse_count, 3.0f);
        for (int b = 0; b < sequences; b++)
            for (int h = 0; h < z.heads; h++)
                for (int r = 0; r < z.q_lens[b]; r++)
                    x[(size_t)(table[b].lse + h * pass.batch.lse_head + r)] =
                        case_value(5, b, r, h, 0);
        pass.dlse = upload(x);
    }

    /* Rows `from` .. `to` - 1 of all that sequence b's gradients come from: NaN. */
    void spoil(int b, int q_from, int q_to, int kv_from, int kv_to)
    {
        for (uint16_t *x : { q, o, dout })
            MUST(cudaMemset(x + q_at(b, q_from), 0xff, 2 * (q_at(b, q_to) - q_at(b, q_from))));
        for (uint16_t *x : { k, v })
            MUST(
                cudaMemset(x + kv_at(b, kv_from), 0xff, 2 * (kv_at(b, kv_to) - kv_at(b, kv_from))));
    }

    void poison(void)
    {
        MUST(cudaMemset(dq, 0xff, q_count * 2));
        MUST(cudaMemset(dk, 0xff, kv_count * 2));
        MUST(cudaMemset(dv, 0xff, kv_count * 2));
    }

    void backward(void)
    {
        must_ordo(ordo_cuda_launch_backward(&pass), ordo_cuda_why());
    }

    gradients result(void)
    {
        gradients g;
        MUST(cudaDeviceSynchronize());
        const std::vector<uint16_t> q_ = case_download(dq, q_count);
        const std::vector<uint16_t> k_ = case_download(dk, kv_count);
        const std::vector<uint16_t> v_ = case_download(dv, kv_count);
        for (int b = 0; b < sequences; b++) {
            g.dq.insert(g.dq.end(), q_.begin() + q_at(b, 0), q_.begin() + q_at(b, z.q_lens[b]));
            g.dk.insert(g.dk.end(), k_.begin() + kv_at(b, 0), k_.begin() + kv_at(b, z.kv_lens[b]));
            g.dv.insert(g.dv.end(), v_.begin() + kv_at(b, 0), v_.begin() + kv_at(b, z.kv_lens[b]));
        }
        return g;
    }

    gradients run(void)
    {
        poison();
        backward();
        return result();
    }
};

#endif
