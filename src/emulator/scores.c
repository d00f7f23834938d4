/* scores.c: what happens to scores q.k between products, row by row: the rule of softcap and ALiBi,
 * and the statistics of the backward pass. */
#include <math.h>

#include "base/constants.h"
#include "base/half.h"
#include "emulator/pass.h"
#include "emulator/special.h"

/* ---- the rule ---- */

static float cap_score(float qk, const ordo_score_rule *rule)
{
    if (!(fabsf(qk) > rule->edge))
        return ordo_cap_near(qk, rule);
    const float y = ordo_emulator_ex2(qk * rule->to_cap) + 1.0f;
    return fmaf(ordo_emulator_rcp(y), -2.0f * rule->cap, rule->cap);
}

static int32_t distance(const ordo_emulator_pass *pass, int64_t b, int32_t row, int32_t key)
{
    return row + pass->sequences[b].diagonal - key;
}

void ordo_emulator_apply_rule(const ordo_emulator_pass *pass, float *s, int n, int64_t b,
                              int64_t head, int32_t row, int32_t key0)
{
    const ordo_score_rule *rule = &pass->rule;
    const float step = ordo_emulator_slope(pass, b, head) * rule->slope;
    if (rule->cap > 0.0f)
        for (int j = 0; j < n; j++)
            s[j] = cap_score(s[j], rule);
    else if (rule->to_log2 == 1.0f)
        for (int j = 0; j < n; j++)
            s[j] *= rule->scale;
    for (int j = 0; rule->biased && j < n; j++)
        s[j] = fmaf(-step, fabsf((float)distance(pass, b, row, key0 + j)), s[j]);
    for (int j = 0; pass->problem->bias.on && j < n; j++)
        s[j] = fmaf(ordo_emulator_bias(pass, b, head, row, key0 + j), rule->slope, s[j]);
}

float ordo_emulator_cap_gradient(const ordo_emulator_pass *pass, float p, float lse2, int64_t b,
                                 int64_t head, int32_t row, int32_t key)
{
    const ordo_score_rule *rule = &pass->rule;
    const float step = ordo_emulator_slope(pass, b, head) * rule->slope;
    const float bias = ordo_emulator_bias(pass, b, head, row, key);
    float logit = ordo_emulator_lg2(p) + lse2;
    if (pass->problem->bias.on)
        logit = fmaf(bias, -rule->slope, logit);
    logit = fmaf(step, fabsf((float)distance(pass, b, row, key)), logit);
    const float t = fminf(fmaxf(logit * rule->of_cap, -1.0f), 1.0f);
    return fmaf(-t, t, 1.0f);
}

/* ---- statistics of rows ---- */

/* rowsum(dO * O): `each` threads have chunks of 8 columns, which they add in ascending order, and
 * then exchange their sums, the farthest first. */
static float row_product(const ordo_emulator_pass *pass, const uint16_t *o, const uint16_t *dout)
{
    const int bucket = pass->backward.bucket, each = bucket / 8 < 32 ? bucket / 8 : 32;
    float sums[32] = { 0.0f };
    for (int first = 0; first < bucket; first += 8 * each)
        for (int x = 0; x < each; x++) {
            float sum = 0.0f;
            const int at = first + 8 * x, end = at < pass->v_dim ? at + 8 : at;
            for (int c = at; c < end; c++)
                sum = pass->f16 ? fmaf(ordo_f32_from_f16(o[c]), ordo_f32_from_f16(dout[c]), sum)
                                : fmaf(ordo_f32_from_bf16(o[c]), ordo_f32_from_bf16(dout[c]), sum);
            sums[x] = first == 0 ? sum : sums[x] + sum;
        }
    for (int half = each / 2; half > 0; half /= 2)
        for (int x = 0; x < half; x++) /* thread x and x + half add alike */
            sums[x] += sums[x + half];
    return sums[0];
}

void ordo_emulator_statistics(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t row,
                              int count, float *lse2, float *delta)
{
    const ordo_call *c = pass->call;
    const int64_t at = ordo_emulator_lse(pass, b, head);
    const ordo_emulator_rows o =
        ordo_emulator_rows_of(pass, &c->o, ORDO_EMULATOR_QUERIES, pass->v_dim, b, head);
    const ordo_emulator_rows dout =
        ordo_emulator_rows_of(pass, &c->dout, ORDO_EMULATOR_QUERIES, pass->v_dim, b, head);
    const float kept = pass->dropout ? 1.0f / pass->keep_scale : 1.0f;
    for (int i = 0; i < count; i++) {
        const int32_t r = row + i;
        lse2[i] = INFINITY;
        delta[i] = 0.0f;
        if (r >= pass->sequences[b].q_len)
            continue;
        const float lse = c->lse[at + r];
        float sum = row_product(pass, o.data + r * o.stride, dout.data + r * dout.stride);
        if (c->dlse)
            sum -= c->dlse[at + r];
        if (lse == -INFINITY && (!pass->backward.dense || c->dlse))
            sum = 0.0f;
        lse2[i] = lse == -INFINITY ? INFINITY : lse * (float)ORDO_LOG2_E;
        delta[i] = sum * kept;
    }
}
