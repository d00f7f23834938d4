/* backward_math.h: what a math warpgroup of the backward kernel computes: its products, and the
 * arithmetic between them. */
#ifndef CUDA_BACKWARD_MATH_H
#define CUDA_BACKWARD_MATH_H

#include <math.h>

#include "cuda/backward_roles.h"
#include "cuda/wgmma.h"

/* Named barriers. DS_DONE: by the step's parity and the warpgroup that waits: the other one has
 * written its half of dS and has read what is written next. Two parities, because a warpgroup may
 * arrive twice before the other has waited once. */
enum { DQ_DONE = 1, DS_DONE = 2, TURN_AT_CORES = 6, OWN = 8 };

/* The same number, as if new: keeps what is computed from it inside the loop, out of registers. */
ORDO_DEVICE uint32_t opaque(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}

template <int D, bool DROP> struct backward_math {
    using Z = backward_shape<D, DROP>;
    enum { SCORES = Z::ROWS / 2, PACKED = Z::ROWS / 4, STATS = Z::ROWS / 4 };
    const int mine, thread; /* of the two math warpgroups; in the block */
    const uint32_t k_low;   /* V lies behind K alike */
    uint32_t dq_at, ds_at;

    __device__ __forceinline__ backward_math(int mine_, int thread_)
        : mine(mine_), thread(thread_),
          k_low(ordo_descriptor_low(Z::K + mine_ * 64 * ORDO_LINE_BYTES, 16)),
          dq_at(Z::DQ + mine_ * (Z::DQ_BYTES / 2) + thread_ % 128 * 16), ds_at(0)
    {
        /* Where this lane's rows of dS go: sixteens of queries, 8 keys of this warp a matrix. */
        const int lane = thread_ % 32, warp = thread_ / 32 % 4;
        const int line = lane / 16 * 8 + lane % 8, chunk = warp * 2 + lane / 8 % 2;
        ds_at = Z::DS + mine_ * Z::ROWS * ORDO_LINE_BYTES + line * ORDO_LINE_BYTES +
                ((chunk ^ line % 8) << 4);
        /* Opaque, or they are computed again from the thread's number at every use. */
        asm volatile("" : "+r"(dq_at), "+r"(ds_at));
    }

    __device__ __forceinline__ void s(float (&d)[SCORES], int stage) const /* S^T = K Q^T */
    {
        const uint32_t q_low = ordo_descriptor_low(Z::Q, 16) + stage * (Z::Q_BYTES / 16);
        const uint32_t low = opaque(k_low);
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma_ss<false, 0, 0>(d, wgmma_by_columns(low, Z::KEYS, k),
                                  wgmma_by_columns(q_low, Z::ROWS, k), k > 0);
    }

    __device__ __forceinline__ void dp(float (&d)[SCORES], int stage) const /* dP^T = V dO^T */
    {
        const uint32_t do_low = ordo_descriptor_low(Z::DO, 16) + stage * (Z::Q_BYTES / 16);
        const uint32_t low = opaque(k_low) + (Z::V - Z::K) / 16;
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma_ss<false, 0, 0>(d, wgmma_by_columns(low, Z::KEYS, k),
                                  wgmma_by_columns(do_low, Z::ROWS, k), k > 0);
    }

    /* dV += P^T dO, dK += dS^T Q */
    __device__ __forceinline__ void add(float (&d)[D / 2], const uint32_t (&a)[PACKED],
                                        uint32_t tile, int stage) const
    {
        const uint32_t low =
            ordo_descriptor_low(tile, Z::ROWS * ORDO_LINE_BYTES) + stage * (Z::Q_BYTES / 16);
#pragma unroll
        for (int k = 0; k < Z::ROWS / 16; k++)
            wgmma_rs<false, 1>(d, a + 4 * k, wgmma_by_rows(low, k), 1);
    }

    /* dQ = dS K: 64 rows x 64 columns a warpgroup; halves of the columns, or of the rows. */
    __device__ __forceinline__ void dq(float (&d)[32], int stage) const
    {
        const uint32_t ds_low = (D == 64 ? opaque(k_low) + (Z::DS - Z::K) / 16 /* 64 rows on, too */
                                         : ordo_descriptor_low(Z::DS, 16)) +
                                stage * (Z::DS_BYTES / 16);
        const uint32_t low = ordo_descriptor_low(Z::K, Z::KEYS * ORDO_LINE_BYTES) +
                             (D == 128 ? mine * (Z::KEYS * ORDO_LINE_BYTES / 16) : 0);
#pragma unroll
        for (int k = 0; k < Z::KEYS / 16; k++)
            wgmma_ss<false, 0, 1>(d, wgmma_by_columns(ds_low, Z::ROWS, k), wgmma_by_rows(low, k),
                                  k > 0);
    }

    /* The one thread of the warpgroup that copies its tiles out. */
    __device__ __forceinline__ bool leads(void) const
    {
        return opaque((uint32_t)thread) % 128 == 0;
    }

    __device__ __forceinline__ void arrive(uint32_t bar) const
    {
        mbar_arrive_warp(bar, (uint32_t)thread % 32);
    }

    static __device__ __forceinline__ uint32_t dq_full(uint32_t j)
    {
        return Z::DQ_FULL + 8 * (j % Z::DQ_BUFFERS);
    }

    static __device__ __forceinline__ void wait_dq(uint32_t j)
    {
        mbar_wait(Z::DQ_FREE + 8 * (j % Z::DQ_BUFFERS), (j / Z::DQ_BUFFERS & 1) ^ 1);
    }

    /* Of step j, once its buffer is free. */
    __device__ __forceinline__ void put_dq(const float (&d)[32], uint32_t j) const
    {
        const uint32_t buffer = j % Z::DQ_BUFFERS;
#pragma unroll
        for (int i = 0; i < 8; i++)
            store_shared4(dq_at + buffer * Z::DQ_BYTES + i * 2048, d[4 * i], d[4 * i + 1],
                          d[4 * i + 2], d[4 * i + 3]);
    }

    __device__ __forceinline__ void put_ds(const uint32_t (&ds)[PACKED], int stage) const
    {
#pragma unroll
        for (int k = 0; k < Z::ROWS / 16; k++)
            store_matrix4_transposed(ds_at + stage * Z::DS_BYTES + k * 16 * ORDO_LINE_BYTES,
                                     ds[4 * k], ds[4 * k + 1], ds[4 * k + 2], ds[4 * k + 3]);
    }

    /* This thread's row statistics: computed again, for registers are full. */
    __device__ __forceinline__ uint32_t stat_at(void) const
    {
        return Z::LSE + opaque((uint32_t)thread) % 4 * 16;
    }

    /* Row statistics of a stage: four of sixteen rows a load. */
    __device__ __forceinline__ void stats(float (&x)[STATS], int which, int stage) const
    {
        const uint32_t at = stat_at() + which + stage * Z::STAT_BYTES;
#pragma unroll
        for (int i = 0; i < Z::ROWS / 16; i++)
            load_shared4(at + 64 * i, x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
    }

    /* Dropout: the sign of P says that the element is dropped. A word holds 32 keys of one query;
     * this thread has two of them, sixteen bits apart. */
    __device__ __forceinline__ void drop(float (&p)[SCORES], uint32_t j) const
    {
        const uint32_t x = opaque((uint32_t)thread); /* computed again: registers are full */
        const uint32_t keep_at = Z::KEEP + x % 4 * 64 + x % 32 / 8 * 8;
        const uint32_t shift = 24 - x / 4 % 2 * 8 + mine * 4 + x / 32 % 4;
        mbar_wait(Z::KEEP_FULL, j & 1);
#pragma unroll
        for (int k = 0; k < Z::ROWS / 16; k++) {
            int32_t word[2][2]; /* of queries 0 and 8, 1 and 9 of this thread's sixteen */
            load_shared2(keep_at + k * 256, word[0][0], word[0][1]);
            load_shared2(keep_at + k * 256 + 32, word[1][0], word[1][1]);
#pragma unroll
            for (int i = 8 * k; i < 8 * k + 8; i++) {
                const uint32_t sign = (uint32_t)word[i % 2][i / 4 % 2]
                                      << (i & 2 ? shift - 16 : shift);
                p[i] = __uint_as_float(__float_as_uint(p[i]) | (~sign & 0x80000000u));
            }
        }
    }

    /* Not before what was read has been used: beside the products a load takes longer than the
     * next step's bits do, and a barrier does not wait for it. */
    __device__ __forceinline__ void dropped(void) const
    {
        if (DROP)
            arrive(Z::KEEP_FREE);
    }

    /* P as dV's operand has it, and dS of it; delta is divided by the scale of what is kept, which
     * the results are multiplied by. */
    static __device__ __forceinline__ float kept(float p)
    {
        return DROP ? max_nan(p, 0.0f) : p;
    }

    static __device__ __forceinline__ float gradient(float p, float dp, float delta)
    {
        return DROP ? fmaf(kept(p), dp, -(fabsf(p) * delta)) : p * (dp - delta);
    }

    /* What the mask hides becomes -inf. */
    __device__ __forceinline__ void mask(float (&sc)[SCORES], int32_t cut, int kv_len) const
    {
        if (cut == CUT_NOTHING)
            return;
        const int x = (int)opaque((uint32_t)thread), column = 2 * (x % 4);
        const int key = /* this thread's first */
            load_shared(Z::CHAIN + 4) + mine * 64 + x / 32 % 4 * 16 + x % 32 / 4;
        const int hidden0 = key >= kv_len ? 1 << 20 : key - column - cut;
        const int hidden1 = key + 8 >= kv_len ? 1 << 20 : key + 8 - column - cut;
#pragma unroll
        for (int i = 0; i < SCORES; i++)
            if (8 * (i / 4) + i % 2 < (i & 2 ? hidden1 : hidden0))
                sc[i] = -INFINITY;
    }

    /* P, then dS, from S (masked) and dP (in flight); dV += P^T dO is left in flight. */
    __device__ __forceinline__ void gradients(float (&sc)[SCORES], float (&dp)[SCORES],
                                              float (&dv)[D / 2], const float (&lse)[STATS],
                                              uint32_t (&p)[PACKED], uint32_t (&ds)[PACKED],
                                              uint32_t j, float scale_log2) const
    {
        const int stage = j & 1;
        if constexpr (D == 128) {
            float delta[STATS];
#pragma unroll
            for (int i = 0; i < SCORES; i++)
                sc[i] = exp2_approx(fmaf(sc[i], scale_log2, -lse[i / 4 * 2 + i % 2]));
            if (DROP)
                drop(sc, j);
            stats(delta, Z::DELTA - Z::LSE, stage);
            pack_kept(p, sc);
            issue_dv(dv, p, stage);
            dropped();
            wgmma_wait<1>(); /* dP */
            wgmma_pin(dp);
#pragma unroll
            for (int i = 0; i < SCORES; i++)
                dp[i] = gradient(sc[i], dp[i], delta[i / 4 * 2 + i % 2]);
            pack(ds, dp);
        } else { /* P in f32 beside P in bf16 and dP: too many registers. So dS comes first, and
                  * the row statistics when they are needed. */
            const uint32_t at = stat_at() + stage * Z::STAT_BYTES;
#pragma unroll
            for (int k = 0; k < Z::ROWS / 16; k++) {
                float l[4];
                load_shared4(at + 64 * k, l[0], l[1], l[2], l[3]);
#pragma unroll
                for (int i = 8 * k; i < 8 * k + 8; i++)
                    sc[i] = exp2_approx(fmaf(sc[i], scale_log2, -l[i / 4 % 2 * 2 + i % 2]));
            }
            if (DROP)
                drop(sc, j);
            wgmma_wait<0>();
            wgmma_pin(dp);
#pragma unroll
            for (int k = 0; k < Z::ROWS / 16; k++) {
                float d[4];
                load_shared4(at + (Z::DELTA - Z::LSE) + 64 * k, d[0], d[1], d[2], d[3]);
#pragma unroll
                for (int i = 8 * k; i < 8 * k + 8; i++)
                    dp[i] = gradient(sc[i], dp[i], d[i / 4 % 2 * 2 + i % 2]);
#pragma unroll
                for (int i = 4 * k; i < 4 * k + 4; i++) /* and P is done with */
                    p[i] = pack_pair<false>(kept(sc[2 * i]), kept(sc[2 * i + 1]));
            }
            issue_dv(dv, p, stage);
            dropped();
            pack(ds, dp);
        }
    }

    /* This warpgroup's 64 keys of dV or dK, through the two buffers of dS. Not 0 if any number of
     * this thread's is not finite. */
    __device__ __forceinline__ uint32_t put_out(const float (&d)[D / 2], float scale,
                                                const CUtensorMap *map, int first_key, int head,
                                                int sequence) const
    {
        uint32_t taint = 0;
        const int x = (int)opaque((uint32_t)thread), line = x / 32 % 4 * 16 + x % 16;
        const bool leader = leads();
        const uint32_t rows_at = Z::DS + mine * 64 * ORDO_LINE_BYTES;
        if (leader)
            bulk_wait_read(); /* what left there before has left */
        named_sync(OWN + mine, 128);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            const uint32_t pairs[4] = {
                pack_pair<false>(d[8 * c] * scale, d[8 * c + 1] * scale),
                pack_pair<false>(d[8 * c + 2] * scale, d[8 * c + 3] * scale),
                pack_pair<false>(d[8 * c + 4] * scale, d[8 * c + 5] * scale),
                pack_pair<false>(d[8 * c + 6] * scale, d[8 * c + 7] * scale)
            };
            taint |= not_finite<false>(pairs[0]) | not_finite<false>(pairs[1]) |
                     not_finite<false>(pairs[2]) | not_finite<false>(pairs[3]);
            store_matrix4(rows_at + ordo_tile_offset(Z::KEYS, line, c * 16 + x % 32 / 16 * 8),
                          pairs[0], pairs[1], pairs[2], pairs[3]);
        }
        fence_shared_to_async();
        named_sync(OWN + mine, 128);
        if (leader) {
#pragma unroll
            for (int p = 0; p < Z::PANELS; p++)
                tma_store(map, rows_at + p * Z::KEYS * ORDO_LINE_BYTES, p * ORDO_PANEL_COLUMNS,
                          first_key + mine * 64, head, sequence);
            bulk_commit();
        }
        return taint;
    }

    static __device__ __forceinline__ void pack_kept(uint32_t (&to)[PACKED],
                                                     const float (&from)[SCORES])
    {
#pragma unroll
        for (int i = 0; i < PACKED; i++)
            to[i] = pack_pair<false>(kept(from[2 * i]), kept(from[2 * i + 1]));
    }

    static __device__ __forceinline__ void pack(uint32_t (&to)[PACKED], const float (&from)[SCORES])
    {
#pragma unroll
        for (int i = 0; i < PACKED; i++)
            to[i] = pack_pair<false>(from[2 * i], from[2 * i + 1]);
    }

    __device__ __forceinline__ void issue_dv(float (&dv)[D / 2], const uint32_t (&p)[PACKED],
                                             int stage) const
    {
        wgmma_pin(dv);
        wgmma_fence();
        add(dv, p, Z::DO, stage);
        wgmma_commit();
    }
};

#endif
