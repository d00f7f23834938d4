/* sm90/backward/math.h: the consumer warpgroups of the backward kernel: products, and the
 * arithmetic between them. */
#ifndef CUDA_SM90_BACKWARD_MATH_H
#define CUDA_SM90_BACKWARD_MATH_H

#include <math.h>

#include "cuda/sm90/backward/keep.h"
#include "cuda/sm90/wgmma.h"
#include "cuda/tile/bias.h"
#include "cuda/tile/mask.h"

/* Named barriers. DS_DONE: by the step's parity and the warpgroup that waits: the other one has
 * written its half of dS and has read what is written next. Two parities, because a warpgroup may
 * arrive twice before the other has waited once. */
enum { DQ_DONE = 1, DS_DONE = 2, PINGPONG = 6, OWN = 8 };

/* Where a chain's dK and dV go. */
struct chain_place {
    int key, head, sequence; /* key: the first one, in the tensor */
    int keys;                /* how many, at most 128; dense passes: or more */
    bool dead;               /* no query sees them: they have zeros, whatever is computed */
};

template <int D, ordo_keep_source SOURCE, bool VARLEN = false, bool F16 = false,
          bool BLOCKS = false, bool ELEMENTS = false, backward_bias BIAS = BIAS_NONE,
          class MAKER = backward_maker<D>>
struct backward_math {
    using Z = backward_shape<D, SOURCE, VARLEN, BLOCKS, BIAS>;
    using KEEP = backward_keep<D, SOURCE, VARLEN, BLOCKS, BIAS, MAKER>;
    enum { SCORES = Z::ROWS / 2, PACKED = Z::ROWS / 4, STATS = Z::ROWS / 4 };
    enum { KEEP_BLOCK_BYTES = 4 * ORDO_KEEP_WORDS };
    const int mine, thread; /* which consumer warpgroup; thread of the block */
    const KEEP keep;
    const uint32_t k_low; /* V lies after K alike */
    uint32_t dq_at, ds_at;

    __device__ __forceinline__ backward_math(int mine_, int thread_)
        : mine(mine_), thread(thread_), keep { mine_, thread_ },
          k_low(ordo_descriptor_low(Z::K + mine_ * 64 * ORDO_LINE_BYTES, 16)),
          dq_at(Z::DQ + mine_ * (Z::DQ_BYTES / 2) + ordo_partial_offset(thread_ % 128, 0) * 4),
          ds_at(Z::DS + mine_ * Z::ROWS * ORDO_LINE_BYTES +
                ordo_store_transposed_offset(Z::ROWS, thread_ / 32 % 4, thread_ % 32, 0))
    {
        /* Opaque, or they are recomputed from the thread index at every use. */
        asm volatile("" : "+r"(dq_at), "+r"(ds_at));
    }

    /* S^T = K Q^T, dP^T = V dO^T: of a warpgroup's 64 keys of tile A and the stage of tile B. */
    template <int A, int B>
    __device__ __forceinline__ void scores(float (&d)[SCORES], int stage) const
    {
        const uint32_t b_low = ordo_descriptor_low(B, 16) + stage * (Z::Q_BYTES / 16);
        const uint32_t a_low = opaque(k_low) + (A - Z::K) / 16;
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma_ss<F16, 0, 0>(d, wgmma_by_columns(a_low, Z::KEYS, k),
                                wgmma_by_columns(b_low, Z::ROWS, k), k > 0);
    }

    /* dV += P^T dO, dK += dS^T Q; a chain's first step begins the sums. */
    __device__ __forceinline__ void add(float (&d)[D / 2], const uint32_t (&a)[PACKED],
                                        uint32_t tile, int stage, bool first) const
    {
        const uint32_t low =
            ordo_descriptor_low(tile, Z::ROWS * ORDO_LINE_BYTES) + stage * (Z::Q_BYTES / 16);
#pragma unroll
        for (int k = 0; k < Z::ROWS / 16; k++)
            wgmma_rs<F16, 1>(d, a + 4 * k, wgmma_by_rows(low, k), k > 0 || !first);
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
            wgmma_ss<F16, 0, 1>(d, wgmma_by_columns(ds_low, Z::ROWS, k), wgmma_by_rows(low, k),
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
        mbar_wait(Z::DQ_EMPTY + 8 * (j % Z::DQ_BUFFERS), (j / Z::DQ_BUFFERS & 1) ^ 1);
    }

    /* Stores the partial dQ of step j; its buffer must be free. */
    __device__ __forceinline__ void put_dq(const float (&d)[32], uint32_t j) const
    {
        const uint32_t buffer = j % Z::DQ_BUFFERS;
#pragma unroll
        for (int i = 0; i < 32; i += 4)
            store_shared4(dq_at + buffer * Z::DQ_BYTES + ordo_partial_offset(0, i) * 4, d[i],
                          d[i + 1], d[i + 2], d[i + 3]);
    }

    __device__ __forceinline__ void put_ds(const uint32_t (&ds)[PACKED], int stage) const
    {
#pragma unroll
        for (int k = 0; k < Z::ROWS / 16; k++)
            store_matrix4_transposed(ordo_store_transposed_slice(ds_at + stage * Z::DS_BYTES, k),
                                     ds[4 * k], ds[4 * k + 1], ds[4 * k + 2], ds[4 * k + 3]);
    }

    /* Address of this thread's row statistics; recomputed, because registers are full. */
    __device__ __forceinline__ uint32_t stat_at(void) const
    {
        return Z::LSE + opaque((uint32_t)thread) % 4 * 16;
    }

    /* Row statistics of a stage: each load has four of sixteen rows. */
    __device__ __forceinline__ void stats(float (&x)[STATS], int which, int stage) const
    {
        const uint32_t at = stat_at() + which + stage * Z::STAT_BYTES;
#pragma unroll
        for (int i = 0; i < Z::ROWS / 16; i++)
            load_shared4(at + 64 * i, x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
    }

    static __device__ __forceinline__ float gradient(float p, float dp, float delta)
    {
        return score_gradient<Z::DROP>(p, dp, delta);
    }

    /* Thread x's first key of a tile, its first query is 2 * (x % 4); register i has query_of(i)
     * further, and every other pair the key 8 further. */
    template <class INTEGER> __device__ __forceinline__ int key_of(INTEGER x) const
    {
        return mine * 64 + (int)(x / 32 % 4 * 16 + x % 32 / 4);
    }

    static __device__ __forceinline__ int query_of(int i)
    {
        return ordo_accumulator_column(0, i);
    }

    /* Sets what the mask hides to -inf. */
    __device__ __forceinline__ void mask(float (&sc)[SCORES], int32_t edge, int kv_len) const
    {
        if (edge == EDGE_NOTHING)
            return;
        const int x = (int)opaque((uint32_t)thread), column = 2 * (x % 4);
        const int key = load_shared(Z::CHAIN + 4) + key_of(x);
        const int first0 = key >= kv_len ? 1 << 20 : key - column - edge;
        const int first1 = key + 8 >= kv_len ? 1 << 20 : key + 8 - column - edge;
        const uint32_t seen[2] = { ones_from(before(first0)), ones_from(before(first1)) };
        mask_bits(sc, seen);
    }

    /* How many of this thread's queries come before query x. */
    static __device__ __forceinline__ int before(int x)
    {
        return ordo_columns_before(x, SCORES / 2);
    }

    /* ---- varlen passes ---- */

    static __device__ __forceinline__ uint32_t step_at(uint32_t j)
    {
        return KEEP::step_at(j);
    }

    /* ALiBi of step j: its slope, and the distance of register 0. */
    __device__ __forceinline__ int far(uint32_t j, float &slope) const
    {
        int32_t row, bits;
        load_shared2(step_at(j) + offsetof(general_step, row), row, bits);
        slope = __int_as_float(bits);
        const int x = (int)opaque((uint32_t)thread);
        if constexpr (ELEMENTS || BIAS || (BLOCKS && SOURCE == ORDO_KEEP_GIVEN))
            /* unsigned takes a register less there */
            return load_shared(Z::CHAIN + offsetof(backward_chain, away)) + row + 2 * (x & 3) -
                   key_of((uint32_t)x);
        return load_shared(Z::CHAIN + offsetof(backward_chain, away)) + row + 2 * (x % 4) -
               key_of(x);
    }

    /* Scores to what the rule gives. */
    __device__ __forceinline__ void score(float (&sc)[SCORES], uint32_t j,
                                          const ordo_score_rule &rule) const
    {
        apply_rule<1, true>(sc, rule, [&](float &slope) { return far(j, slope); });
    }

    /* Words of as many biases as there are registers for. */
    enum { BIASES = D == 64 && Z::DROP ? 16 : 32 };

    /* Reads the biases of step j, from score FROM on. EDGE: those behind the end of the bias are
     * not read. */
    template <int FROM, bool F32, bool EDGE>
    __device__ __forceinline__ void read_bias(uint32_t (&word)[BIASES], uint32_t j,
                                              const ordo_cuda_pass &pass) const
    {
        enum { WIDTH = F32 ? 4 : 2 };
        int64_t row = pass.bias.row * WIDTH;
        const int x = (int)opaque((uint32_t)thread);
        const int query =
            load_shared(step_at(j) + offsetof(general_step, row)) + 2 * (x % 4) + query_of(FROM);
        const int key = load_shared(Z::CHAIN + offsetof(backward_chain, key)) + key_of(x);
        const int64_t head =
            bias_at(pass.bias, load_shared(Z::CHAIN + offsetof(backward_chain, sequence)),
                    special(j) & (STEP_PARTIAL - 1));
        const int queries = pass.run.band.q_len - query, keys = pass.run.band.kv_len - key;
        const char *line = (const char *)pass.bias.data + (head + key) * WIDTH + query * row;
#pragma unroll
        for (int i = 0; i < BIASES; i += 4) {
#pragma unroll
            for (int y = 0; y < 4; y++) {
                const char *const at = line + y % 2 * row + y / 2 * (8 * WIDTH);
                const bool there = !EDGE || (query_of(i + y) < queries && y / 2 * 8 < keys);
                if constexpr (F32)
                    bias_load(word[i + y], at, there);
                else
                    bias_load_half(word[i + y], at, there);
            }
            line += 8 * row;
            asm volatile("" : "+l"(line)); /* no addresses ahead of their loads */
        }
    }

    template <int FROM>
    __device__ __forceinline__ void load_bias(uint32_t (&word)[BIASES], uint32_t j,
                                              const ordo_cuda_pass &pass) const
    {
        const ordo_band &all = pass.run.band;
        const int row = load_shared(step_at(j) + offsetof(general_step, row));
        const int key = load_shared(Z::CHAIN + offsetof(backward_chain, key));
        const bool edge = row > all.q_len - Z::ROWS || key > all.kv_len - Z::KEYS;
        if (pass.bias.f32)
            edge ? read_bias<FROM, true, true>(word, j, pass)
                 : read_bias<FROM, true, false>(word, j, pass);
        else
            edge ? read_bias<FROM, false, true>(word, j, pass)
                 : read_bias<FROM, false, false>(word, j, pass);
    }

    /* Adds the biases that have been read, then those of the scores behind them. */
    template <int FROM>
    __device__ __forceinline__ void add_bias(float (&sc)[SCORES], uint32_t (&word)[BIASES],
                                             uint32_t j, const ordo_backward_args &args) const
    {
        if (args.bias.f32)
#pragma unroll
            for (int i = 0; i < BIASES; i++)
                bias_add(sc[FROM + i], __uint_as_float(word[i]), args.rule.slope);
        else
#pragma unroll
            for (int i = 0; i < BIASES; i++)
                bias_add(sc[FROM + i], pair_low<F16>(word[i]), args.rule.slope);
        if constexpr (FROM + BIASES < SCORES) {
            load_bias<FROM + BIASES>(word, j, args);
            add_bias<FROM + BIASES>(sc, word, j, args);
        }
    }

    /* Calls f(score, bias) for the biases of step j, which are in its stage. */
    template <typename F>
    __device__ __forceinline__ void each_staged(uint32_t j, const ordo_cuda_bias &bias, F f) const
    {
        enum { BOX = 64 * ORDO_LINE_BYTES };
        const uint32_t x = opaque((uint32_t)thread), warp = x / 32 % 4, lane = x % 32;
        if (bias.f32) {
            const uint32_t box = Z::BIASES + (mine * 2 + warp / 2) * BOX;
            const uint32_t chunk = warp % 2 * 4 + lane / 16, query = lane % 4 * 2;
            const uint32_t even =
                box + query * ORDO_LINE_BYTES + ((chunk ^ query) * 16) + lane / 4 % 4 * 4;
            const uint32_t odd = (even ^ 16) + ORDO_LINE_BYTES;
#pragma unroll
            for (int i = 0; i < SCORES; i++)
                f(i, __int_as_float(load_shared(((i % 2 ? odd : even) ^ i / 2 % 2 * 32) +
                                                i / 4 * (8 * ORDO_LINE_BYTES))));
        } else {
            const uint32_t at = Z::BIASES + (j & 1) * Z::BIAS_BYTES + mine * BOX +
                                ordo_store_transposed_offset(Z::ROWS, (int)warp, (int)lane, 0);
#pragma unroll
            for (int k = 0; k < Z::ROWS / 16; k++) {
                uint32_t pair[4];
                load_matrix4_transposed(ordo_store_transposed_slice(at, k), pair[0], pair[1],
                                        pair[2], pair[3]);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    f(8 * k + i, i % 2 ? pair_high<F16>(pair[i / 2]) : pair_low<F16>(pair[i / 2]));
            }
        }
    }

    /* Adds the biases of step j, and releases its stage. Most hide nothing. */
    __device__ __forceinline__ void add_staged(float (&sc)[SCORES], uint32_t j,
                                               const ordo_backward_args &args) const
    {
        const uint32_t stage = args.bias.f32 ? 0 : 8 * (j & 1);
        float least[2] = { 0.0f, 0.0f };
        mbar_wait(Z::BIAS_FULL + stage, args.bias.f32 ? j & 1 : j >> 1 & 1);
        each_staged(j, args.bias, [&](int i, float bias) {
            bias_add_seen(sc[i], bias, args.rule.slope);
            least[i % 2] = fminf(least[i % 2], bias);
        });
        if (__any_sync(~0u, fminf(least[0], least[1]) < ORDO_BIAS_LEAST))
            each_staged(j, args.bias, [&](int i, float bias) {
                if (bias < ORDO_BIAS_LEAST)
                    sc[i] = -INFINITY;
            });
        arrive(Z::BIAS_EMPTY + stage);
    }

    /* Waits for the scores of step j and adds its biases. Not `there`: they are dropped. */
    __device__ __forceinline__ void wait_biased(float (&sc)[SCORES], uint32_t j, bool there,
                                                const ordo_backward_args &args) const
    {
        if constexpr (Z::STAGED) {
            wgmma_wait<0>();
            wgmma_pin(sc);
            score(sc, j, bias_rule(args.rule));
            if (there)
                add_staged(sc, j, args);
        } else {
            uint32_t bias[BIASES];
            load_bias<0>(bias, j, args);
            wgmma_wait<0>();
            wgmma_pin(sc);
            score(sc, j, bias_rule(args.rule));
            add_bias<0>(sc, bias, j, args);
        }
    }

    /* The gradient of softcap, for the sixteen queries k of a step. */
    __device__ __forceinline__ void uncap(float (&ds)[SCORES], const float (&p)[SCORES], int k,
                                          uint32_t j, const ordo_score_rule &rule) const
    {
        float slope, l[4];
        const float away = (float)far(j, slope);
        load_shared4(stat_at() + (j & 1) * Z::STAT_BYTES + 64 * k, l[0], l[1], l[2], l[3]);
#pragma unroll
        for (int i = 8 * k; i < 8 * k + 8; i++)
            ds[i] *= cap_gradient(fabsf(p[i]), l[i / 4 % 2 * 2 + i % 2], rule, slope * rule.slope,
                                  away + (float)(query_of(i) - (i & 2 ? 8 : 0)));
    }

    /* STEP_ENDS and STEP_MASKED, above the head. */
    static __device__ __forceinline__ int32_t special(uint32_t j)
    {
        return load_shared(step_at(j) + offsetof(general_step, head));
    }

    static __device__ __forceinline__ int rows_of(uint32_t j)
    {
        return load_shared(Z::CHAIN + offsetof(backward_chain, end)) -
               load_shared(step_at(j) + offsetof(general_step, row));
    }

    __device__ __forceinline__ void zero(uint32_t tile, int count, int valid) const
    {
        zero_rows(tile, count, Z::PANELS, valid, (int)opaque((uint32_t)thread), OWN + mine);
    }

    /* Zeroes rows beyond the sequence: queries of step j, keys of the chain. The product that
     * computes the scores of such queries may be in flight: they are masked. */
    __device__ __forceinline__ void zero_queries(uint32_t j) const
    {
        if (special(j) & STEP_ENDS) {
            const int rows = rows_of(j);
            zero(Z::Q + (j & 1) * Z::Q_BYTES, Z::ROWS, rows);
            zero(Z::DO + (j & 1) * Z::Q_BYTES, Z::ROWS, rows);
        }
    }

    __device__ __forceinline__ void zero_keys(void) const
    {
        const int keys = load_shared(Z::CHAIN + offsetof(backward_chain, keys)) & 255;
        if (keys < Z::KEYS) {
            zero(Z::K, Z::KEYS, keys);
            zero(Z::V, Z::KEYS, keys);
        }
    }

    /* Which of this thread's queries have its key, or the one 8 further, in their intervals: bits
     * as in mask_bits(). Queries that do not exist have the interval of the last one. */
    __device__ __forceinline__ uint2 in_intervals(uint32_t j, int column, int key, int rows,
                                                  const ordo_cuda_block_mask &blocks) const
    {
        int32_t interval, first_key;
        load_shared2(step_at(j) + Z::STEP_OWN, interval, first_key);
        uint2 seen = { 0, 0 };
        key += first_key;
#pragma unroll 1
        for (int b = 0; b < SCORES / 2; b++) {
            const int at = interval + ordo_min32(column + b / 2 * 8 + b % 2, rows - 1);
            const int first = __ldg(blocks.first + at), last = __ldg(blocks.last + at);
            seen.x |= (uint32_t)(first <= key && key <= last) << b;
            seen.y |= (uint32_t)(first <= key + 8 && key + 8 <= last) << b;
        }
        return seen;
    }

    /* The words of an element mask in a step's tile: of queries 0 and 8 of each sixteen, of 1
     * and 9.
     */
    struct element_bits {
        uint2 even[Z::ROWS / 16], odd[Z::ROWS / 16];
    };

    /* Calls f(k, address) for the words of each sixteen queries k of step j, if it is `there` and
     * its tile partial. Queries that do not exist have those of the last sixteen; they are hidden
     * anyway.
     */
    template <typename F>
    __device__ __forceinline__ void each_words(uint32_t j, bool there,
                                               const ordo_cuda_block_mask &blocks, F f) const
    {
        if (!there || !(special(j) & STEP_PARTIAL))
            return;
        const uint32_t x = opaque((uint32_t)thread);
        const uint32_t place = (uint32_t)load_shared(step_at(j) + Z::STEP_OWN);
        const char *from = (const char *)blocks.bits + (int64_t)place * KEEP_BLOCK_BYTES +
                           ordo_keep_key_offset(x % 32);
        const int rows = rows_of(j);
#pragma unroll
        for (int k = 0; k < Z::ROWS / 16; k++) {
            f(k, from);
            if (rows > 16 * k + 16)
                from += (int64_t)blocks.bits_across * KEEP_BLOCK_BYTES;
        }
    }

    /* Has the words of step j brought to the first cache: loaded that early they cost registers. */
    __device__ __forceinline__ void expect_elements(uint32_t j, bool there,
                                                    const ordo_cuda_block_mask &blocks) const
    {
        each_words(j, there, blocks, [](int, const char *from) {
            asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
        });
    }

    __device__ __forceinline__ element_bits load_elements(uint32_t j, bool there,
                                                          const ordo_cuda_block_mask &blocks) const
    {
        element_bits bits = {};
        each_words(j, there, blocks, [&](int k, const char *from) {
            bits.even[k] = __ldg((const uint2 *)from);
            bits.odd[k] = __ldg((const uint2 *)from + 4);
        });
        return bits;
    }

    /* Sets what they hide to -inf. */
    __device__ __forceinline__ void mask_elements(float (&sc)[SCORES], const element_bits &bits,
                                                  uint32_t j) const
    {
        if (!(special(j) & STEP_PARTIAL))
            return;
        const uint32_t x = opaque((uint32_t)thread);
        const uint32_t shift = ordo_keep_key_shift(mine * 4 + x / 32 % 4, x % 32);
        const uint32_t own[2] = { 0x80000000u >> shift, 0x80000000u >> (shift - 16) };
#pragma unroll
        for (int i = 0; i < SCORES; i++) {
            const uint2 words = i % 2 ? bits.odd[i / 8] : bits.even[i / 8];
            mask_if_clear(sc[i], i / 4 % 2 ? words.y : words.x, own[i / 2 % 2]);
        }
    }

    /* Sets what the band of the sequence, its end or a block mask hides to -inf; most tiles are
     * whole. */
    __device__ __forceinline__ void mask_varlen(float (&sc)[SCORES], uint32_t j,
                                                const ordo_cuda_block_mask &blocks) const
    {
        int32_t high, low;
        if (!(special(j) & STEP_MASKED))
            return;
        const int row = load_shared(step_at(j) + offsetof(general_step, row));
        const int rows = rows_of(j),
                  keys = load_shared(Z::CHAIN + offsetof(backward_chain, keys)) & 255;
        load_shared2(Z::CHAIN + offsetof(backward_chain, high), high, low);
        high = wrapping_sum(high, row);
        low = wrapping_sum(low, row);
        const int x = (int)opaque((uint32_t)thread), column = 2 * (x % 4), key = key_of(x);
        const int first = key - column - high, last = key - column - low, end = rows - column;
        const int end0 = key < keys ? ordo_min32(last + 1, end) : 0;
        const int end1 = key + 8 < keys ? ordo_min32(last + 9, end) : 0;
        uint2 listed = { ~0u, ~0u };
        if constexpr (BLOCKS && !ELEMENTS)
            if (special(j) & STEP_PARTIAL)
                listed = in_intervals(j, column, key, rows, blocks);
        const uint32_t seen[2] = { listed.x & ones_from(before(first)) & ~ones_from(before(end0)),
                                   listed.y & ones_from(before(first + 8)) &
                                       ~ones_from(before(end1)) };
        mask_bits(sc, seen);
    }

    /* Where the chain's sums go. Dense passes compute the zeros of keys that no query sees. */
    __device__ __forceinline__ chain_place place(const ordo_backward_args &args,
                                                 int32_t &words /* all that were read */) const
    {
        chain_place at;
        at.key = load_shared(Z::CHAIN + 4);
        at.head = load_shared(Z::CHAIN + 8);
        at.sequence = load_shared(Z::CHAIN + 12);
        at.keys = args.run.band.kv_len - at.key;
        at.dead = false;
        words = at.key | at.head | at.sequence;
        if constexpr (VARLEN) {
            const int32_t keys = load_shared(Z::CHAIN + offsetof(backward_chain, keys));
            const int32_t dead = load_shared(Z::CHAIN + offsetof(backward_chain, dead));
            at.keys = keys & 255;
            at.dead = dead != 0;
            words |= keys | dead;
        }
        return at;
    }

    /* The same at the end of a chain; then lets the next one come. */
    __device__ __forceinline__ chain_place leave(const ordo_backward_args &args) const
    {
        int32_t words;
        const chain_place at = place(args, words);
        arrive(bar_after(Z::KV_EMPTY, words));
        return at;
    }

    /* P, then dS, from S (masked) and dP (in flight); dV += P^T dO is left in flight, if it is
     * wanted. */
    template <bool KEYS>
    __device__ __forceinline__ void
    gradients(float (&sc)[SCORES], float (&dp)[SCORES], float (&dv)[D / 2],
              const float (&lse)[STATS], uint32_t (&p)[PACKED], uint32_t (&ds)[PACKED], uint32_t j,
              const ordo_backward_args &args, bool first) const
    {
        const int stage = j & 1;
        const float scale_log2 = args.scale_log2;
        typename KEEP::stored_bits from = {};
        if (KEEP::WITH_EXP) {
            from = keep.stored(j);
            KEEP::wait(j);
        }
        if constexpr (D == 128) {
            float delta[STATS];
#pragma unroll
            for (int k = 0; k < Z::ROWS / 16; k++) {
#pragma unroll
                for (int i = 8 * k; i < 8 * k + 8; i++)
                    sc[i] = exp2_approx(fmaf(sc[i], scale_log2, -lse[i / 4 * 2 + i % 2]));
                if (KEEP::WITH_EXP)
                    KEEP::mark(sc, k, from);
            }
            if (KEEP::AFTER_EXP) {
                from = keep.stored(j);
                KEEP::wait(j);
#pragma unroll
                for (int k = 0; k < Z::ROWS / 16; k++)
                    KEEP::mark(sc, k, from);
            }
            stats(delta, Z::DELTA - Z::LSE, stage);
            pack_kept(p, sc);
            issue_dv<KEYS>(dv, p, stage, first);
            if (Z::DROP && KEYS) /* else no product uses P: when dS is stored */
                keep.release(j);
            wgmma_wait<1>(); /* dP */
            wgmma_pin(dp);
#pragma unroll
            for (int i = 0; i < SCORES; i++)
                dp[i] = gradient(sc[i], dp[i], delta[i / 4 * 2 + i % 2]);
            if (VARLEN && args.rule.cap > 0.0f)
#pragma unroll
                for (int k = 0; k < Z::ROWS / 16; k++)
                    uncap(dp, sc, k, j, args.rule);
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
                if (KEEP::WITH_EXP)
                    KEEP::mark(sc, k, from);
            }
            wgmma_wait<0>();
            wgmma_pin(dp);
            if (KEEP::WITH_DS)
                KEEP::wait(j);
#pragma unroll
            for (int k = 0; k < Z::ROWS / 16; k++) {
                float d[4];
                if (KEEP::WITH_DS)
                    KEEP::mark(sc, k, keep.stored(j));
                load_shared4(at + (Z::DELTA - Z::LSE) + 64 * k, d[0], d[1], d[2], d[3]);
#pragma unroll
                for (int i = 8 * k; i < 8 * k + 8; i++)
                    dp[i] = gradient(sc[i], dp[i], d[i / 4 % 2 * 2 + i % 2]);
                if (VARLEN && args.rule.cap > 0.0f)
                    uncap(dp, sc, k, j, args.rule);
#pragma unroll
                for (int i = 4 * k; i < 4 * k + 4; i++) /* P is not needed after this */
                    p[i] = pack_kept_pair(sc[2 * i], sc[2 * i + 1]);
            }
            issue_dv<KEYS>(dv, p, stage, first);
            if (Z::DROP && KEYS) /* else when dS is stored */
                keep.release(j);
            pack(ds, dp);
        }
    }

    /* This warpgroup's 64 keys of dV or dK, through the two buffers of dS. Not 0 if any number of
     * this thread's is not finite. */
    __device__ __forceinline__ uint32_t put_out(const float (&d)[D / 2], float scale,
                                                const CUtensorMap *map,
                                                const ordo_cuda_tensor &tensor, int head_dim,
                                                const chain_place &at) const
    {
        uint32_t taint = 0;
        const uint32_t x = opaque((uint32_t)thread);
        const bool leader = leads();
        const uint32_t rows_at = Z::DS + mine * 64 * ORDO_LINE_BYTES;
        const uint32_t line_at = rows_at + ordo_store_offset(Z::KEYS, x / 32 % 4, x % 32, 0);
        const int rows = VARLEN ? at.keys - mine * 64 : 64; /* that exist */
        if (leader)
            bulk_wait_read(); /* what was stored from there before has been read */
        named_sync(OWN + mine, 128);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            uint32_t pairs[4];
#pragma unroll
            for (int i = 8 * c; i < 8 * c + 8; i += 2) {
                pairs[i / 2 % 4] = pack_pair<F16>(d[i] * scale, d[i + 1] * scale);
                taint = not_finite<F16>(taint, pairs[i / 2 % 4]);
            }
            store_matrix4(ordo_store_slice(line_at, Z::KEYS, c), pairs[0], pairs[1], pairs[2],
                          pairs[3]);
        }
        fence_shared_to_async();
        named_sync(OWN + mine, 128);
        if (VARLEN && rows < 64) /* the rows behind are another sequence's, or zeroed elsewhere */
            put_rows(rows_at, rows, tensor, head_dim, at);
        else if (leader) {
#pragma unroll
            for (int p = 0; p < Z::PANELS; p++)
                tma_store(map, rows_at + p * Z::KEYS * ORDO_LINE_BYTES, p * ORDO_PANEL_COLUMNS,
                          at.key + mine * 64, at.head, at.sequence);
            bulk_commit();
        }
        return taint;
    }

    /* Stores the first rows of a partial tile, 16 bytes per thread. */
    __device__ __forceinline__ void put_rows(uint32_t rows_at, int rows,
                                             const ordo_cuda_tensor &tensor, int head_dim,
                                             const chain_place &at) const
    {
        uint16_t *to = (uint16_t *)tensor.data + at.sequence * tensor.sequence +
                       at.head * tensor.head + (at.key + mine * 64) * tensor.row;
#pragma unroll 1
        for (int c = (int)opaque((uint32_t)thread) % 128; c < rows * (D / 8); c += 128) {
            const int line = c / (D / 8), column = c % (D / 8) * 8;
            float4 x;
            load_shared4(rows_at + ordo_tile_offset(Z::KEYS, line, column), x.x, x.y, x.z, x.w);
            if (column < head_dim)
                *(float4 *)(to + line * tensor.row + column) = x;
        }
    }

    static __device__ __forceinline__ void pack_kept(uint32_t (&to)[PACKED],
                                                     const float (&from)[SCORES])
    {
#pragma unroll
        for (int i = 0; i < PACKED; i++)
            to[i] = pack_kept_pair(from[2 * i], from[2 * i + 1]);
    }

    static __device__ __forceinline__ uint32_t pack_kept_pair(float low, float high)
    {
        return Z::DROP && !KEEP::AFTER_EXP
                   ? pack_positive_pair<F16>(low, high)
                   : pack_pair<F16>(kept_value<Z::DROP>(low), kept_value<Z::DROP>(high));
    }

    static __device__ __forceinline__ void pack(uint32_t (&to)[PACKED], const float (&from)[SCORES])
    {
#pragma unroll
        for (int i = 0; i < PACKED; i++)
            to[i] = pack_pair<F16>(from[2 * i], from[2 * i + 1]);
    }

    template <bool KEYS>
    __device__ __forceinline__ void issue_dv(float (&dv)[D / 2], const uint32_t (&p)[PACKED],
                                             int stage, bool first) const
    {
        wgmma_pin(dv);
        wgmma_fence();
        if (KEYS)
            add(dv, p, Z::DO, stage, first);
        wgmma_commit();
    }
};

#endif
