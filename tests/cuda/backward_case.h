/* backward_case.h: a general case with its gradients. */
#ifndef TESTS_CUDA_BACKWARD_CASE_H
#define TESTS_CUDA_BACKWARD_CASE_H

#include "general_case.h"

/* What a pass wrote, sequence by sequence, row by row, head by head. */
struct gradients {
    std::vector<uint16_t> dq, dk, dv;
    bool operator==(const gradients &b) const
    {
        return dq == b.dq && dk == b.dk && dv == b.dv;
    }
};

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
        pass.dq_sum = take<float>(rows * pass.bucket);
        pass.delta = take<float>(rows);
        pass.lse2 = take<float>(rows);
        if (!z.quick)
            launch(); /* o and lse */
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
