/* sm90/backward/kernel.h: dK, dV, and dQ summed in the plan's order.
 * docs/design/hopper-backward.md draws the roles.
 *
 * A block draws chains from a ticket counter. A chain is a tile of 128 keys: K and V stay in
 * shared memory, dK and dV in registers, and the plan says which query tile comes when. Scores are
 * held transposed (keys x queries), so that P and dS are register operands of dV and dK as they
 * are; dS goes through shared memory once, for dQ. A step of a consumer warpgroup issues
 *
 *     dP(j) dV(j) | dK(j) dQ(j-1) S(j+1)
 *
 * and waits at the bar until the other one has issued its products (ping-pong): so the arithmetic
 * of one warpgroup lies under the products of the other. dQ comes one step late, when the other
 * warpgroup's half of dS has long been written.
 *
 * dQ partials leave through two buffers, each with a warp of its own that waits for the tile's
 * turn, adds (turn 0 stores), and passes the turn on: never on the path of the consumer warps. */
#ifndef CUDA_SM90_BACKWARD_KERNEL_H
#define CUDA_SM90_BACKWARD_KERNEL_H

#include "cuda/sm90/backward/sums.h"
#include "cuda/tile/units.h"

/* The barriers of a block, by one thread. */
template <class Z> ORDO_DEVICE void backward_barriers(void)
{
    mbar_init(Z::KV_FULL, 1);
    mbar_init(Z::KV_EMPTY, 8);
    for (int s = 0; s < 2; s++) {
        mbar_init(Z::Q_FULL + 8 * s, 1);
        mbar_init(Z::Q_EMPTY + 8 * s, 8);
        mbar_init(Z::DO_FULL + 8 * s, 1);
        mbar_init(Z::DO_EMPTY + 8 * s, 8);
        mbar_init(Z::DQ_FULL + 8 * s, 8);
        mbar_init(Z::DQ_EMPTY + 8 * s, 1);
    }
    for (int i = 0; i < Z::STEPS; i++)
        mbar_init(Z::STEP_FULL + 8 * i, 1);
    for (int i = 0; i < Z::AHEAD; i++)
        mbar_init(Z::STEP_EMPTY + 8 * i, 1);
    for (int i = 0; i < Z::KEEP_BUFFERS; i++) {
        mbar_init(Z::KEEP_FULL + 8 * i, Z::MADE ? 8 : 1);
        mbar_init(Z::KEEP_EMPTY + 8 * i, 8);
    }
    if constexpr (Z::STAGED)
        for (int s = 0; s < 2; s++) {
            mbar_init(Z::BIAS_FULL + 8 * s, 1);
            mbar_init(Z::BIAS_EMPTY + 8 * s, 8);
        }
}

/* The roles of the producer warpgroup, one thread of each warp. */
template <int D, int MODE, ordo_keep_source SOURCE, bool VARLEN, bool CARRY, bool BLOCKS,
          bool ELEMENTS, backward_bias BIAS>
ORDO_DEVICE void backward_produce(const ordo_backward_args &args)
{
    using Z = backward_shape<D, SOURCE, VARLEN, BLOCKS, BIAS>;
    const int warp = threadIdx.x / 32;
    if (!elect_one())
        return;
    if (warp == 0) {
        if constexpr (VARLEN)
            general_load<D, SOURCE, BLOCKS, BIAS>(args);
        else
            backward_load<D, SOURCE>(args);
    } else if (warp <= Z::DQ_BUFFERS) {
        backward_store<D, MODE, SOURCE, VARLEN, BLOCKS, BIAS>(args, warp - 1);
    } else if (warp == 3) {
        if constexpr (VARLEN)
            general_planner<D, SOURCE, BLOCKS, ELEMENTS, BIAS> { args, 0 }.all();
        else
            backward_planner<D, MODE, SOURCE, CARRY> { args, 0 }.all();
    }
}

/* Stores the sums of a chain, or dK and dV, which OPTIONAL instances run without, too. Whether one
 * is not finite. */
template <int D, bool KEYS, bool CARRY, bool OPTIONAL, class M>
ORDO_DEVICE uint32_t backward_put(const ordo_backward_args &args, const M &m, const chain_place &at,
                                  float (&dk)[D / 2], float (&dv)[D / 2])
{
    if (at.dead) {
        clear(dk);
        clear(dv);
    }
    ORDO_UNIT_DONE(dv[0], m.leads(), 1, at.sequence, at.head, at.key + 64 * m.mine);
    if (CARRY && args.carry.out)
        return chain_sums<D>(args, at, m.thread).store(dk, dv);
    if (!KEYS || (OPTIONAL && !args.dk.data))
        return 0;
    const uint32_t taint = m.put_out(dv, M::Z::DROP ? args.keep_scale : 1.0f, &args.map.dv, args.dv,
                                     args.v_head_dim, at);
    return taint | m.put_out(dk, args.dk_scale, &args.map.dk, args.dk, args.head_dim, at);
}

/* CARRY: sums of dK and dV may come in and go out. Instances without it pay nothing for that: even
 * a branch that is not taken costs dense passes of head size 128 6 %. MAKER: of bits that are not
 * given. */
template <int D, int MODE, ordo_keep_source SOURCE, bool VARLEN = false, bool F16 = false,
          bool CARRY = VARLEN, bool BLOCKS = false, bool ELEMENTS = false,
          backward_bias BIAS = BIAS_NONE, class MAKER = backward_maker<D>>
__global__ void __launch_bounds__(384, 1)
    backward_kernel(const __grid_constant__ ordo_backward_args args)
{
    using Z = backward_shape<D, SOURCE, VARLEN, BLOCKS, BIAS>;
    using M = backward_math<D, SOURCE, VARLEN, F16, BLOCKS, ELEMENTS, BIAS, MAKER>;
    using SUMS = chain_sums<D>;
    const bool KEYS = MODE != ORDO_DQ_ALONE, QUERIES = MODE != ORDO_DQ_NONE;
    /* The edge of a step's tile is loaded one step ahead. Else the compiler may place the load
     * before the last product of dP, which then waits for it after the others' operands. */
    const bool EDGE_AHEAD = CARRY && !VARLEN;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    block_begin([] { backward_barriers<Z>(); });
    grid_wait();     /* counters are zero and statistics written */
    grid_let_next(); /* not before: the next kernel reads the counters */

    if (warpgroup == 0) {
        registers_down<Z::PRODUCER_REGISTERS>();
        backward_produce<D, MODE, SOURCE, VARLEN, CARRY, BLOCKS, ELEMENTS, BIAS>(args);
        return;
    }

    registers_up<Z::CONSUMER_REGISTERS>();
    const M m(warpgroup - 1, threadIdx.x);
    uint32_t j = 0;             /* steps of this block so far */
    float dk[D / 2], dv[D / 2]; /* the first products of a chain overwrite them */
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        dk[i] = dv[i] = 0.0f;
    if (m.mine == 0)
        named_arrive(PINGPONG, 256);
    if constexpr (SOURCE == ORDO_KEEP_MADE)
        for (uint32_t ahead = 0; ahead < Z::KEEP_BUFFERS; ahead++)
            m.keep.make(ahead, args);
    for (uint32_t chain = 0;; chain++) {
        mbar_wait(Z::KV_FULL, chain & 1);
        const int32_t steps = load_shared(Z::CHAIN);
        if (steps == 0)
            break;
        const uint32_t end = j + steps;
        float sc[M::SCORES], lse[M::STATS];
        int32_t edge = 0; /* step j's */
        if constexpr (VARLEN)
            m.zero_keys();
        if (m.leads())
            bulk_wait_read(); /* dK of the last chain has left dS */
        named_sync(OWN + m.mine, 128);
        named_arrive(DS_DONE + 2 * ((j & 1) ^ 1) + (m.mine ^ 1), 256);
        mbar_wait(Z::Q_FULL + 8 * (j & 1), j >> 1 & 1);
        wgmma_pin(sc);
        wgmma_fence();
        m.template scores<Z::K, Z::Q>(sc, j & 1);
        wgmma_commit();
        if (EDGE_AHEAD)
            edge = load_shared(Z::EDGE + 4 * (j & 1));
        int32_t words; /* not needed: leave() releases the chain's record */
        if (CARRY && args.carry.in)
            SUMS(args, m.place(args, words), m.thread).load(dk, dv);
        if (D == 128 && !BIAS)
            m.stats(lse, 0, j & 1);
        mbar_wait(Z::DO_FULL + 8 * (j & 1), j >> 1 & 1);
        if constexpr (VARLEN)
            m.zero_queries(j);
        /* Waits for the scores of a step. Bits and biases are loaded and used here, where few
         * registers are in use; so the rule, which comes before them, is applied here, too. */
        auto wait_for_scores = [&](uint32_t j, bool there) {
            if constexpr (ELEMENTS) {
                const typename M::element_bits bits = m.load_elements(j, there, args.blocks);
                wgmma_wait<0>();
                wgmma_pin(sc);
                if (args.has_rule)
                    m.score(sc, j, args.rule);
                if (there)
                    m.mask_elements(sc, bits, j);
            } else if constexpr (BIAS) {
                if (!Z::STAGED && !there) /* scores that are dropped: of any step on record */
                    j--;
                m.wait_biased(sc, j, there, args);
                if (D == 128)
                    m.stats(lse, 0, j & 1);
            } else {
                wgmma_wait<0>();
                wgmma_pin(sc);
            }
        };
        wait_for_scores(j, true);

        /* On entry S(j) is there, and dS(j - 1) in shared memory. */
        auto step = [&](uint32_t j) {
            const int stage = j & 1, other = stage ^ 1;
            const bool first = j == end - steps, last = j + 1 == end;
            const bool begins = CARRY ? first && !args.carry.in : first;
            float dp[M::SCORES];
            uint32_t p[M::PACKED], ds[M::PACKED];
            wgmma_fence();
            m.template scores<Z::V, Z::DO>(dp, stage);
            wgmma_commit();
            if constexpr (VARLEN) {
                if (!ELEMENTS && !BIAS && args.has_rule)
                    m.score(sc, j, args.rule);
                m.mask_varlen(sc, j, args.blocks);
            } else {
                m.mask(sc, EDGE_AHEAD ? edge : load_shared(Z::EDGE + 4 * stage),
                       args.run.band.kv_len);
            }
            m.template gradients<KEYS>(sc, dp, dv, lse, p, ds, j, args, begins);
            named_sync(DS_DONE + 2 * other + m.mine, 256);
            if (QUERIES)
                m.put_ds(ds, stage);
            if (Z::DROP && !KEYS)
                m.keep.release(j);
            named_sync(PINGPONG + m.mine, 256);
            wgmma_pin(dk);
            wgmma_fence();
            if (KEYS)
                m.add(dk, ds, Z::Q, stage, begins);
            wgmma_commit();
            float dq[32]; /* dQ of the step before; the first step's is dropped */
            wgmma_pin(dq);
            wgmma_fence();
            if (QUERIES)
                m.dq(dq, other);
            wgmma_commit();
            wgmma_wait<2>(); /* dV: dO is free, and P */
            m.arrive(Z::DO_EMPTY + 8 * stage);
            if (D == 128) { /* no registers for S beside dK */
                wgmma_wait<1>();
                m.arrive(Z::Q_EMPTY + 8 * stage);
            }
            const uint32_t next_parity = (j + 1) >> 1 & 1;
            if (!last)
                mbar_wait(Z::Q_FULL + 8 * other, next_parity);
            if constexpr (ELEMENTS && SOURCE == ORDO_KEEP_NONE) /* else registers do not suffice */
                m.expect_elements(j + 1, !last, args.blocks);
            wgmma_pin(sc);
            wgmma_fence();
            m.template scores<Z::K, Z::Q>(
                sc, other); /* after the last step: of whatever is there, and dropped */
            wgmma_commit();
            named_arrive(PINGPONG + (m.mine ^ 1), 256);
            if (D == 64) {
                wgmma_wait<2>();
                m.arrive(Z::Q_EMPTY + 8 * stage);
            }
            if (!first) /* barriers are looked at while the tensor cores work */
                m.wait_dq(j - 1);
            if (!last)
                mbar_wait(Z::DO_FULL + 8 * other, next_parity);
            wgmma_wait<1>();
            wgmma_pin(dq);
            if (QUERIES && !first)
                m.put_dq(dq, j - 1);
            fence_shared_to_async(); /* dS and dQ */
            if (!first)
                m.arrive(m.dq_full(j - 1));
            named_arrive(DS_DONE + 2 * stage + (m.mine ^ 1), 256);
            if constexpr (SOURCE == ORDO_KEEP_MADE)
                m.keep.make(j + Z::KEEP_BUFFERS, args);
            if (EDGE_AHEAD) /* after the last step: of whatever is there, and dropped */
                edge = load_shared(Z::EDGE + 4 * other);
            if (D == 128 && !BIAS)
                m.stats(lse, 0, other);
            if (VARLEN && !last)
                m.zero_queries(j + 1);
            wait_for_scores(j + 1, !last);
        };
#pragma unroll 1
        for (; j < end; j++)
            step(j);

        { /* dQ of the last step */
            const int stage = (j - 1) & 1;
            float dq[32];
            named_sync(DS_DONE + 2 * stage + m.mine, 256);
            wgmma_pin(dq);
            wgmma_fence();
            if (QUERIES)
                m.dq(dq, stage);
            wgmma_commit();
            m.wait_dq(j - 1);
            wgmma_wait<0>();
            wgmma_pin(dq);
            if (QUERIES)
                m.put_dq(dq, j - 1);
            fence_shared_to_async();
            m.arrive(m.dq_full(j - 1));
        }
        const chain_place at = m.leave(args); /* the next chain's K and V come meanwhile */
        /* dS has been read: dV and dK are staged there. Sums are not, so they need not wait. */
        if (KEYS && (!CARRY || !args.carry.out))
            named_sync(DQ_DONE, 256);
        if (backward_put < D, KEYS, CARRY, BLOCKS || BIAS > (args, m, at, dk, dv))
            args.ticket[ORDO_NOT_FINITE] = 1;
    }
    if (m.leads())
        bulk_wait();
}

#endif
