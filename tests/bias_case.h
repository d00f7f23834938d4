/* bias_case.h: the gradient of a bias of a case, as ordo/attention.h says it is summed.
 *
 *   float *ds = bias_separate(&c, plan_of);        dS of every sequence and head
 *   bias_compare_sums(&c, plan, threads, ds);      runs the case, whose dbias must be their sum */
#ifndef TESTS_BIAS_CASE_H
#define TESTS_BIAS_CASE_H

#include "attention_case.h"

/* dS of every sequence and head, as the gradient of a bias that each of them has of its own. */
static inline float *bias_separate(attention_case *c, ordo_plan *(*plan_of)(const attention_case *))
{
    const ordo_problem shared = c->problem;
    const ordo_tensor bias = c->call.bias;
    float *const dbias = c->call.dbias;
    const size_t matrix = (size_t)(shared.q_len * shared.kv_len);
    const size_t all = matrix * (size_t)(shared.batch * shared.heads);
    const size_t width = shared.bias.dtype == ORDO_F32 ? 4 : 2;
    char *own = case_alloc(all, width);
    float *ds = case_alloc(all, 4);
    for (int64_t b = 0; b < shared.batch; b++)
        for (int64_t h = 0; h < shared.heads; h++)
            memcpy(own + (size_t)(b * shared.heads + h) * matrix * width,
                   (const char *)bias.data + case_bias_at(&shared, b, h) * width, matrix * width);
    const size_t count = c->bias_count;
    c->problem.bias.per_sequence = c->problem.bias.per_head = true;
    c->call.bias = (ordo_tensor) { own, { 0 } };
    c->call.dbias = ds;
    c->bias_count = all;
    ordo_plan *plan = plan_of(c);
    if (case_run(c, plan, 2) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_plan_destroy(plan);
    c->problem = shared;
    c->call.bias = bias;
    c->call.dbias = dbias;
    c->bias_count = count;
    free(own);
    return ds;
}

/* The sum of an element as ordo/attention.h says it. */
static inline float bias_summed(const ordo_problem *p, const float *ds, int64_t sequence,
                                int64_t head, size_t at)
{
    const size_t matrix = (size_t)(p->q_len * p->kv_len);
    float all = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        float sum = 0;
        for (int64_t h = 0; h < p->heads; h++)
            if (!p->bias.per_head || h == head)
                sum += ds[(size_t)(b * p->heads + h) * matrix + at];
        if (!p->bias.per_sequence || b == sequence)
            all += sum;
    }
    return all;
}

/* Run the case and compare every element of dbias with that sum. */
static inline void bias_compare_sums(attention_case *c, const ordo_plan *plan, int threads,
                                     const float *ds)
{
    const ordo_problem *p = &c->problem;
    const size_t matrix = (size_t)(p->q_len * p->kv_len);
    if (case_run(c, plan, threads) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    for (int64_t b = 0; b < ordo_bias_sequences(p); b++)
        for (int64_t h = 0; h < ordo_bias_heads(p); h++)
            for (size_t at = 0; at < matrix; at++) {
                const float sum = bias_summed(p, ds, b, h, at);
                const float *got = c->call.dbias + case_bias_at(p, b, h) + at;
                if (ordo_f32_bits(*got) != ordo_f32_bits(sum)) {
                    CHECK_FAIL("dbias of sequence %d, head %d, element %zu is %a, not %a", (int)b,
                               (int)h, at, (double)*got, (double)sum);
                    case_print(c);
                    return;
                }
            }
}

#endif
