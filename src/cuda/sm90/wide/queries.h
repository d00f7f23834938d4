/* sm90/wide/queries.h: dQ of head sizes 129 to 256 in the form apart.
 *
 * A unit is 128 queries of one query head, 64 to each of two consumer warpgroups: Q and dO stay in
 * shared memory, dQ in registers, and key tiles of 64 come in ascending order. A step of a
 * warpgroup issues, when the other one has issued its products (ping-pong),
 *
 *     dQ += dS(j) K(j) | S(j+1) = Q K(j+1)^T | dP(j+1) = dO V(j+1)^T
 *
 * and computes dS, a register operand, from S and dP while the products of the other one run. */
#ifndef CUDA_SM90_WIDE_QUERIES_H
#define CUDA_SM90_WIDE_QUERIES_H

#include "cuda/sm90/wide/wide.h"

template <int D, int DV> struct wide_queries_shape {
    enum {
        CONSUMER_REGISTERS = 240,
        PRODUCER_REGISTERS = 24,
        ROWS = 128,
        K_STAGES = 2,             /* read a step longer than V */
        PANELS = wide_panels(DV), /* of V */
        K_BYTES = wide_bytes(D),
        V_BYTES = wide_bytes(DV),
        Q_BYTES = ROWS / WIDE_TILE * K_BYTES,
        DO_BYTES = ROWS / WIDE_TILE * V_BYTES,
        UNIT_BYTES = 5 * 4,
        /* shared memory */
        Q = ORDO_SMEM_BASE,
        DO = Q + Q_BYTES,
        K = DO + DO_BYTES,
        V = K + K_STAGES * K_BYTES,
        Q_FULL = V + V_BYTES, /* barriers, 8 bytes each; Q and dO are one */
        Q_EMPTY = Q_FULL + 8,
        K_FULL = Q_EMPTY + 8,
        K_EMPTY = K_FULL + 8 * K_STAGES,
        V_FULL = K_EMPTY + 8 * K_STAGES, /* a panel each */
        V_EMPTY = V_FULL + 8 * PANELS,   /* by halves of the columns */
        UNIT = V_EMPTY + 16,             /* twice, by the parity of the unit */
        END = UNIT + 2 * UNIT_BYTES,
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");
    static_assert(wide_registers_fit(CONSUMER_REGISTERS, PRODUCER_REGISTERS), "registers");
};

/* Indices of the words in the record of a unit. */
enum { OF_STEPS, OF_TILE, OF_ROW, OF_HEAD, OF_SEQUENCE };

/* Upper bound of the units of one head in the sequences before b: a unit is a pair of query tiles,
 * and the table counts tiles one by one, so each sequence may add one empty unit. */
ORDO_HD int32_t wide_pairs_before(const ordo_cuda_batch *batch, int32_t b)
{
    return (int32_t)((ordo_batch_before(batch, ORDO_BEFORE_QUERY, b) + b + 1) / 2);
}

/* The last sequence with no more than `pair` before it. */
ORDO_HD int32_t wide_find_pair(const ordo_cuda_batch *batch, int32_t pair)
{
    int32_t low = 0, high = batch->sequences;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (wide_pairs_before(batch, middle) <= pair)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- loads: one thread ---- */

template <int D, int DV> struct wide_queries_loader {
    using Z = wide_queries_shape<D, DV>;
    const ordo_wide_args &args;
    const uint64_t evict_last, evict_first;
    uint32_t step, units;

    __device__ __forceinline__ void begin_unit(const ordo_cuda_sequence &s, int steps, int tile,
                                               int row, int head, int sequence)
    {
        const uint32_t at = Z::UNIT + (units & 1) * Z::UNIT_BYTES;
        mbar_wait(Z::Q_EMPTY, (units & 1) ^ 1);
        store_shared(at + 4 * OF_STEPS, steps);
        if (steps == 0) {
            mbar_arrive(Z::Q_FULL);
            return;
        }
        store_shared(at + 4 * OF_TILE, tile);
        store_shared(at + 4 * OF_ROW, row);
        store_shared(at + 4 * OF_HEAD, head);
        store_shared(at + 4 * OF_SEQUENCE, sequence);
        mbar_expect(Z::Q_FULL, Z::Q_BYTES + Z::DO_BYTES);
#pragma unroll
        for (int half = 0; half < 2; half++) { /* one tile per consumer warpgroup */
            const int from = s.q_row + row + half * WIDE_TILE;
            wide_load<D>(Z::Q + half * Z::K_BYTES, &args.q, Z::Q_FULL, from, head, s.batch,
                         evict_first);
            wide_load<DV>(Z::DO + half * Z::V_BYTES, &args.dout, Z::Q_FULL, from, head, s.batch,
                          evict_first);
        }
        units++;
    }

    __device__ __forceinline__ void load_k(const ordo_cuda_sequence &s, int row, int head)
    {
        const uint32_t stage = step & 1, full = Z::K_FULL + 8 * stage;
        mbar_wait(Z::K_EMPTY + 8 * stage, (step >> 1 & 1) ^ 1);
        mbar_expect(full, Z::K_BYTES);
        wide_load<D>(Z::K + stage * Z::K_BYTES, &args.k, full, s.kv_row + row, head, s.batch,
                     evict_last);
    }

    __device__ __forceinline__ void load_v(const ordo_cuda_sequence &s, int row, int head)
    {
        mbar_wait(Z::V_EMPTY, (step & 1) ^ 1);
        wide_load_half<DV, 0>(Z::V, &args.v, Z::V_FULL, s.kv_row + row, head, s.batch, evict_last,
                              true);
        mbar_wait(Z::V_EMPTY + 8, (step & 1) ^ 1);
        wide_load_half<DV, 1>(Z::V, &args.v, Z::V_FULL, s.kv_row + row, head, s.batch, evict_last,
                              true);
        step++;
    }

    __device__ __forceinline__ void unit(wide_unit unit)
    {
        const int32_t sequence = wide_find_pair(&args.batch, unit.tile);
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, sequence);
        const int32_t pair = unit.tile - wide_pairs_before(&args.batch, sequence);
        const int32_t row = pair * Z::ROWS, head = unit.head / args.run.group_heads;
        if (row >= s.q_len)
            return;
        const ordo_band band = ordo_sequence_band(&s, Z::ROWS, WIDE_TILE);
        const ordo_span keys = ordo_band_keys(&band, pair);
        const int32_t seen = ordo_span_count(keys), first = seen ? keys.first : 0;
        const int32_t steps = max(seen, 1); /* rows that see nothing: one step, fully masked */
        for (int32_t n = 0; n < steps; n++) {
            load_k(s, (first + n) * WIDE_TILE, head);
            if (n == 0) /* after the first keys: Q and dO are released later */
                begin_unit(s, steps, first, row, unit.head, sequence);
            load_v(s, (first + n) * WIDE_TILE, head);
        }
    }

    __device__ __forceinline__ void all(void)
    {
        const int32_t pairs = wide_pairs_before(&args.batch, args.batch.sequences);
        const int32_t heads = args.run.kv_heads * args.run.group_heads;
        const int64_t total = (int64_t)pairs * heads;
        for (int64_t ticket = atomicAdd(args.query_ticket, 1); ticket < total;) {
            wide_unit x = wide_issue(heads, args.query_section, pairs, ticket);
            x.tile = pairs - 1 - x.tile; /* the longest first, if the mask is causal */
            unit(x);
            ticket = atomicAdd(args.query_ticket, 1); /* none is kept waiting for its unit */
        }
        begin_unit(ordo_cuda_sequence(), 0, 0, 0, 0, 0); /* no steps: the end */
    }
};

/* ---- consumers ---- */

template <int D, int DV, bool F16, ordo_keep_source SOURCE> struct wide_queries_math {
    using Z = wide_queries_shape<D, DV>;
    const ordo_wide_args &args;
    const int mine, x; /* of the two warpgroups; thread of this one */

    __device__ __forceinline__ void arrive(uint32_t bar) const
    {
        mbar_arrive_warp(bar, (uint32_t)x % 32);
    }

    /* This warpgroup's tiles. */
    __device__ __forceinline__ uint32_t q(void) const
    {
        return Z::Q + mine * Z::K_BYTES;
    }

    __device__ __forceinline__ uint32_t dout(void) const
    {
        return Z::DO + mine * Z::V_BYTES;
    }

    /* State of a unit in a thread, whose rows are `row` and row + 8. */
    struct unit_state {
        int row, low, high, keys;
        float lse[2], delta[2];
        uint32_t record;
        const uint2 *bits; /* keep bits given: of the rows, key block 0 */
        uint32_t bh;       /* keep bits made */
        uint2 keep;        /* of the key block at hand */
    };

    __device__ __forceinline__ void begin(unit_state &u, const ordo_cuda_sequence &s, int row,
                                          int head) const
    {
        u.row = row + mine * WIDE_TILE + ordo_accumulator_row(x, 0);
        u.low = s.low;
        u.high = s.high;
        u.keys = s.kv_len;
        const int64_t stat = ((int64_t)head * args.batch.tiles + s.query_tile) * WIDE_TILE;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = u.row + 8 * r;
            const bool real = at < s.q_len;
            u.lse[r] = real ? args.lse2[stat + ordo_stat_place(at)] : INFINITY;
            u.delta[r] = real ? args.delta[stat + ordo_stat_place(at)] : 0.0f;
        }
        if (SOURCE == ORDO_KEEP_GIVEN) { /* rows that do not exist take the last ones' bits */
            const int lines = min(u.row / 16, (s.q_len - 1) / 16);
            u.bits = (const uint2 *)wide_keep_at(args, s.keep + head * s.keep_head +
                                                           (int64_t)lines * s.keep_across) +
                     x % 32;
        }
        if (SOURCE == ORDO_KEEP_MADE)
            u.bh = keep_head_of(args.maker, s.id, head);
    }

    /* Used by ALiBi and softcap only: looked up at each use, to save registers. */
    __device__ __forceinline__ float slope(const unit_state &u) const
    {
        return wide_slope(args, load_shared(u.record + 4 * OF_SEQUENCE),
                          load_shared(u.record + 4 * OF_HEAD));
    }

    __device__ __forceinline__ int diagonal(const unit_state &u) const
    {
        return ordo_batch_sequence(&args.batch, load_shared(u.record + 4 * OF_SEQUENCE)).diagonal;
    }

    /* Keep words of rows `row` and row + 8 for key tile `tile`. A tile is half a block, so every
     * second tile has its words already. */
    __device__ __forceinline__ void fetch(unit_state &u, int tile, bool first) const
    {
        if (SOURCE == ORDO_KEEP_NONE || (tile % 2 && !first))
            return;
        if (SOURCE == ORDO_KEEP_GIVEN) {
            u.keep = load_once(u.bits + tile / 2 * 32);
        } else {
            ordo_keep keep = keep_now(args.maker);
            const uint32_t line = args.maker.row0 + (uint32_t)u.row;
            const uint32_t block = args.maker.block0 + (uint32_t)tile / 2;
#pragma unroll 1
            for (uint32_t r = 0; r < 16; r += 8) {  /* one after the other, to save registers */
                asm volatile("" : "+l"(keep.seed)); /* keys of the rounds: not all in registers */
                u.keep.x = u.keep.y;
                u.keep.y = keep_inside(keep, u.bh, line + r, block, x % 4);
            }
        }
    }

    /* Zeroes rows of K and V beyond a ragged sequence, before step j reads them. Rows of Q and dO
     * beyond it only produce rows of dQ that are not stored. */
    __device__ __forceinline__ void zero_keys(const unit_state &u, int tile, uint32_t j) const
    {
        const int valid = u.keys - tile * WIDE_TILE;
        if (!args.batch.table || valid >= WIDE_TILE)
            return;
        wide_zero_rows<D>(Z::K + (j & 1) * Z::K_BYTES, valid, mine);
        wide_wait_panels<DV>(Z::V_FULL, j & 1);
        wide_zero_rows<DV>(Z::V, valid, mine);
    }

    __device__ __forceinline__ void probabilities(float (&s)[WIDE_SCORES], const unit_state &u,
                                                  int tile) const
    {
        const int column = tile * WIDE_TILE + 2 * (x % 4);
        relative_logits<-1, false>(
            s, args.rule, !(args.rule.cap == 0.0f && !args.slopes),
            [&](int i) { return u.lse[i / 2 % 2]; },
            [&](float &of) {
                of = slope(u);
                return u.row + diagonal(u) - column;
            });
        const int first = u.row - ordo_accumulator_row(x, 0), key = tile * WIDE_TILE;
        if (key + WIDE_TILE > u.keys || key + WIDE_TILE - 1 - first > u.high ||
            key - (first + WIDE_TILE - 1) < u.low) {
            const int apart = u.row - column, end = u.keys - 1 - column;
            const int from[2] = { apart + u.low, apart + 8 + u.low };
            const int to[2] = { min(apart + u.high, end), min(apart + 8 + u.high, end) };
            wide_mask(s, from, to);
        }
#pragma unroll
        for (int i = 0; i < WIDE_SCORES; i++)
            s[i] = exp2_approx(s[i]);
        if (SOURCE != ORDO_KEEP_NONE) {
            const uint32_t half = tile % 2 * 4; /* of a block of 128 columns */
#pragma unroll
            for (int i = 0; i < WIDE_SCORES; i++)
                s[i] = mark_dropped(s[i], i / 2 % 2 ? u.keep.y : u.keep.x,
                                    keep_shift(i / 4, i % 2) + half);
        }
    }

    __device__ __forceinline__ void gradients(const float (&p)[WIDE_SCORES],
                                              float (&dp)[WIDE_SCORES], uint32_t (&ds)[WIDE_PACKED],
                                              const unit_state &u, int tile) const
    {
#pragma unroll
        for (int i = 0; i < WIDE_SCORES; i++)
            dp[i] = score_gradient<SOURCE != ORDO_KEEP_NONE>(p[i], dp[i], u.delta[i / 2 % 2]);
        if (args.rule.cap > 0.0f) {
            const float slope2 = slope(u) * args.rule.slope;
            const int away = u.row + diagonal(u) - (tile * WIDE_TILE + 2 * (x % 4));
#pragma unroll
            for (int i = 0; i < WIDE_SCORES; i++)
                dp[i] *= cap_gradient(fabsf(p[i]), u.lse[i / 2 % 2], args.rule, slope2,
                                      wide_away<-1>(away, i));
        }
#pragma unroll
        for (int i = 0; i < WIDE_PACKED; i++)
            ds[i] = pack_pair<F16>(dp[2 * i], dp[2 * i + 1]);
    }

    /* dP of step j: two groups. */
    __device__ __forceinline__ void gradient_product(float (&dp)[WIDE_SCORES], uint32_t j) const
    {
        wide_scores_arriving<F16, DV, 0>(dp, dout(), Z::V, Z::V_FULL, j & 1);
        wgmma_commit();
        wide_scores_arriving<F16, DV, 1>(dp, dout(), Z::V, Z::V_FULL, j & 1);
        wgmma_commit();
    }

    __device__ __forceinline__ void run(void) const
    {
        uint32_t j = 0; /* steps of this block so far */
        if (mine == 0)
            named_arrive(WIDE_PINGPONG, 256);
        for (uint32_t unit = 0;; unit++) {
            const uint32_t record = Z::UNIT + (unit & 1) * Z::UNIT_BYTES;
            float dq[D / 2];
            uint32_t ds[WIDE_PACKED];
            unit_state u;
            mbar_wait(Z::Q_FULL, unit & 1);
            const int32_t steps = load_shared(record + 4 * OF_STEPS);
            if (steps == 0)
                break;
            const uint32_t last = j + steps - 1;
            {
                const int sequence = load_shared(record + 4 * OF_SEQUENCE);
                u.record = record;
                begin(u, ordo_batch_sequence(&args.batch, sequence),
                      load_shared(record + 4 * OF_ROW), load_shared(record + 4 * OF_HEAD));
            }
            int tile = load_shared(record + 4 * OF_TILE);
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                dq[i] = 0.0f;
            fetch(u, tile, true);
            {
                float s[WIDE_SCORES], dp[WIDE_SCORES];
                mbar_wait(Z::K_FULL + 8 * (j & 1), j >> 1 & 1);
                zero_keys(u, tile, j);
                wgmma_pin(s);
                wgmma_pin(dp);
                wgmma_fence();
                wide_scores<F16, D>(s, q(), Z::K + (j & 1) * Z::K_BYTES);
                wgmma_commit();
                gradient_product(dp, j);
                wgmma_wait<1>();
                arrive(Z::V_EMPTY);
                wgmma_wait<0>();
                wgmma_pin(s);
                wgmma_pin(dp);
                arrive(Z::V_EMPTY + 8);
                if (j == last)
                    arrive(Z::Q_EMPTY);
                probabilities(s, u, tile);
                gradients(s, dp, ds, u, tile);
            }
#pragma unroll 1
            for (; j < last; j++) {
                const uint32_t stage = j & 1, other = stage ^ 1;
                float s[WIDE_SCORES], dp[WIDE_SCORES];
                tile++;
                fetch(u, tile, false);
                mbar_wait(Z::K_FULL + 8 * other, (j + 1) >> 1 & 1);
                zero_keys(u, tile, j + 1);
                named_sync(WIDE_PINGPONG + mine, 256);
                wgmma_pin(dq);
                wgmma_pin(s);
                wgmma_pin(dp);
                wgmma_fence();
                wide_add<F16>(dq, ds, Z::K + stage * Z::K_BYTES);
                wgmma_commit();
                wide_scores<F16, D>(s, q(), Z::K + other * Z::K_BYTES);
                wgmma_commit();
                gradient_product(dp, j + 1);
                named_arrive(WIDE_PINGPONG + (mine ^ 1), 256);
                wgmma_wait<3>();
                arrive(Z::K_EMPTY + 8 * stage);
                wgmma_wait<1>(); /* release tiles first */
                arrive(Z::V_EMPTY);
                wgmma_wait<0>();
                wgmma_pin(dq);
                wgmma_pin(s);
                wgmma_pin(dp);
                arrive(Z::V_EMPTY + 8);
                if (j + 1 == last)
                    arrive(Z::Q_EMPTY); /* so that the next unit's Q and dO are loaded meanwhile */
                probabilities(s, u, tile);
                gradients(s, dp, ds, u, tile);
            }
            wgmma_pin(dq);
            wgmma_fence();
            wide_add<F16>(dq, ds, Z::K + (j & 1) * Z::K_BYTES);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(dq);
            arrive(Z::K_EMPTY + 8 * (j & 1));
            j++;
            const int sequence = load_shared(record + 4 * OF_SEQUENCE);
            const int head = load_shared(record + 4 * OF_HEAD);
            const int row = load_shared(record + 4 * OF_ROW) + mine * WIDE_TILE;
            const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, sequence);
            if (put_rows<F16>(dq, { args.out_scale, args.out_scale },
                              row_address(args.dq, s.batch, s.q_row + row, head), 2 * args.dq.row,
                              s.q_len - row, args.head_dim))
                *args.flag = 1;
        }
    }
};

template <int D, int DV, bool F16, ordo_keep_source SOURCE>
__global__ void __launch_bounds__(WIDE_THREADS, 1)
    backward_wide_queries(const __grid_constant__ ordo_wide_args args)
{
    using Z = wide_queries_shape<D, DV>;
    extern __shared__ __align__(1024) char smem[];
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        if ((uint32_t)__cvta_generic_to_shared(smem) != ORDO_SMEM_BASE)
            ordo_fault();
        mbar_init(Z::Q_FULL, 1);
        mbar_init(Z::Q_EMPTY, 8);
        for (int s = 0; s < Z::K_STAGES; s++) {
            mbar_init(Z::K_FULL + 8 * s, 1);
            mbar_init(Z::K_EMPTY + 8 * s, 8);
        }
        for (int p = 0; p < Z::PANELS; p++)
            mbar_init(Z::V_FULL + 8 * p, 1);
        mbar_init(Z::V_EMPTY, 8);
        mbar_init(Z::V_EMPTY + 8, 8);
        mbar_init_fence();
    }
    __syncthreads();
    /* Overlaps the last units of the keys kernel, which has waited for all that is read here. */
    grid_let_next(); /* the repair: it waits by itself */

    if (warpgroup == 0) {
        registers_down<Z::PRODUCER_REGISTERS>();
        if (threadIdx.x >= 32 || !elect_one())
            return;
        wide_queries_loader<D, DV> { args, policy_evict_last(), policy_evict_first(), 0, 0 }.all();
        grid_wait(); /* this kernel ends no sooner than the keys' */
        return;
    }
    registers_up<Z::CONSUMER_REGISTERS>();
    wide_queries_math<D, DV, F16, SOURCE> { args, warpgroup - 1, (int)threadIdx.x % 128 }.run();
}

template <int D, int DV, ordo_keep_source SOURCE>
static ordo_wide_kernel wide_queries_instance(bool f16)
{
    return { f16 ? (const void *)backward_wide_queries<D, DV, true, SOURCE>
                 : (const void *)backward_wide_queries<D, DV, false, SOURCE>,
             wide_queries_shape<D, DV>::BYTES };
}

template <int D, int DV> static ordo_wide_kernel wide_queries_of(const ordo_cuda_pass *pass)
{
    const ordo_keep_source source = ordo_pass_keep_source(pass);
    return source == ORDO_KEEP_NONE    ? wide_queries_instance<D, DV, ORDO_KEEP_NONE>(pass->f16)
           : source == ORDO_KEEP_GIVEN ? wide_queries_instance<D, DV, ORDO_KEEP_GIVEN>(pass->f16)
                                       : wide_queries_instance<D, DV, ORDO_KEEP_MADE>(pass->f16);
}

#endif
