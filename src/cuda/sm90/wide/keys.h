/* sm90/wide/keys.h: dK and dV of head sizes 129 to 256 in the form apart.
 *
 * A unit is a tile of 64 keys of one key head: K and V stay in shared memory, and the plan says
 * which query tile of 64 comes when, the query heads of the group one after the other at each. Two
 * consumer warpgroups share a step by matrix, not by rows:
 *
 *     scores      S^T = K Q^T,   P = exp2(S - lse),   dV += P^T dO
 *     gradients   dP^T = V dO^T, dS = P (dP - delta), dK += dS^T Q
 *
 * Then P and dS are register operands as they come, an accumulator takes all columns, and the
 * only thing that crosses is P, in f32, from each thread to the one at the same place in the other
 * warpgroup. A step of a warpgroup issues its addition of step j and then its product of j + 1, and
 * lets the other one issue (ping-pong): its arithmetic lies under the other's products, and P is
 * stored and loaded beside the additions, which leave shared memory time for it. */
#ifndef CUDA_SM90_WIDE_KEYS_H
#define CUDA_SM90_WIDE_KEYS_H

#include "cuda/sm90/wide/keys_load.h"
#include "cuda/tile/carry.h"

template <int D, int DV, bool F16, ordo_keep_source SOURCE> struct wide_keys_math {
    using Z = wide_keys_shape<D, DV, SOURCE>;
    const ordo_wide_args &args;
    const int x; /* thread of the warpgroup */

    __device__ __forceinline__ void arrive(uint32_t bar) const
    {
        mbar_arrive_warp(bar, (uint32_t)x % 32);
    }

    __device__ __forceinline__ uint32_t p_at(uint32_t stage) const
    {
        return Z::P + stage * Z::P_BYTES + x * 16;
    }

    static __device__ __forceinline__ int32_t of_unit(uint32_t unit, int place)
    {
        return load_shared(Z::UNIT + (unit & 1) * Z::UNIT_BYTES + 4 * place);
    }

    static __device__ __forceinline__ int32_t of_step(uint32_t stage, int place)
    {
        return load_shared(Z::STEP + stage * Z::STEP_BYTES + 4 * place);
    }

    /* This thread's first key, and its first query of a step, in the sequence. */
    __device__ __forceinline__ int key(uint32_t unit) const
    {
        return of_unit(unit, UNIT_KEY) + ordo_accumulator_row(x, 0);
    }

    __device__ __forceinline__ int query(uint32_t stage) const
    {
        return of_step(stage, STEP_ROW) + 2 * (x % 4);
    }

    __device__ __forceinline__ bool bare(void) const /* neither softcap nor ALiBi */
    {
        return args.rule.cap == 0.0f && !args.slopes;
    }

    __device__ __forceinline__ int away(uint32_t unit, uint32_t stage) const
    {
        return query(stage) + of_unit(unit, UNIT_DIAGONAL) - key(unit);
    }

    /* Clear the rows beyond a sequence in a ragged batch: of K or V once per unit, of dO and Q as
     * soon as a step's record is there. Q becomes zero before S, which a full P implies. */
    template <int COLUMNS>
    __device__ __forceinline__ void zero_keys(uint32_t tile, uint32_t unit, int mine) const
    {
        if (args.batch.table)
            wide_zero_rows<COLUMNS>(tile, of_unit(unit, UNIT_KEYS) - of_unit(unit, UNIT_KEY), mine);
    }

    static __device__ __forceinline__ int queries_left(uint32_t unit, uint32_t j)
    {
        mbar_wait(Z::STAT_FULL + 8 * (j & 1), j >> 1 & 1);
        return of_unit(unit, UNIT_QUERIES) - of_step(j & 1, STEP_ROW);
    }

    template <int COLUMNS>
    __device__ __forceinline__ void zero_queries(uint32_t tiles, uint32_t unit, uint32_t j,
                                                 int mine) const
    {
        if (args.batch.table)
            wide_zero_rows<COLUMNS>(tiles + (j & 1) * wide_bytes(COLUMNS), queries_left(unit, j),
                                    mine);
    }

    __device__ __forceinline__ void zero_q(uint32_t unit, uint32_t j) const
    {
        if (!args.batch.table || queries_left(unit, j) >= WIDE_TILE)
            return;
        wide_wait_panels<D>(Z::Q_FULL + 8 * Z::PANELS * (j & 1), j >> 1 & 1);
        zero_queries<D>(Z::Q, unit, j, 0);
    }

    __device__ __forceinline__ void mask(float (&s)[WIDE_SCORES], uint32_t unit,
                                         uint32_t stage) const
    {
        const int first = key(unit), apart = first - query(stage);
        const bool hidden = of_step(stage, STEP_CUT) == WIDE_HIDDEN;
        const int keys = hidden ? 0 : of_unit(unit, UNIT_KEYS);
        const int from = apart - of_unit(unit, UNIT_HIGH), to = apart - of_unit(unit, UNIT_LOW);
        const int froms[2] = { first < keys ? from : 1 << 20,
                               first + 8 < keys ? from + 8 : 1 << 20 };
        const int tos[2] = { to, to + 8 };
        wide_mask(s, froms, tos);
    }

    /* A word holds 32 keys of one query; this thread has two of them, 8 keys apart. */
    __device__ __forceinline__ void drop(float (&p)[WIDE_SCORES], uint32_t unit, uint32_t j) const
    {
        const uint32_t at = Z::KEEP + x % 4 * 64 + x % 32 / 8 * 8;
        const int half = of_unit(unit, UNIT_KEY) / WIDE_TILE % 2;
        const uint32_t shift = keep_shift(half * 8 + x / 32 * 2, x / 4 % 2);
        mbar_wait(Z::KEEP_FULL, j & 1);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int32_t word[2][2]; /* of queries 0 and 8, 1 and 9 of this thread's sixteen */
            load_shared2(at + k * 256, word[0][0], word[0][1]);
            load_shared2(at + k * 256 + 32, word[1][0], word[1][1]);
#pragma unroll
            for (int i = 8 * k; i < 8 * k + 8; i++)
                p[i] =
                    mark_dropped(p[i], (uint32_t)word[i % 2][i / 4 % 2], shift - (i & 2 ? 16 : 0));
        }
    }

    /* P of step j from its S: to the other warpgroup in f32, and packed for dV. */
    __device__ __forceinline__ void probabilities(float (&s)[WIDE_SCORES],
                                                  uint32_t (&p)[WIDE_PACKED], uint32_t unit,
                                                  uint32_t j) const
    {
        const uint32_t stage = j & 1;
        float lse[16];
        mbar_wait(Z::STAT_FULL + 8 * stage, j >> 1 & 1);
        wide_stats(lse, Z::LSE + stage * Z::STAT_BYTES, x);
        if (bare()) {
#pragma unroll
            for (int i = 0; i < WIDE_SCORES; i++)
                s[i] = fmaf(s[i], args.rule.scale, -lse[i / 4 * 2 + i % 2]);
        } else {
            apply_rule<1, false>(s, args.rule, [&](float &slope) {
                slope = __int_as_float(of_step(stage, STEP_SLOPE));
                return away(unit, stage);
            });
#pragma unroll
            for (int i = 0; i < WIDE_SCORES; i++)
                s[i] = fmaf(s[i], args.rule.to_log2, -lse[i / 4 * 2 + i % 2]);
        }
        if (of_step(stage, STEP_CUT) != WIDE_WHOLE)
            mask(s, unit, stage);
#pragma unroll
        for (int i = 0; i < WIDE_SCORES; i++)
            s[i] = exp2_approx(s[i]);
        if (SOURCE != ORDO_KEEP_NONE)
            drop(s, unit, j);
        mbar_wait(Z::P_EMPTY + 8 * stage, (j >> 1 & 1) ^ 1);
#pragma unroll
        for (int i = 0; i < 8; i++)
            store_shared4(p_at(stage) + i * 2048, s[4 * i], s[4 * i + 1], s[4 * i + 2],
                          s[4 * i + 3]);
        arrive(Z::P_FULL + 8 * stage);
        if (SOURCE != ORDO_KEEP_NONE)
            arrive(Z::KEEP_EMPTY); /* the stores have waited for the loads; an arrival does not */
#pragma unroll
        for (int i = 0; i < WIDE_PACKED; i++)
            p[i] = pack_pair<F16>(kept_value<SOURCE != ORDO_KEEP_NONE>(s[2 * i]),
                                  kept_value<SOURCE != ORDO_KEEP_NONE>(s[2 * i + 1]));
    }

    /* dS of step j, packed for dK, from its dP and P. P is released when the product of dK has been
     * issued: that waits for the loads, an arrival would not. */
    __device__ __forceinline__ void gradients(float (&dp)[WIDE_SCORES], uint32_t (&ds)[WIDE_PACKED],
                                              uint32_t unit, uint32_t j) const
    {
        const uint32_t stage = j & 1;
        wide_wait_panels<D>(Z::Q_FULL + 8 * Z::PANELS * stage, j >> 1 & 1); /* already full */
        mbar_wait(Z::STAT_FULL + 8 * stage, j >> 1 & 1);
        mbar_wait(Z::P_FULL + 8 * stage, j >> 1 & 1);
        const bool capped = args.rule.cap > 0.0f;
        const float slope2 =
            capped ? __int_as_float(of_step(stage, STEP_SLOPE)) * args.rule.slope : 0.0f;
        const int first = capped ? away(unit, stage) : 0;
        const uint32_t stat = stage * Z::STAT_BYTES + x % 4 * 16;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float p[8], delta[4];
            load_shared4(p_at(stage) + 4096 * k, p[0], p[1], p[2], p[3]);
            load_shared4(p_at(stage) + 4096 * k + 2048, p[4], p[5], p[6], p[7]);
            load_shared4(Z::DELTA + stat + 64 * k, delta[0], delta[1], delta[2], delta[3]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                dp[8 * k + i] = score_gradient<SOURCE != ORDO_KEEP_NONE>(p[i], dp[8 * k + i],
                                                                         delta[i / 4 * 2 + i % 2]);
            if (capped) {
                float lse[4];
                load_shared4(Z::LSE + stat + 64 * k, lse[0], lse[1], lse[2], lse[3]);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    dp[8 * k + i] *= cap_gradient(fabsf(p[i]), lse[i / 4 * 2 + i % 2], args.rule,
                                                  slope2, wide_away<1>(first, 8 * k + i));
            }
        }
        const bool hidden = of_step(stage, STEP_CUT) == WIDE_HIDDEN;
#pragma unroll
        for (int i = 0; i < WIDE_PACKED; i++) {
            ds[i] = pack_pair<F16>(dp[2 * i], dp[2 * i + 1]);
            ds[i] = hidden ? 0 : ds[i];
        }
    }

    __device__ __forceinline__ carry_tile carried(uint32_t unit, int columns) const
    {
        const int first = of_unit(unit, UNIT_KEY), heads = args.run.kv_heads;
        return { ordo_carry_row(args.kv_rows, heads, of_unit(unit, UNIT_BATCH),
                                of_unit(unit, UNIT_ROW) + first, of_unit(unit, UNIT_HEAD)),
                 heads, of_unit(unit, UNIT_KEYS) - first, columns };
    }

    /* A unit's sums begin from zeros, or from those of the pass before. */
    template <int N>
    __device__ __forceinline__ void begin(float (&d)[N], float *sums, int columns,
                                          uint32_t unit) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            d[i] = 0.0f;
        if (!args.carry.in)
            return;
        const carry_tile tile = carried(unit, columns);
        if (carry_whole<N>(tile, x))
            carry_load_whole(d, sums, tile, x);
        else
            carry_load(d, sums, tile, x);
    }

    /* dV or dK of a unit: sums for the next pass, or rows of the gradient. */
    template <int N>
    __device__ __forceinline__ void put(float (&d)[N], float scale, const ordo_cuda_tensor &to,
                                        float *sums, uint8_t *broken, int columns,
                                        uint32_t unit) const
    {
        uint32_t taint = 0;
        if (args.carry.out) {
            const carry_tile tile = carried(unit, columns);
            if (carry_whole<N>(tile, x) && __all_sync(~0u, carry_taint(d) == 0.0f))
                carry_store_whole(d, sums, tile, x);
            else
                taint = carry_store(d, sums, broken, tile, x);
        } else {
            const int first = of_unit(unit, UNIT_KEY);
            char *const rows =
                row_address(to, of_unit(unit, UNIT_BATCH), of_unit(unit, UNIT_ROW) + first,
                            of_unit(unit, UNIT_HEAD));
            taint = put_rows<F16>(d, { scale, scale }, rows, 2 * to.row,
                                  of_unit(unit, UNIT_KEYS) - first, columns);
        }
        if (taint)
            *args.flag = 1;
    }

    __device__ __forceinline__ void product(float (&s)[WIDE_SCORES], uint32_t j) const /* S */
    {
        const uint32_t q = Z::Q + (j & 1) * Z::K_BYTES;
        const uint32_t bars = Z::Q_FULL + 8 * Z::PANELS * (j & 1);
        wide_scores_arriving<F16, D, 0>(s, Z::K, q, bars, j >> 1 & 1);
        wide_scores_arriving<F16, D, 1>(s, Z::K, q, bars, j >> 1 & 1);
    }

    /* S, P, dV */
    __device__ __forceinline__ void run_scores(void) const
    {
        uint32_t j = 0; /* steps of this block so far */
        named_arrive(WIDE_PINGPONG, 256);
        for (uint32_t unit = 0;; unit++) {
            float dv[DV / 2], s[WIDE_SCORES];
            uint32_t p[WIDE_PACKED];
            mbar_wait(Z::K_FULL, unit & 1);
            const int32_t steps = of_unit(unit, UNIT_STEPS);
            if (steps == 0)
                break;
            const uint32_t last = j + steps - 1;
            begin(dv, args.carry.dv, args.v_head_dim, unit);
            zero_keys<D>(Z::K, unit, 0);
            zero_q(unit, j);
            wgmma_pin(s);
            product(s, j);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(s);
            if (j == last)
                arrive(Z::K_EMPTY);
            probabilities(s, p, unit, j);
#pragma unroll 1
            for (; j < last; j++) {
                const uint32_t stage = j & 1;
                mbar_wait(Z::DO_FULL + 8 * stage, j >> 1 & 1);
                zero_queries<DV>(Z::DO, unit, j, 0);
                named_sync(WIDE_PINGPONG, 256);
                wgmma_pin(dv);
                wgmma_fence();
                wide_add<F16>(dv, p, Z::DO + stage * Z::V_BYTES);
                wgmma_commit();
                zero_q(unit, j + 1);
                wgmma_pin(s);
                product(s, j + 1);
                wgmma_commit();
                named_arrive(WIDE_PINGPONG + 1, 256);
                wgmma_wait<1>();
                arrive(Z::DO_EMPTY + 8 * stage);
                wgmma_wait<0>();
                wgmma_pin(dv);
                wgmma_pin(s);
                if (j + 1 == last)
                    arrive(Z::K_EMPTY); /* so that the next unit's K is loaded meanwhile */
                probabilities(s, p, unit, j + 1);
            }
            const uint32_t stage = j & 1;
            mbar_wait(Z::DO_FULL + 8 * stage, j >> 1 & 1);
            zero_queries<DV>(Z::DO, unit, j, 0);
            wgmma_pin(dv);
            wgmma_fence();
            wide_add<F16>(dv, p, Z::DO + stage * Z::V_BYTES);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(dv);
            arrive(Z::DO_EMPTY + 8 * stage);
            j++;
            put(dv, SOURCE != ORDO_KEEP_NONE ? args.keep_scale : 1.0f, args.dv, args.carry.dv,
                args.carry.dv_broken, args.v_head_dim, unit);
        }
    }

    /* dP, dS, dK */
    __device__ __forceinline__ void run_gradients(void) const
    {
        uint32_t j = 0;
        for (uint32_t unit = 0;; unit++) {
            float dk[D / 2], dp[WIDE_SCORES];
            uint32_t ds[WIDE_PACKED];
            mbar_wait(Z::V_FULL, unit & 1);
            const int32_t steps = of_unit(unit, UNIT_STEPS);
            if (steps == 0)
                break;
            const uint32_t last = j + steps - 1;
            begin(dk, args.carry.dk, args.head_dim, unit);
            zero_keys<DV>(Z::V, unit, 1);
            mbar_wait(Z::DO_FULL + 8 * (j & 1), j >> 1 & 1);
            zero_queries<DV>(Z::DO, unit, j, 1);
            wgmma_pin(dp);
            wgmma_fence();
            wide_scores<F16, DV>(dp, Z::V, Z::DO + (j & 1) * Z::V_BYTES);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(dp);
            arrive(Z::DO_EMPTY + 8 * (j & 1));
            if (j == last)
                arrive(Z::V_EMPTY);
            gradients(dp, ds, unit, j);
#pragma unroll 1
            for (; j < last; j++) {
                const uint32_t stage = j & 1, other = stage ^ 1;
                named_sync(WIDE_PINGPONG + 1, 256);
                wgmma_pin(dk);
                wgmma_fence();
                wide_add_half<F16, 0>(dk, ds, Z::Q + stage * Z::K_BYTES);
                wgmma_commit();
                wide_add_half<F16, 1>(dk, ds, Z::Q + stage * Z::K_BYTES);
                wgmma_commit();
                arrive(Z::P_EMPTY + 8 * stage);
                mbar_wait(Z::DO_FULL + 8 * other, (j + 1) >> 1 & 1);
                zero_queries<DV>(Z::DO, unit, j + 1, 1);
                wgmma_pin(dp);
                wgmma_fence();
                wide_scores<F16, DV>(dp, Z::V, Z::DO + other * Z::V_BYTES);
                wgmma_commit();
                named_arrive(WIDE_PINGPONG, 256);
                wgmma_wait<2>();
                arrive(Z::Q_EMPTY + 16 * stage);
                wgmma_wait<1>();
                arrive(Z::Q_EMPTY + 16 * stage + 8);
                wgmma_wait<0>();
                wgmma_pin(dk);
                wgmma_pin(dp);
                arrive(Z::DO_EMPTY + 8 * other);
                if (j + 1 == last)
                    arrive(Z::V_EMPTY);
                gradients(dp, ds, unit, j + 1);
            }
            const uint32_t stage = j & 1;
            wgmma_pin(dk);
            wgmma_fence();
            wide_add_half<F16, 0>(dk, ds, Z::Q + stage * Z::K_BYTES);
            wide_add_half<F16, 1>(dk, ds, Z::Q + stage * Z::K_BYTES);
            wgmma_commit();
            arrive(Z::P_EMPTY + 8 * stage);
            wgmma_wait<0>();
            wgmma_pin(dk);
            arrive(Z::Q_EMPTY + 16 * stage);
            arrive(Z::Q_EMPTY + 16 * stage + 8);
            j++;
            put(dk, args.out_scale, args.dk, args.carry.dk, args.carry.dk_broken, args.head_dim,
                unit);
        }
    }
};

template <int D, int DV, bool F16, ordo_keep_source SOURCE>
__global__ void __launch_bounds__(WIDE_THREADS, 1)
    backward_wide_keys(const __grid_constant__ ordo_wide_args args)
{
    using Z = wide_keys_shape<D, DV, SOURCE>;
    extern __shared__ __align__(1024) char smem[];
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        if ((uint32_t)__cvta_generic_to_shared(smem) != ORDO_SMEM_BASE)
            ordo_fault();
        mbar_init(Z::K_FULL, 1);
        mbar_init(Z::K_EMPTY, 4);
        mbar_init(Z::V_FULL, 1);
        mbar_init(Z::V_EMPTY, 4);
        for (int s = 0; s < 2; s++) {
            for (int p = 0; p < Z::PANELS; p++)
                mbar_init(Z::Q_FULL + 8 * (Z::PANELS * s + p), 1);
            mbar_init(Z::STAT_FULL + 8 * s, 1);
            mbar_init(Z::Q_EMPTY + 16 * s, 4); /* dK, the last that reads it */
            mbar_init(Z::Q_EMPTY + 16 * s + 8, 4);
            mbar_init(Z::DO_FULL + 8 * s, 1);
            mbar_init(Z::DO_EMPTY + 8 * s, 8);
            mbar_init(Z::P_FULL + 8 * s, 4);
            mbar_init(Z::P_EMPTY + 8 * s, 4);
        }
        mbar_init(Z::KEEP_FULL, SOURCE == ORDO_KEEP_MADE ? WIDE_MAKERS / 32 : 1);
        mbar_init(Z::KEEP_EMPTY, 4);
        mbar_init_fence();
    }
    __syncthreads();
    grid_wait();     /* counters are zero and statistics written */
    grid_let_next(); /* not before: the next kernel reads them, too */

    if (warpgroup == 0) {
        registers_down<Z::PRODUCER_REGISTERS>();
        if (threadIdx.x >= 32) {
            if (SOURCE == ORDO_KEEP_MADE)
                wide_keys_make<D, DV>(args, threadIdx.x - 32);
            return;
        }
        if (elect_one())
            wide_keys_loader<D, DV, SOURCE> { args, policy_evict_last(), 0, 0 }.all();
        return;
    }
    registers_up<Z::CONSUMER_REGISTERS>();
    const wide_keys_math<D, DV, F16, SOURCE> math { args, (int)threadIdx.x % 128 };
    if (warpgroup == 1)
        math.run_scores();
    else
        math.run_gradients();
}

template <int D, int DV, ordo_keep_source SOURCE>
static ordo_wide_kernel wide_keys_instance(bool f16)
{
    return { f16 ? (const void *)backward_wide_keys<D, DV, true, SOURCE>
                 : (const void *)backward_wide_keys<D, DV, false, SOURCE>,
             wide_keys_shape<D, DV, SOURCE>::BYTES };
}

template <int D, int DV> static ordo_wide_kernel wide_keys_of(const ordo_cuda_pass *pass)
{
    const ordo_keep_source source = ordo_pass_keep_source(pass);
    return source == ORDO_KEEP_NONE    ? wide_keys_instance<D, DV, ORDO_KEEP_NONE>(pass->f16)
           : source == ORDO_KEEP_GIVEN ? wide_keys_instance<D, DV, ORDO_KEEP_GIVEN>(pass->f16)
                                       : wide_keys_instance<D, DV, ORDO_KEEP_MADE>(pass->f16);
}

#endif
