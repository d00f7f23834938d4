/* rule.h: the numbers by which scores q.k become logits under softcap, ALiBi and a bias. Plain
 * C: tests/cuda/rule_test.c.
 *
 *   logit = cap(scale * qk) - slope * |i + diagonal - j| + bias
 *   cap(x) = softcap * tanh(x / softcap)
 *
 * A rule gives a number that times `to_log2` is the logit in base 2. With softcap, or a scale that
 * is negative or extreme, that is the logit itself. Else the score stays as it is, ALiBi and the
 * bias are divided by the scale, and the softmax scales all at once, as it does without a rule. A
 * bias is added after ALiBi, by one fused multiply-add of the bias in f32 and `slope`.
 *
 * tanh up to 1/2 is an odd polynomial of degree 7, computed from the score, with scale, softcap and
 * log2(e) in its coefficients: a relative error of 5.3e-7, and 2^-22 for its roundings. Beyond that
 * it is 1 - 2 / (exp2(..) + 1), off by 2^-22 of softcap (tile/score.h). The score alone decides
 * which of the two is taken. */
#ifndef BASE_RULE_H
#define BASE_RULE_H

#include <math.h>
#include <stdbool.h>

#include "base/constants.h"
#include "base/hd.h"

typedef struct ordo_score_rule {
    float scale;   /* times log2(e) */
    float to_log2; /* from what the rule gives to a logit in base 2 */
    float natural; /* and to a logit */
    float slope;   /* from ALiBi's slope to what a step of distance subtracts, and from a bias to
                    * what it adds */
    bool biased;   /* ALiBi */
    float cap;     /* softcap times log2(e); 0: none */
    float to_cap;  /* 2 log2(e) scale / softcap: the exponent of tanh's exp2, of qk */
    float of_cap;  /* ln(2) / softcap: from a logit to tanh */
    float edge;    /* |qk| up to which the polynomial is taken; -1: never */
    float near[4]; /* its coefficients, of qk, qk^3, qk^5 and qk^7 */
} ordo_score_rule;

/* Whether an f32 holds x with all its digits. */
ORDO_HD bool ordo_rule_holds(double x)
{
    return fabs(x) >= 0x1p-126 && fabs(x) <= 0x1p126;
}

ORDO_HD void ordo_rule_cap(ordo_score_rule *rule, float scale, float softcap)
{
    const double tanh_near[4] = { 0.9999994765775382, -0.3332646694959289, 0.13191881892903257,
                                  -0.04444443372748641 };
    const double ratio = (double)scale / (double)softcap, edge = 0.5 / fabs(ratio);
    const float log2_e = (float)ORDO_LOG2_E;
    double power = (double)scale * ORDO_LOG2_E;
    bool holds = ordo_rule_holds(edge * edge);
    rule->cap = softcap * log2_e;
    rule->to_cap = 2.0f * log2_e * scale / softcap;
    rule->of_cap = (float)ORDO_LN_2 / softcap;
    for (int i = 0; i < 4; i++) {
        holds = holds && ordo_rule_holds(tanh_near[i] * power);
        rule->near[i] = holds ? (float)(tanh_near[i] * power) : 0.0f;
        power *= ratio * ratio;
    }
    rule->edge = holds ? (float)edge : -1.0f;
}

ORDO_HD ordo_score_rule ordo_score_rule_of(float scale, float softcap, bool alibi)
{
    const float log2_e = (float)ORDO_LOG2_E;
    const bool raw = softcap == 0.0f && scale >= 0x1p-20f && scale <= 0x1p20f;
    ordo_score_rule rule;
    rule.scale = scale * log2_e;
    rule.to_log2 = raw ? rule.scale : 1.0f;
    rule.natural = raw ? scale : (float)ORDO_LN_2;
    rule.slope = raw ? 1.0f / scale : log2_e;
    rule.biased = alibi;
    rule.cap = rule.to_cap = rule.of_cap = 0.0f;
    rule.edge = -1.0f;
    for (int i = 0; i < 4; i++)
        rule.near[i] = 0.0f;
    if (softcap > 0.0f)
        ordo_rule_cap(&rule, scale, softcap);
    return rule;
}

/* The capped logit of a score up to `edge`. */
ORDO_HD float ordo_cap_near(float qk, const ordo_score_rule *rule)
{
    const float square = qk * qk;
    float x = fmaf(square, rule->near[3], rule->near[2]);
    x = fmaf(square, x, rule->near[1]);
    x = fmaf(square, x, rule->near[0]);
    return qk * x;
}

#endif
