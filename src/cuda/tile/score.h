/* tile/score.h: from products q.k to logits by the rule of base/rule.h, and the gradient of
 * softcap. */
#ifndef CUDA_TILE_SCORE_H
#define CUDA_TILE_SCORE_H

#include "base/rule.h"
#include "cuda/tile/ptx.h"

ORDO_DEVICE float log2_approx(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ordo_cap_near(); and the capped logit of any score. In place and in one asm statement: otherwise
 * the compiler gives each step separate registers for all scores of a tile. */
ORDO_DEVICE void cap_near(float &qk, const ordo_score_rule &rule)
{
    asm("{.reg .f32 x, y; mul.rn.f32 x, %0, %0; fma.rn.f32 y, x, %4, %3; fma.rn.f32 y, x, y, %2; "
        "fma.rn.f32 y, x, y, %1; mul.rn.f32 %0, %0, y;}"
        : "+f"(qk)
        : "f"(rule.near[0]), "f"(rule.near[1]), "f"(rule.near[2]), "f"(rule.near[3]));
}

ORDO_DEVICE void cap_score(float &qk, const ordo_score_rule &rule)
{
    asm("{.reg .f32 x, y; .reg .pred far; abs.f32 x, %0; setp.gt.f32 far, x, %1; "
        "mul.rn.f32 x, %0, %0; fma.rn.f32 y, x, %5, %4; fma.rn.f32 y, x, y, %3; "
        "fma.rn.f32 y, x, y, %2; mul.rn.f32 y, %0, y; "
        "mul.rn.f32 x, %0, %6; ex2.approx.ftz.f32 x, x; add.rn.f32 x, x, 0f3f800000; "
        "rcp.approx.ftz.f32 x, x; fma.rn.f32 x, x, %7, %8; selp.f32 %0, x, y, far;}"
        : "+f"(qk)
        : "f"(rule.edge), "f"(rule.near[0]), "f"(rule.near[1]), "f"(rule.near[2]),
          "f"(rule.near[3]), "f"(rule.to_cap), "f"(-2.0f * rule.cap), "f"(rule.cap));
}

/* Capped logits of a tile. Most tiles have no score beyond the edge, and then need no exp2. The
 * choice is a warp's, for all scores (if AT_ONCE: not every kernel has the registers) and then for
 * a few at a time; it changes no bit. */
template <bool AT_ONCE, int N>
ORDO_DEVICE void cap_scores(float (&qk)[N], const ordo_score_rule &rule)
{
    if constexpr (AT_ONCE) {
        float top[2] = { 0.0f, 0.0f };
#pragma unroll
        for (int i = 0; i < N; i++)
            top[i % 2] = fmaxf(top[i % 2], fabsf(qk[i]));
        if (!__any_sync(~0u, fmaxf(top[0], top[1]) > rule.edge)) {
#pragma unroll
            for (int i = 0; i < N; i++)
                cap_near(qk[i], rule);
            return;
        }
    }
    const int each = AT_ONCE ? 8 : 4;
#pragma unroll
    for (int k = 0; k < N; k += each) {
        bool far = false;
#pragma unroll
        for (int i = k; i < k + each; i++)
            far = far || fabsf(qk[i]) > rule.edge;
        if (__any_sync(~0u, far)) {
#pragma unroll
            for (int i = k; i < k + each; i++)
                cap_score(qk[i], rule);
        } else {
#pragma unroll
            for (int i = k; i < k + each; i++)
                cap_near(qk[i], rule);
        }
    }
}

/* ALiBi: subtracts slope times the distance |i + diagonal - j|, exact in f32, in one fma. `away` is
 * i + diagonal - j of register 0; SIGN: 1 if columns are queries, -1 if they are keys. The second
 * row of a thread is 8 rows on, so that its distances are those of the first one, 8 columns on. */
template <int SIGN, int N> ORDO_DEVICE void subtract_distance(float (&s)[N], float slope, int away)
{
    const float from = (float)away;
#pragma unroll
    for (int j = -1; j < N / 4; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float distance = from + (float)(SIGN * (8 * j + e));
            if (j >= 0)
                s[4 * j + e] = fmaf(-slope, fabsf(distance), s[4 * j + e]);
            if (j + 1 < N / 4)
                s[4 * j + 6 + e] = fmaf(-slope, fabsf(distance), s[4 * j + 6 + e]);
        }
}

/* Scores of a tile to what the rule gives; every pass does this, forward and backward. `place` says
 * where the tile is, if ALiBi needs it: it sets the head's slope and returns `away` of above. */
template <int SIGN, bool AT_ONCE, int N, typename F>
ORDO_DEVICE void apply_rule(float (&s)[N], const ordo_score_rule &rule, F place)
{
    if (rule.cap > 0.0f) {
        cap_scores<AT_ONCE>(s, rule);
    } else if (rule.to_log2 == 1.0f) {
#pragma unroll
        for (int i = 0; i < N; i++)
            s[i] *= rule.scale;
    }
    if (rule.biased) {
        float slope;
        const int away = place(slope);
        subtract_distance<SIGN>(s, slope * rule.slope, away);
    }
}

/* Scores of a tile to logits in powers of two, less the lse of their rows: P is exp2 of them.
 * `has_rule`: with softcap or ALiBi; `lse`: that of the row of element i, in powers of two. */
template <int SIGN, bool AT_ONCE, int N, typename L, typename F>
ORDO_DEVICE void relative_logits(float (&s)[N], const ordo_score_rule &rule, bool has_rule, L lse,
                                 F place)
{
    if (!has_rule) {
#pragma unroll
        for (int i = 0; i < N; i++)
            s[i] = fmaf(s[i], rule.scale, -lse(i));
    } else {
        apply_rule<SIGN, AT_ONCE>(s, rule, place);
#pragma unroll
        for (int i = 0; i < N; i++)
            s[i] = fmaf(s[i], rule.to_log2, -lse(i));
    }
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
