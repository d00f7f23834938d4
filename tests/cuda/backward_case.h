/* backward_case.h: a general case with its gradients, and what they should be, summed in f64. O and
 * lse come from the reference too, rounded once: nothing here depends on the forward kernel. */
#ifndef TESTS_CUDA_BACKWARD_CASE_H
#define TESTS_CUDA_BACKWARD_CASE_H

#include "general_case.h"

/* ---- reference: rows of P and dS, then the products that sum them ---- */

struct gradient_args {
    reference_args r;
    const uint16_t *dout; /* of the sequence and head */
    const double *lse;
    const float *dlse; /* or NULL */
    double *p, *ds;    /* P as dV meets it, and dS: a row of kv_len each */
};

static __device__ double dot_of(const uint16_t *a, const uint16_t *b, int count, bool f16)
{
    double x = 0;
    for (int d = 0; d < count; d++)
        x += case_number(a[d], f16) * case_number(b[d], f16);
    return x;
}

static __global__ void gradient_rows(const gradient_args a)
{
    const reference_args &r = a.r;
    const int i = blockIdx.x;
    double *const p = a.p + (int64_t)i * r.kv_len, *const ds = a.ds + (int64_t)i * r.kv_len;
    __shared__ double delta;
    for (int j = threadIdx.x; j < r.kv_len; j += blockDim.x) {
        const bool kept =
            r.keep_scale == 0 ||
            ordo_keep_element(&r.keep, r.bh, r.row0 + (uint32_t)i, r.col0 + (uint32_t)j);
        ds[j] = !kept ? 0 : /* dP, for now */
                    dot_of(a.dout + i * r.q_row, r.v + j * r.kv_row, r.head_dim, r.f16) *
                        (r.keep_scale > 0 ? r.keep_scale : 1);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < r.kv_len; j += blockDim.x) {
        double x = dot_of(r.q + i * r.q_row, r.k + j * r.kv_row, r.head_dim, r.f16) * r.scale;
        const double t = r.softcap > 0 ? tanh(x / r.softcap) : 0;
        x = (r.softcap > 0 ? r.softcap * t : x) - r.slope * abs(i + r.diagonal - j);
        const bool seen = j - i >= r.low && j - i <= r.high && a.lse[i] > -INFINITY;
        p[j] = seen ? exp(x - a.lse[i]) : 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        delta = a.dlse && a.lse[i] > -INFINITY ? -(double)a.dlse[i] : 0;
        for (int j = 0; j < r.kv_len; j++)
            delta += p[j] * ds[j];
    }
    __syncthreads();
    for (int j = threadIdx.x; j < r.kv_len; j += blockDim.x) {
        const double x = dot_of(r.q + i * r.q_row, r.k + j * r.kv_row, r.head_dim, r.f16) * r.scale;
        const double t = r.softcap > 0 ? tanh(x / r.softcap) : 0;
        const bool kept =
            r.keep_scale == 0 ||
            ordo_keep_element(&r.keep, r.bh, r.row0 + (uint32_t)i, r.col0 + (uint32_t)j);
        ds[j] = p[j] * (ds[j] - delta) * (1 - t * t);
        p[j] *= !kept ? 0 : r.keep_scale > 0 ? r.keep_scale : 1; /* as dV meets it */
    }
}

/* out[i][d] += scale * sum over j of p[i * p_row + j * p_sum] b[j][d]: a block a row. */
static __global__ void gradient_product(const double *p, int64_t p_row, int64_t p_sum,
                                        const uint16_t *b, int64_t b_row, int sums, bool f16,
                                        double scale, double *out, int64_t out_row, int head_dim)
{
    const int d = threadIdx.x;
    double x = 0;
    if (d >= head_dim)
        return;
    for (int j = 0; j < sums; j++)
        x += p[blockIdx.x * p_row + j * p_sum] * case_number(b[j * b_row + d], f16);
    out[blockIdx.x * out_row + d] += x * scale;
}

/* O and lse as a forward pass would have left them: a block a row. */
static __global__ void round_rows(const double *from_o, const double *from_lse, uint16_t *o,
                                  int64_t o_row, float *lse, int head_dim, bool f16)
{
    const int i = blockIdx.x, d = threadIdx.x;
    if (d < head_dim)
        o[i * o_row + d] = case_half((float)from_o[(int64_t)i * head_dim + d], f16);
    if (d == 0)
        lse[i] = (float)from_lse[i];
}

/* What a pass wrote, sequence by sequence, row by row, head by head. */
struct gradients {
    std::vector<uint16_t> dq, dk, dv;
    bool operator==(const gradients &b) const
    {
        return dq == b.dq && dk == b.dk && dv == b.dv;
    }
};

struct gradient_errors {
    double dq, dk, dv;
    size_t not_finite;
};

struct backward_case : general_case {
    uint16_t *dout, *dq, *dk, *dv;
    double *want_dq, *want_dk, *want_dv; /* like the tensors */

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
        pass.dq_sum = take<float>(rows * pass.bucket);
        pass.delta = take<float>(rows);
        pass.lse2 = take<float>(rows);
        if (!z.quick)
            refer();
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
                        case_value(5, z.numbers[b], r, h, 0);
        pass.dlse = upload(x);
    }

    /* O and lse for the pass, and what its gradients should be. */
    void refer(void)
    {
        const size_t square = (size_t)q_most * kv_most;
        double *const p = take<double>(square), *const ds = take<double>(square);
        double *const want_o = take<double>((size_t)q_most * z.head_dim);
        double *const want_lse = take<double>((size_t)q_most);
        want_dq = take<double>(q_count);
        want_dk = take<double>(kv_count);
        want_dv = take<double>(kv_count);
        MUST(cudaMemset(want_dq, 0, q_count * 8));
        MUST(cudaMemset(want_dk, 0, kv_count * 8));
        MUST(cudaMemset(want_dv, 0, kv_count * 8));
        for (int b = 0; b < sequences; b++)
            for (int h = 0; h < z.heads && z.q_lens[b] > 0; h++) {
                gradient_args a = {};
                const int q_len = z.q_lens[b], kv_len = z.kv_lens[b];
                a.r = arguments(b, h);
                a.r.o = want_o;
                a.r.lse = want_lse;
                a.r.scratch = p;
                reference_kernel<<<q_len, 128>>>(a.r);
                round_rows<<<q_len, 128>>>(want_o, want_lse, o + q_at(b, 0) + h * z.head_dim,
                                           a.r.q_row, lse_at(b, h), z.head_dim, z.f16);
                a.dout = dout + q_at(b, 0) + h * z.head_dim;
                a.lse = want_lse;
                a.dlse = pass.dlse ? pass.dlse + (lse_at(b, h) - pass.lse) : NULL;
                a.p = p;
                a.ds = ds;
                if (kv_len == 0)
                    continue;
                gradient_rows<<<q_len, 128>>>(a);
                const int64_t kv = kv_at(b, 0) + h / (z.heads / z.kv_heads) * z.head_dim;
                gradient_product<<<q_len, 128>>>(ds, kv_len, 1, a.r.k, a.r.kv_row, kv_len, z.f16,
                                                 pass.scale, want_dq + q_at(b, 0) + h * z.head_dim,
                                                 a.r.q_row, z.head_dim);
                gradient_product<<<kv_len, 128>>>(ds, 1, kv_len, a.r.q, a.r.q_row, q_len, z.f16,
                                                  pass.scale, want_dk + kv, a.r.kv_row, z.head_dim);
                gradient_product<<<kv_len, 128>>>(p, 1, kv_len, a.dout, a.r.q_row, q_len, z.f16, 1,
                                                  want_dv + kv, a.r.kv_row, z.head_dim);
            }
        MUST(cudaDeviceSynchronize());
    }

    float *lse_at(int b, int h) const
    {
        return pass.lse + table[b].lse + h * pass.batch.lse_head;
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
        char why[300] = "";
        must_ordo(ordo_sm90_backward(&pass, why, sizeof why), why);
    }

    /* Rows of sequence `only`, or of all. */
    gradients result(int only = -1)
    {
        gradients g;
        MUST(cudaDeviceSynchronize());
        const std::vector<uint16_t> q_ = case_download(dq, q_count);
        const std::vector<uint16_t> k_ = case_download(dk, kv_count);
        const std::vector<uint16_t> v_ = case_download(dv, kv_count);
        for (int b = 0; b < sequences; b++) {
            if (only >= 0 && b != only)
                continue;
            g.dq.insert(g.dq.end(), q_.begin() + q_at(b, 0), q_.begin() + q_at(b, z.q_lens[b]));
            g.dk.insert(g.dk.end(), k_.begin() + kv_at(b, 0), k_.begin() + kv_at(b, z.kv_lens[b]));
            g.dv.insert(g.dv.end(), v_.begin() + kv_at(b, 0), v_.begin() + kv_at(b, z.kv_lens[b]));
        }
        return g;
    }

    gradients run(int workers = 132)
    {
        poison();
        pass.run.workers = workers;
        backward();
        return result();
    }

    /* Of a padded batch: whether what is no row of a sequence is zero. */
    bool padding_is_zero(void)
    {
        const std::vector<uint16_t> q_ = case_download(dq, q_count);
        const std::vector<uint16_t> k_ = case_download(dk, kv_count);
        const std::vector<uint16_t> v_ = case_download(dv, kv_count);
        bool zero = true;
        for (int b = 0; layout == ORDO_PADDED && b < sequences; b++) {
            for (int64_t x = q_at(b, z.q_lens[b]); x < q_at(b, q_most); x++)
                zero = zero && q_[(size_t)x] == 0;
            for (int64_t x = kv_at(b, z.kv_lens[b]); x < kv_at(b, kv_most); x++)
                zero = zero && k_[(size_t)x] == 0 && v_[(size_t)x] == 0;
        }
        return zero;
    }

    double error(const uint16_t *got, const double *want, size_t count, bool of_keys, size_t *bad)
    {
        const std::vector<uint16_t> x = case_download(got, count);
        const std::vector<double> y = case_download(want, count);
        double error = 0, size = 0;
        for (int b = 0; b < sequences; b++) {
            const int64_t end = of_keys ? kv_at(b, z.kv_lens[b]) : q_at(b, z.q_lens[b]);
            for (int64_t i = of_keys ? kv_at(b, 0) : q_at(b, 0); i < end; i++) {
                const double g = case_number(x[(size_t)i], z.f16), w = y[(size_t)i];
                if (!(fabs(g) < 1e30))
                    ++*bad;
                else
                    error += (g - w) * (g - w);
                size += w * w + 1e-2; /* case.h says why */
            }
        }
        return size > 0 ? sqrt(error / size) : 0;
    }

    gradient_errors errors(void)
    {
        gradient_errors e = {};
        e.dq = error(dq, want_dq, q_count, false, &e.not_finite);
        e.dk = error(dk, want_dk, kv_count, true, &e.not_finite);
        e.dv = error(dv, want_dv, kv_count, true, &e.not_finite);
        return e;
    }
};

#endif
