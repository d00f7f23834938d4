/* Softcap and ALiBi of the CUDA kernels, by the text that the device compiles: how far the
 * polynomial of tanh is off, where it ends, and what a rule gives at any scale. */
#include "base/rule.h"

#include <float.h>

#include "check.h"

/* The largest relative error of the polynomial, over scores of both signs up to the edge. */
static double near_error(float scale, float softcap)
{
    const ordo_score_rule rule = ordo_score_rule_of(scale, softcap, false);
    const double to = (double)scale / (double)softcap;
    double most = 0;
    CHECK(rule.edge > 0.0f && rule.to_log2 == 1.0f);
    for (int n = 1; n <= 20000; n++) {
        const float qk = (n % 2 ? rule.edge : -rule.edge) * (float)n / 20000.0f;
        const double want = (double)softcap * tanh(to * (double)qk) * ORDO_LOG2_E;
        most = fmax(most, fabs((double)ordo_cap_near(qk, &rule) / want - 1));
    }
    return most;
}

/* 5.3e-7 of the polynomial; its first coefficient, the last fma and the last product are rounded by
 * 2^-24 each, all before them by less than half of that together. */
TEST(tanh_near_zero_has_a_small_relative_error)
{
    const float caps[] = { 0x1p-10f, 0.3f, 1.0f, 15.0f, 30.0f, 50.0f, 1000.0f, 0x1p14f };
    const float scales[] = { 1.0f, 0.125f, 0.088388346f, 0.0625f, -0.125f, 37.5f };
    double most = 0;
    for (size_t c = 0; c < sizeof caps / sizeof *caps; c++)
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
            most = fmax(most, near_error(scales[s], caps[c]));
    printf("largest relative error %.3g\n", most);
    CHECK(most <= 5.3e-7 + 3.5 * 0x1p-24);
}

/* Where the polynomial ends it meets tanh by exp2, which the device takes from there on. */
TEST(both_forms_of_tanh_meet_at_the_edge)
{
    const ordo_score_rule rule = ordo_score_rule_of(0.125f, 30.0f, false);
    CHECK(rule.edge == 120.0f);
    for (int sign = -1; sign <= 1; sign += 2) {
        const float qk = (float)sign * rule.edge;
        const float far = fmaf(1.0f / (exp2f(qk * rule.to_cap) + 1.0f), -2.0f * rule.cap, rule.cap);
        CHECK(fabsf(far - ordo_cap_near(qk, &rule)) <= 0x1p-21f * rule.cap);
    }
}

/* A polynomial whose coefficients f32 does not hold is never taken. */
TEST(coefficients_out_of_range_switch_the_polynomial_off)
{
    const float caps[] = { 0x1p-10f, 1.0f, 0x1p14f };
    int on = 0, off = 0;
    for (int e = -126; e <= 126; e++)
        for (size_t c = 0; c < sizeof caps / sizeof *caps; c++) {
            const ordo_score_rule rule = ordo_score_rule_of(ldexpf(1.0f, e), caps[c], true);
            on += rule.edge > 0.0f;
            off += rule.edge == -1.0f;
            for (int i = 0; rule.edge > 0.0f && i < 4; i++)
                CHECK(fabsf(rule.near[i]) >= FLT_MIN && fabsf(rule.near[i]) <= FLT_MAX);
            CHECK(rule.edge == -1.0f || rule.edge * rule.edge <= FLT_MAX);
        }
    CHECK(on > 60 && off > 60 && on + off == 3 * 253);
}

/* What ALiBi gives, in the arithmetic of the kernels. */
static float biased(float qk, float slope, float distance, const ordo_score_rule *rule)
{
    const float score = rule->to_log2 == 1.0f ? qk * rule->scale : qk;
    return fmaf(-(slope * rule->slope), distance, score) * rule->to_log2;
}

TEST(alibi_is_exact_at_any_scale)
{
    for (int e = -100; e <= 100; e++)
        for (int sign = -1; sign <= 1; sign += 2) {
            const float scale = ldexpf(1.3f * (float)sign, e), qk = ldexpf(1.7f, -e);
            const ordo_score_rule rule = ordo_score_rule_of(scale, 0.0f, true);
            CHECK(rule.to_log2 > 0.0f && rule.biased && rule.cap == 0.0f);
            for (int distance = 0; distance < 1000000; distance = 3 * distance + 1) {
                const double x = (double)scale * (double)qk, bias = 0.3f * (double)distance;
                const double got = (double)biased(qk, 0.3f, (float)distance, &rule);
                CHECK(fabs(got - (x - bias) * ORDO_LOG2_E) <= 0x1p-22 * (fabs(x) + bias));
                CHECK(fabs((double)rule.natural / (double)rule.to_log2 - ORDO_LN_2) <= 0x1p-23);
            }
        }
}

CHECK_MAIN()
