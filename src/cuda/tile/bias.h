/* tile/bias.h: a bias of scores, read where it is added. */
#ifndef CUDA_TILE_BIAS_H
#define CUDA_TILE_BIAS_H

#include "base/bias.h"
#include "cuda/pass/pass.h"
#include "cuda/tile/score.h"
#include "cuda/tile/swizzle.h"

/* Where the bias of (sequence, query head) begins, in elements. */
ORDO_DEVICE int64_t bias_at(const ordo_cuda_bias &bias, int32_t sequence, int32_t head)
{
    return sequence * bias.sequence + head * bias.head;
}

/* One or two words in a row, or a half as a word; 0 if they are not `there`. */
ORDO_DEVICE void bias_load(uint32_t &word, const void *at, bool there)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; mov.b32 %0, 0; "
                 "@p ld.global.nc.b32 %0, [%1];}"
                 : "=r"(word)
                 : "l"(at), "r"((int)there));
}

ORDO_DEVICE void bias_load2(uint32_t &a, uint32_t &b, const void *at, bool there)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; "
                 "@p ld.global.nc.v2.b32 {%0, %1}, [%2];}"
                 : "=r"(a), "=r"(b)
                 : "l"(at), "r"((int)there));
}

ORDO_DEVICE void bias_load_half(uint32_t &word, const void *at, bool there)
{
    asm volatile("{.reg .pred p; .reg .b16 h; setp.ne.b32 p, %2, 0; mov.b16 h, 0; "
                 "@p ld.global.nc.b16 h, [%1]; cvt.u32.u16 %0, h;}"
                 : "=r"(word)
                 : "l"(at), "r"((int)there));
}

/* One element. */
template <bool F16> ORDO_DEVICE float bias_value(const ordo_cuda_bias &bias, int64_t at)
{
    const char *const data = (const char *)bias.data;
    uint32_t word;
    if (bias.f32)
        bias_load(word, data + 4 * at, true);
    else
        bias_load_half(word, data + 2 * at, true);
    return bias.f32 ? __uint_as_float(word) : pair_low<F16>(word);
}

/* The rule of a pass with a bias, which has no softcap (planner/legal.c). */
ORDO_DEVICE ordo_score_rule bias_rule(const ordo_score_rule &rule)
{
    ordo_score_rule own = rule;
    own.cap = 0.0f;
    return own;
}

/* Adds a bias to a score: -inf if the bias hides it. `slope`: of the rule. In place and in one asm
 * statement: otherwise the compiler moves the scores of a tile to other registers, and spills. */
ORDO_DEVICE void bias_add(float &score, float bias, float slope)
{
    asm("{.reg .pred hides; setp.lt.f32 hides, %1, %3; fma.rn.f32 %0, %1, %2, %0; "
        "@hides mov.f32 %0, 0fff800000;}"
        : "+f"(score)
        : "f"(bias), "f"(slope), "f"(ORDO_BIAS_LEAST));
}

/* The same for a bias that hides nothing. */
ORDO_DEVICE void bias_add_seen(float &score, float bias, float slope)
{
    asm("fma.rn.f32 %0, %1, %2, %0;" : "+f"(score) : "f"(bias), "f"(slope));
}

/* The smaller of both halves, in each half. */
template <bool F16> ORDO_DEVICE void pair_least(uint32_t &least, uint32_t pair)
{
    if (F16)
        asm("min.f16x2 %0, %0, %1;" : "+r"(least) : "r"(pair));
    else
        asm("min.bf16x2 %0, %0, %1;" : "+r"(least) : "r"(pair));
}

/* The biases of a thread's N scores of a tile whose rows are queries, in turns: each has as many as
 * WORDS hold, of which pairs of halves take one for two. */
template <bool F16, int N, int WORDS> struct bias_words {
    enum { TURNS = N / WORDS };
    uint32_t word[WORDS];

    static __device__ __forceinline__ int turns(const ordo_cuda_bias &bias)
    {
        return bias.pairs && !bias.f32 ? (TURNS + 1) / 2 : TURNS;
    }

    /* Reads those of turn TURN. `line`, `line8`: where the thread's rows are, from its first column
     * on; `columns`: how many there are from there on. */
    template <int TURN>
    __device__ __forceinline__ void load(const ordo_cuda_bias &bias, int64_t line, int64_t line8,
                                         int columns)
    {
        const char *const data = (const char *)bias.data;
        const char *const wide[2] = { data + 4 * line, data + 4 * line8 };
        const char *const half[2] = { data + 2 * line, data + 2 * line8 };
        enum { FROM = TURN * WORDS }; /* score, or pair */
        if (bias.f32 && bias.pairs) {
#pragma unroll
            for (int x = FROM; x < FROM + WORDS; x += 2)
                bias_load2(word[x - FROM], word[x - FROM + 1], wide[x / 2 % 2] + 32 * (x / 4),
                           8 * (x / 4) < columns);
        } else if (bias.f32) {
#pragma unroll
            for (int x = FROM; x < FROM + WORDS; x++)
                bias_load(word[x - FROM], wide[x / 2 % 2] + 32 * (x / 4) + 4 * (x % 2),
                          8 * (x / 4) + x % 2 < columns);
        } else if (bias.pairs) {
#pragma unroll
            for (int x = FROM; x < FROM + WORDS && x < N / 2; x++)
                bias_load(word[x - FROM], half[x % 2] + 16 * (x / 2), 8 * (x / 2) < columns);
        } else {
#pragma unroll
            for (int x = FROM; x < FROM + WORDS; x++)
                bias_load_half(word[x - FROM], half[x / 2 % 2] + 16 * (x / 4) + 2 * (x % 2),
                               8 * (x / 4) + x % 2 < columns);
        }
    }

    /* Reads those of a turn from a stage that the copy engine filled: 64 rows, in two boxes of 128
     * bytes of each with the swizzle. */
    __device__ __forceinline__ void load_stage(const ordo_cuda_bias &bias, uint32_t stage)
    {
        enum { BOX = 64 * ORDO_LINE_BYTES };
        static_assert(WORDS == 32, "a stage has the words of a turn");
        const uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        if (bias.f32) {
            const uint32_t row = warp * 16 + lane / 4;
            const uint32_t line =
                stage + row * ORDO_LINE_BYTES + ((lane % 4 / 2 ^ row % 8) * 16) + lane % 2 * 8;
#pragma unroll
            for (int x = 0; x < WORDS; x += 2) {
                int32_t pair[2];
                load_shared2((line ^ x / 4 % 4 * 32) + x / 16 * BOX +
                                 x / 2 % 2 * (8 * ORDO_LINE_BYTES),
                             pair[0], pair[1]);
                word[x] = (uint32_t)pair[0];
                word[x + 1] = (uint32_t)pair[1];
            }
        } else {
            const uint32_t line = stage + ordo_store_offset(64, (int)warp, (int)lane, 0);
#pragma unroll
            for (int k = 0; k < WORDS / 4; k++)
                load_matrix4(ordo_store_slice(line, 64, k), word[4 * k], word[4 * k + 1],
                             word[4 * k + 2], word[4 * k + 3]);
        }
    }

    /* The least bias of turn TURN, or 0. */
    template <int TURN> __device__ __forceinline__ float least(const ordo_cuda_bias &bias) const
    {
        if (!bias.f32 && bias.pairs) {
            uint32_t pair = 0;
#pragma unroll
            for (int x = TURN * WORDS; x < (TURN + 1) * WORDS && x < N / 2; x++)
                pair_least<F16>(pair, word[x - TURN * WORDS]);
            return fminf(pair_low<F16>(pair), pair_high<F16>(pair));
        }
        float all[2] = { 0.0f, 0.0f };
        each<TURN>(bias, [&](int i, float x) { all[i % 2] = fminf(all[i % 2], x); });
        return fminf(all[0], all[1]);
    }

    /* Adds those of turn TURN to scores: -inf where they hide. Most hide nothing. */
    template <int TURN>
    __device__ __forceinline__ void add(float (&s)[N], const ordo_cuda_bias &bias,
                                        float slope) const
    {
        each<TURN>(bias, [&](int i, float x) { bias_add_seen(s[i], x, slope); });
        if (__any_sync(~0u, least<TURN>(bias) < ORDO_BIAS_LEAST))
            each<TURN>(bias, [&](int i, float x) {
                if (x < ORDO_BIAS_LEAST)
                    s[i] = -INFINITY;
            });
    }

    /* Calls f(score, bias) for those of turn TURN. */
    template <int TURN, typename F>
    __device__ __forceinline__ void each(const ordo_cuda_bias &bias, F f) const
    {
        enum { FROM = TURN * WORDS };
        if (bias.f32) {
#pragma unroll
            for (int x = 0; x < WORDS; x++)
                f(FROM + x, __uint_as_float(word[x]));
        } else if (bias.pairs) {
#pragma unroll
            for (int x = FROM; x < FROM + WORDS && x < N / 2; x++) {
                f(2 * x, pair_low<F16>(word[x - FROM]));
                f(2 * x + 1, pair_high<F16>(word[x - FROM]));
            }
        } else {
#pragma unroll
            for (int x = 0; x < WORDS; x++)
                f(FROM + x, pair_low<F16>(word[x]));
        }
    }
};

#endif
