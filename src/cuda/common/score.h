/* common/score.h: from a product q.k to a logit in base 2, and the gradient of softcap.
 *
 *   logit = cap(scale * qk) - slope * |i + diagonal - j|,   cap(x) = softcap * tanh(x / softcap)
 *
 * all multiplied by log2(e). tanh is 1 - 2 / (exp2(..) + 1): an error of a few units in the
 * last place of softcap, which is what a logit of that size has anyway. */
#ifndef CUDA_COMMON_SCORE_H
#define CUDA_COMMON_SCORE_H

#include "base/constants.h"
#include "base/hd.h"
#include "cuda/common/ptx.h"

typedef struct ordo_score_rule {
    float scale;  /* times log2(e) */
    float cap;    /* softcap times log2(e); 0: none */
    float to_cap; /* 2 log2(e) scale / softcap: the exponent of tanh's exp2, of qk */
    float of_cap; /* ln(2) / softcap: from a logit to tanh */
} ordo_score_rule;

ORDO_HD ordo_score_rule ordo_score_rule_of(float scale, float softcap)
{
    const float log2_e = (float)ORDO_LOG2_E;
    ordo_score_rule rule = { scale * log2_e, 0.0f, 0.0f, 0.0f };
    if (softcap > 0.0f) {
        rule.cap = softcap * log2_e;
        rule.to_cap = 2.0f * log2_e * scale / softcap;
        rule.of_cap = (float)ORDO_LN_2 / softcap;
    }
    return rule;
}

ORDO_DEVICE float log2_approx(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* In place and in one asm statement: otherwise ptxas gives each step separate registers for all
 * scores of a tile. */
ORDO_DEVICE void cap_score(float &qk, const ordo_score_rule &rule)
{
    asm("{.reg .f32 x; mul.rn.f32 x, %0, %1; ex2.approx.ftz.f32 x, x; add.rn.f32 x, x, 0f3f800000; "
        "rcp.approx.ftz.f32 x, x; fma.rn.f32 %0, x, %2, %3;}"
        : "+f"(qk)
        : "f"(rule.to_cap), "f"(-2.0f * rule.cap), "f"(rule.cap));
}

/* slope2: ALiBi's slope times log2(e), 0 for none; away: i + diagonal - j. */
ORDO_DEVICE float logit_of(float qk, const ordo_score_rule &rule, float slope2, float away)
{
    if (rule.cap > 0.0f)
        cap_score(qk, rule);
    else
        qk *= rule.scale;
    return fmaf(-slope2, fabsf(away), qk);
}

/* The derivative of softcap, 1 - tanh^2, from |p| and lse in base 2. */
ORDO_DEVICE float cap_gradient(float p, float lse2, const ordo_score_rule &rule, float slope2,
                               float away)
{
    const float logit = fmaf(slope2, fabsf(away), log2_approx(p) + lse2);
    const float t = fminf(fmaxf(logit * rule.of_cap, -1.0f), 1.0f); /* p of 0: no gradient */
    return fmaf(-t, t, 1.0f);
}

/* Shifted left by this, a keep word has the bit of key column 8 j + e of its quad in its sign. */
ORDO_DEVICE uint32_t keep_shift(int j, int e)
{
    return 24 - 16 * (j & 1) - 8 * e + (j >> 1);
}

/* p, or -p if the bit is 0: with dropout the sign of p marks a dropped element. */
ORDO_DEVICE float mark_dropped(float p, uint32_t word, uint32_t shift)
{
    return __uint_as_float(__float_as_uint(p) | (~(word << shift) & 0x80000000u));
}

/* With dropout the sign of p marks a dropped element. kept_value() is P as an operand of dV;
 * score_gradient() is dS, with delta divided by the scale of kept elements, by which the results
 * are multiplied in the end. */
template <bool DROP> ORDO_DEVICE float kept_value(float p)
{
    return DROP ? max_nan(p, 0.0f) : p;
}

template <bool DROP> ORDO_DEVICE float score_gradient(float p, float dp, float delta)
{
    return DROP ? fmaf(kept_value<DROP>(p), dp, -(fabsf(p) * delta)) : p * (dp - delta);
}

#endif
