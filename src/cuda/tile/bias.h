/* tile/bias.h: a bias of scores, read where it is added. */
#ifndef CUDA_TILE_BIAS_H
#define CUDA_TILE_BIAS_H

#include "base/bias.h"
#include "cuda/pass/pass.h"
#include "cuda/tile/score.h"

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
