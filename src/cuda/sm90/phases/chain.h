/* sm90/phases/chain.h: scores and the products by keys of the backward pass by phases, in one
 * kernel, for heads whose dK and dV of 64 keys fit the registers.
 *
 * A unit is 64 keys of a key head: K and V stay in shared memory, dK and dV in registers, and the
 * query tiles of a panel come in the order of the plan, at each the query heads of the group, 64
 * rows at a time. Two consumer warpgroups share a step by matrix:
 *
 *     scores      S^T = K Q^T,   P = exp2(S - lse),   dV += P^T dO
 *     gradients   dP^T = V dO^T, dS = P (dP - delta), dK += dS^T Q;  dS^T to the workspace
 *
 * P crosses in 16 bits, from each thread to the one at the same place in the other warpgroup; with
 * dropout its sign marks a dropped element. Keep bits come with the queries of a step, or are made
 * by the warps of the producer warpgroup that do not load. The warpgroups issue in turns: the
 * arithmetic of one lies under the products of the other. Every sum has the order and the roundings
 * that sm90/phases/scores.h and sm90/phases/product.h give it, so the bits are theirs, but P is
 * never stored, dS is read once instead of twice, and dV has no columns but its own. */
#ifndef CUDA_SM90_PHASES_CHAIN_H
#define CUDA_SM90_PHASES_CHAIN_H

#include <math.h>

#include "cuda/sm90/phases/chain_load.h"
#include "cuda/sm90/phases/product.h"
#include "cuda/sm90/phases/tile.h"
#include "cuda/tile/score.h"

/* K or V of a unit as the first operand of its products. HELD: in registers, if there are enough:
 * then shared memory, which has to pass more bytes than the tensor cores have time for, has a third
 * less to do for the scores of a step. */
template <bool F16, int COLUMNS, bool HELD> struct chain_tile {
    uint32_t a[HELD ? COLUMNS / 4 : 1];

    __device__ __forceinline__ void load(uint32_t tile, int x)
    {
        const uint32_t line = tile + ordo_store_offset(CHAIN_TILE, x / 32, x % 32, 0);
        if constexpr (HELD)
#pragma unroll
            for (int k = 0; k < COLUMNS / 16; k++)
                load_matrix4(ordo_store_slice(line, CHAIN_TILE, k), a[4 * k], a[4 * k + 1],
                             a[4 * k + 2], a[4 * k + 3]);
    }

    /* d = A B^T */
    __device__ __forceinline__ void times(float (&d)[CHAIN_SCORES], uint32_t tile, uint32_t b) const
    {
        const uint32_t a_low = ordo_descriptor_low(tile, 16), b_low = ordo_descriptor_low(b, 16);
#pragma unroll
        for (int k = 0; k < COLUMNS / 16; k++) {
            const uint64_t slice = wgmma_by_columns(b_low, CHAIN_TILE, k);
            if constexpr (HELD)
                wgmma_rs<F16, 0>(d, a + 4 * k, slice, k > 0);
            else
                wgmma_ss<F16, 0, 0>(d, wgmma_by_columns(a_low, CHAIN_TILE, k), slice, k > 0);
        }
    }
};

template <int D, int DV, bool F16, ordo_keep_source SOURCE, bool SEEN> struct chain_math {
    using Z = chain_shape<D, DV, SOURCE, SEEN>;
    static const bool DROP = SOURCE != ORDO_KEEP_NONE;
    const ordo_phase_chains &args;
    const int x;                         /* thread of the warpgroup */
    pipeline_state<Z::STAGES> ring = {}; /* stage and parity of the step at hand */
    uint32_t j = 0;                      /* steps of this block so far */

    __device__ __forceinline__ void arrive(uint32_t bar) const
    {
        mbar_arrive_warp(bar, (uint32_t)x % 32);
    }

    static __device__ __forceinline__ int32_t of_unit(uint32_t unit, size_t place)
    {
        return load_shared(Z::UNIT + (unit & 1) * Z::UNIT_BYTES + place);
    }

    __device__ __forceinline__ int32_t of_step(size_t place) const
    {
        return load_shared(Z::record(ring.stage, ring.parity) + place);
    }

    __device__ __forceinline__ void advance(void)
    {
        j++;
        ring.advance();
    }

    __device__ __forceinline__ uint32_t q(void) const
    {
        return Z::q(ring.stage, ring.parity);
    }

    __device__ __forceinline__ uint32_t dout(void) const
    {
        return Z::dout(ring.stage, ring.parity);
    }

    /* Q; and dO, if it has no barrier of its own. */
    __device__ __forceinline__ void wait_q(void) const
    {
        mbar_wait(Z::Q_FULL + 8 * ring.stage, ring.parity);
    }

    /* dO, if it has a barrier of its own. Both consumer warpgroups wait for both barriers of a step
     * before they arrive anywhere that lets the stage be loaded again: a parity of a barrier cannot
     * be waited for after the next one. */
    __device__ __forceinline__ void wait_dout(void) const
    {
        if (Z::SWAPPED)
            mbar_wait(Z::DOUT_FULL + 8 * ring.stage, ring.parity);
    }

    /* dP has read dO. Where a stage is released as a whole, dK does it. */
    __device__ __forceinline__ void release_dout(void) const
    {
        if (Z::SWAPPED)
            arrive(Z::DOUT_EMPTY + 8 * ring.stage);
    }

    /* Rows beyond a ragged sequence become zero before a sum runs over them. */
    template <int COLUMNS>
    __device__ __forceinline__ void zero_queries(uint32_t tile, uint32_t unit, int mine) const
    {
        if (!args.batch.table)
            return;
        const int valid =
            of_unit(unit, offsetof(chain_unit, queries)) - of_step(offsetof(chain_step, row));
        if (valid < CHAIN_TILE)
            zero_rows(tile, CHAIN_TILE, COLUMNS / ORDO_PANEL_COLUMNS, max(valid, 0),
                      (int)threadIdx.x, CHAIN_OWN + mine);
    }

    /* d += A B, issued; A 64 x 64 in registers, B 64 x 2 N in shared memory. */
    template <int N>
    static __device__ __forceinline__ void add(float (&d)[N], const uint32_t (&a)[CHAIN_PACKED],
                                               uint32_t b)
    {
        wgmma_pin(d);
        wgmma_fence();
        const uint32_t b_low = ordo_descriptor_low(b, PHASE_BOX_BYTES);
#pragma unroll
        for (int k = 0; k < CHAIN_TILE / 16; k++)
            wgmma_rs<F16, 1>(d, a + 4 * k, wgmma_by_rows(b_low, k), 1);
        wgmma_commit();
    }

    /* This thread's first key, and its first query of a step, in the sequence. */
    __device__ __forceinline__ int key(uint32_t unit) const
    {
        return of_unit(unit, offsetof(chain_unit, key)) + ordo_accumulator_row(x, 0);
    }

    __device__ __forceinline__ int query(void) const
    {
        return of_step(offsetof(chain_step, row)) + 2 * (x % 4);
    }

    __device__ __forceinline__ int away(uint32_t unit) const
    {
        return query() + of_unit(unit, offsetof(chain_unit, diagonal)) - key(unit);
    }

    /* Queries that see this thread's two keys. */
    __device__ __forceinline__ phase_window window(uint32_t unit) const
    {
        const ordo_cuda_sequence s =
            ordo_batch_sequence(&args.batch, of_unit(unit, offsetof(chain_unit, sequence)));
        const int first = query();
        phase_window w;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = key(unit) + 8 * r;
            w.from[r] = at < s.kv_len ? at - s.high - first : 0;
            w.to[r] = at < s.kv_len ? min(at - s.low, s.q_len - 1) - first : -1;
        }
        return w;
    }

    /* each(element, word, shift) for a thread's elements of S^T, whose rows are the keys from `key`
     * on: shifted left by it, the word has the element's bit in its sign. A word holds 32 keys of
     * one query; a thread has two of them, 8 keys apart. */
    template <class EACH>
    static __device__ __forceinline__ void with_bits(float (&p)[CHAIN_SCORES], uint32_t words,
                                                     int key, int x, EACH each)
    {
        const uint32_t at = words + x % 4 * 64 + x % 32 / 8 * 8;
        const uint32_t shift = keep_shift(key / CHAIN_TILE % 2 * 8 + x / 32 * 2, x / 4 % 2);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int32_t word[2][2]; /* queries 0 and 8, 1 and 9 of this thread's sixteen */
            load_shared2(at + k * 256, word[0][0], word[0][1]);
            load_shared2(at + k * 256 + 32, word[1][0], word[1][1]);
#pragma unroll
            for (int i = 8 * k; i < 8 * k + 8; i++)
                each(p[i], (uint32_t)word[i % 2][i / 4 % 2], shift - (i & 2 ? 16 : 0));
        }
    }

    /* Marks the dropped elements. */
    static __device__ __forceinline__ void drop(float (&p)[CHAIN_SCORES], uint32_t words, int key,
                                                int x)
    {
        with_bits(p, words, key, x, [](float &p, uint32_t word, uint32_t shift) {
            p = mark_dropped(p, word, shift);
        });
    }

    /* Gives what is hidden a value. */
    __device__ __forceinline__ void hide(float (&s)[CHAIN_SCORES], uint32_t unit, float value) const
    {
        const int32_t partial = of_step(offsetof(chain_step, partial));
        if (SEEN ? partial & CHAIN_BAND : partial)
            window(unit).hide(s, value);
        if (SEEN && partial & CHAIN_ELEMENTS) {
            int thread = x;
            asm volatile("" : "+r"(thread)); /* nothing of it in registers from step to step */
            with_bits(s, Z::elements(ring.stage, ring.parity),
                      of_unit(unit, offsetof(chain_unit, key)), thread,
                      [value](float &s, uint32_t word, uint32_t shift) {
                          set_if_clear(s, word, 0x80000000u >> shift, value);
                      });
        }
    }

    /* P of a step from its S: packed for dV, and to the other warpgroup, with the derivative of
     * softcap in it. */
    __device__ __forceinline__ void probabilities(float (&s)[CHAIN_SCORES],
                                                  uint32_t (&p)[CHAIN_PACKED], uint32_t unit) const
    {
        const uint32_t to = Z::P + (j & 1) * Z::P_BYTES + x * 16;
        float lse[16];
#pragma unroll
        for (int k = 0; k < 4; k++)
            load_shared4(Z::LSE + ring.stage * Z::STAT_BYTES + x % 4 * 16 + 64 * k, lse[4 * k],
                         lse[4 * k + 1], lse[4 * k + 2], lse[4 * k + 3]);
        relative_logits<1, false>(
            s, args.rule, args.has_rule, [&](int i) { return lse[i / 4 * 2 + i % 2]; },
            [&](float &slope) {
                slope = __int_as_float(of_step(offsetof(chain_step, slope)));
                return away(unit);
            });
        hide(s, unit, -INFINITY);
#pragma unroll
        for (int i = 0; i < CHAIN_SCORES; i++)
            s[i] = exp2_approx(s[i]);
        if constexpr (DROP) {
            if (SOURCE == ORDO_KEEP_MADE)
                mbar_wait(Z::KEEP_FULL + 8 * ring.stage, ring.parity);
            int thread = x;
            asm volatile("" : "+r"(thread)); /* nothing of it in registers from step to step */
            drop(s, Z::KEEP + ring.stage * Z::KEEP_BYTES, of_unit(unit, offsetof(chain_unit, key)),
                 thread);
        }
#pragma unroll
        for (int i = 0; i < CHAIN_PACKED; i++)
            p[i] = pack_pair<F16>(s[2 * i], s[2 * i + 1]);
        wait_dout(); /* for dV; gradients() could not go on without it */
        mbar_wait(Z::P_EMPTY + 8 * (j & 1), (j >> 1 & 1) ^ 1);
        if (args.rule.cap > 0.0f) {
            const float slope2 =
                __int_as_float(of_step(offsetof(chain_step, slope))) * args.rule.slope;
            const int first = away(unit);
#pragma unroll
            for (int i = 0; i < CHAIN_SCORES; i++)
                s[i] *=
                    cap_gradient(fabsf(s[i]), lse[i / 4 * 2 + i % 2], args.rule, slope2,
                                 (float)(first + ordo_accumulator_column(0, i) - 8 * (i / 2 % 2)));
#pragma unroll
            for (int k = 0; k < 4; k++)
                store_shared_int4(to + 2048 * k,
                                  { (int)pack_pair<F16>(s[8 * k], s[8 * k + 1]),
                                    (int)pack_pair<F16>(s[8 * k + 2], s[8 * k + 3]),
                                    (int)pack_pair<F16>(s[8 * k + 4], s[8 * k + 5]),
                                    (int)pack_pair<F16>(s[8 * k + 6], s[8 * k + 7]) });
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                store_shared_int4(to + 2048 * k, { (int)p[4 * k], (int)p[4 * k + 1],
                                                   (int)p[4 * k + 2], (int)p[4 * k + 3] });
        }
        arrive(Z::P_FULL + 8 * (j & 1));
        if constexpr (DROP)
#pragma unroll
            for (int i = 0; i < CHAIN_PACKED; i++)
                p[i] = kept_pair<F16>(p[i]);
    }

    /* dS of a step from its dP and P: packed for dK. P is released when the product of dK has been
     * issued: that waits for the loads, an arrival would not. */
    __device__ __forceinline__ void gradients(float (&dp)[CHAIN_SCORES],
                                              uint32_t (&ds)[CHAIN_PACKED], uint32_t unit) const
    {
        const uint32_t from = Z::P + (j & 1) * Z::P_BYTES + x * 16;
        mbar_wait(Z::P_FULL + 8 * (j & 1), j >> 1 & 1);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float delta[4];
            const int4 p = load_shared_int4(from + 2048 * k);
            const uint32_t w[4] = { (uint32_t)p.x, (uint32_t)p.y, (uint32_t)p.z, (uint32_t)p.w };
            load_shared4(Z::DELTA + ring.stage * Z::STAT_BYTES + x % 4 * 16 + 64 * k, delta[0],
                         delta[1], delta[2], delta[3]);
            if constexpr (DROP) /* dropped: dP is 0, or NaN */
#pragma unroll
                for (int i = 0; i < 8; i++)
                    zero_if(dp[8 * k + i], w[i / 2], i % 2 ? 0x80000000u : 0x8000u);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float of = i % 2 ? pair_high<F16>(w[i / 2]) : pair_low<F16>(w[i / 2]);
                dp[8 * k + i] =
                    (dp[8 * k + i] - delta[i / 4 * 2 + i % 2]) * (DROP ? fabsf(of) : of);
            }
        }
        hide(dp, unit, 0.0f);
#pragma unroll
        for (int i = 0; i < CHAIN_PACKED; i++)
            ds[i] = pack_pair<F16>(dp[2 * i], dp[2 * i + 1]);
        if (args.phase.ds)
            store(ds, unit);
    }

    /* dS^T to the workspace, 64 bytes per quad and key. */
    __device__ __forceinline__ void store(const uint32_t (&ds)[CHAIN_PACKED], uint32_t unit) const
    {
        const int64_t line = of_step(offsetof(chain_step, line)) + key(unit);
        uint16_t *const to = args.phase.ds + line * PHASE_ROWS +
                             of_step(offsetof(chain_step, row)) % PHASE_ROWS + 8 * (x % 4);
        phase_store_pairs<CHAIN_PACKED>(to, PHASE_ROWS, x, [&](int i) { return ds[i]; });
    }

    /* Beginning and end of the sums of dV (FACTORS 0) or dK (1), as in the product by keys. */
    __device__ __forceinline__ product_unit sums_of(int factors, uint32_t unit) const
    {
        return { 0,
                 of_unit(unit, offsetof(chain_unit, key)),
                 of_unit(unit, offsetof(chain_unit, head)),
                 of_unit(unit, offsetof(chain_unit, sequence)),
                 factors,
                 0,
                 of_unit(unit, offsetof(chain_unit, ends)) };
    }

    template <int FACTORS, int N>
    __device__ __forceinline__ void begin(float (&d)[N], uint32_t unit) const
    {
        const product_unit u = sums_of(FACTORS, unit);
        product_math<PHASE_BY_KEYS, F16, 2 * N> { args, { 0, x } }.begin(d, u);
    }

    template <int FACTORS, int N>
    __device__ __forceinline__ void end(float (&d)[N], uint32_t unit) const
    {
        const product_unit u = sums_of(FACTORS, unit);
        product_math<PHASE_BY_KEYS, F16, 2 * N> { args, { 0, x } }.end(d, u);
    }

    /* S, P, dV */
    __device__ __forceinline__ void run_scores(void)
    {
        named_arrive(CHAIN_PINGPONG, 256);
        for (uint32_t unit = 0;; unit++) {
            float dv[DV / 2], s[CHAIN_SCORES];
            uint32_t p[CHAIN_PACKED];
            chain_tile<F16, D, Z::K_HELD> k;
            mbar_wait(Z::K_FULL, unit & 1);
            const int32_t steps = of_unit(unit, offsetof(chain_unit, steps));
            if (steps < 0)
                break;
            begin<0>(dv, unit);
            if (steps == 0) { /* keys that no query sees */
                arrive(Z::K_EMPTY);
                end<0>(dv, unit);
                continue;
            }
            k.load(Z::K, x);
            wait_q();
            wgmma_pin(s);
            wgmma_fence();
            k.times(s, Z::K, q());
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(s);
            if (steps == 1)
                arrive(Z::K_EMPTY);
            probabilities(s, p, unit);
#pragma unroll 1
            for (int32_t n = 1; n < steps; n++) {
                const uint32_t last = ring.stage, tile = dout();
                zero_queries<DV>(tile, unit, 0);
                advance();
                named_sync(CHAIN_PINGPONG, 256);
                add(dv, p, tile);
                wait_q();
                wgmma_pin(s);
                wgmma_fence();
                k.times(s, Z::K, q());
                wgmma_commit();
                named_arrive(CHAIN_PINGPONG + 1, 256);
                wgmma_wait<1>();
                arrive(Z::DOUT_EMPTY + 8 * last);
                wgmma_wait<0>();
                wgmma_pin(dv);
                wgmma_pin(s);
                if (n + 1 == steps)
                    arrive(Z::K_EMPTY); /* so that the next unit's K is loaded meanwhile */
                probabilities(s, p, unit);
            }
            zero_queries<DV>(dout(), unit, 0);
            add(dv, p, dout());
            wgmma_wait<0>();
            wgmma_pin(dv);
            arrive(Z::DOUT_EMPTY + 8 * ring.stage);
            advance();
            end<0>(dv, unit);
        }
    }

    /* dP, dS, dK */
    __device__ __forceinline__ void run_gradients(void)
    {
        for (uint32_t unit = 0;; unit++) {
            float dk[D / 2], dp[CHAIN_SCORES];
            uint32_t ds[CHAIN_PACKED];
            chain_tile<F16, DV, Z::V_HELD> v;
            mbar_wait(Z::V_FULL, unit & 1);
            const int32_t steps = of_unit(unit, offsetof(chain_unit, steps));
            if (steps < 0)
                break;
            begin<1>(dk, unit);
            if (steps == 0) {
                arrive(Z::V_EMPTY);
                end<1>(dk, unit);
                continue;
            }
            v.load(Z::V, x);
            wait_q();
            wait_dout();
            wgmma_pin(dp);
            wgmma_fence();
            v.times(dp, Z::V, dout());
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(dp);
            release_dout();
            if (steps == 1)
                arrive(Z::V_EMPTY);
            gradients(dp, ds, unit);
#pragma unroll 1
            for (int32_t n = 1; n < steps; n++) {
                const uint32_t last = ring.stage, tile = q(), crossed = Z::P_EMPTY + 8 * (j & 1);
                zero_queries<D>(tile, unit, 1);
                advance();
                wait_q();
                named_sync(CHAIN_PINGPONG + 1, 256);
                add(dk, ds, tile);
                arrive(crossed);
                wait_dout();
                wgmma_pin(dp);
                wgmma_fence();
                v.times(dp, Z::V, dout());
                wgmma_commit();
                named_arrive(CHAIN_PINGPONG, 256);
                wgmma_wait<1>();
                arrive(Z::Q_EMPTY + 8 * last);
                wgmma_wait<0>();
                wgmma_pin(dk);
                wgmma_pin(dp);
                release_dout();
                if (n + 1 == steps)
                    arrive(Z::V_EMPTY);
                gradients(dp, ds, unit);
            }
            zero_queries<D>(q(), unit, 1);
            add(dk, ds, q());
            arrive(Z::P_EMPTY + 8 * (j & 1));
            wgmma_wait<0>();
            wgmma_pin(dk);
            arrive(Z::Q_EMPTY + 8 * ring.stage);
            advance();
            end<1>(dk, unit);
        }
    }
};

template <int D, int DV, bool F16, ordo_keep_source SOURCE, bool SEEN>
__global__ void __launch_bounds__(PHASE_THREADS, 1)
    phase_chain(const __grid_constant__ ordo_phase_chains args)
{
    using Z = chain_shape<D, DV, SOURCE, SEEN>;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    block_begin([] {
        mbar_init(Z::K_FULL, 1);
        mbar_init(Z::K_EMPTY, 4);
        mbar_init(Z::V_FULL, 1);
        mbar_init(Z::V_EMPTY, 4);
        for (int s = 0; s < Z::STAGES; s++) {
            mbar_init(Z::Q_FULL + 8 * s, 1);
            mbar_init(Z::DOUT_EMPTY + 8 * s, 8); /* dV and dK, the last that read the stage */
            if (Z::SWAPPED) { /* DOUT_EMPTY: dV and dP. Q_EMPTY: dK, for S came before its P */
                mbar_init(Z::DOUT_FULL + 8 * s, 1);
                mbar_init(Z::Q_EMPTY + 8 * s, 4);
            }
            if (Z::MADE) {
                mbar_init(Z::TOLD + 8 * s, 1);
                mbar_init(Z::KEEP_FULL + 8 * s, CHAIN_MAKERS / 32);
            }
        }
        for (int s = 0; s < 2; s++) {
            mbar_init(Z::P_FULL + 8 * s, 4);
            mbar_init(Z::P_EMPTY + 8 * s, 4);
        }
    });
    if (warpgroup == 0) {
        registers_down<Z::PRODUCER_REGISTERS>();
        if constexpr (SOURCE == ORDO_KEEP_MADE)
            if (threadIdx.x >= 32) {
                chain_make_bits<Z>(args, threadIdx.x - 32);
                return;
            }
        if (threadIdx.x < 32 && elect_one())
            chain_loader<D, DV, SOURCE, SEEN> { args, policy_evict_last() }.all_units();
        return;
    }
    registers_up<Z::CONSUMER_REGISTERS>();
    chain_math<D, DV, F16, SOURCE, SEEN> math { args, (int)threadIdx.x % 128 };
    if (warpgroup == 1)
        math.run_scores();
    else
        math.run_gradients();
}

#endif
