/* random_dropout.h: problems with dropout, drawn, with their plans and what the model says of them.
 */
#ifndef RANDOM_DROPOUT_H
#define RANDOM_DROPOUT_H

#include "check.h"
#include "ordo/lab/model.h"
#include "plan/plan.h"

static uint64_t random_state; /* set it before the first problem */

static inline int64_t log_uniform(int64_t most_bits, int64_t least)
{
    const int64_t top = (int64_t)1 << check_between(&random_state, 0, most_bits);
    const int64_t drawn = check_between(&random_state, top, 2 * top - 1);
    return drawn < least ? least : drawn;
}

/* Self-attention of a training step on a GPU: at least eight heads of 64 to 131071 rows. */
static inline ordo_problem draw(void)
{
    static const int64_t dims[] = { 64, 64, 80, 96, 128, 128, 128, 160, 192, 256, 512 };
    static const int generators[][2] = { { 7, 8 }, { 7, 8 }, { 10, 8 }, { 7, 4 } };
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = check_between(&random_state, 0, 1) ? ORDO_BF16 : ORDO_F16;
    p.kv_heads = log_uniform(3, 2);
    p.heads = p.kv_heads * (check_between(&random_state, 0, 2) ? 1 : 4);
    p.batch = log_uniform(3, p.heads < 8 ? 4 : 1);
    p.q_len = p.kv_len = log_uniform(16, 64);
    p.head_dim = dims[check_between(&random_state, 0, 10)];
    p.mask = check_between(&random_state, 0, 1) ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
    if (check_between(&random_state, 0, 5) == 0)
        p.window = (ordo_window) { .on = true,
                                   .left = check_between(&random_state, 63, p.q_len),
                                   .right = p.mask == ORDO_MASK_FULL ? 64 : 0 };
    const int generator = (int)check_between(&random_state, 0, 3);
    p.dropout.p = 0.1;
    p.dropout.rounds = generators[generator][0];
    p.dropout.bits = generators[generator][1];
    const int64_t layout = check_between(&random_state, 0, 7);
    if (layout == 0) {
        p.layout = ORDO_PACKED;
        p.total_q = p.total_kv =
            p.batch * p.q_len - check_between(&random_state, 0, p.q_len - 1); /* not empty */
    } else if (layout == 1) {
        p.layout = ORDO_PADDED;
    }
    return p;
}

/* Seconds of both passes and of what makes the bits and calls for it, in a mode. */
static inline double cost(const ordo_plan_price *price, ordo_dropout_mode mode, bool keep,
                          double call)
{
    const double given = price->mode_seconds[ORDO_DROPOUT_MODE_OVERLAPPED];
    if (mode == ORDO_DROPOUT_MODE_FUSED)
        return price->mode_seconds[mode];
    return given + (keep ? 1 : 2) * (price->rng.seconds + call);
}

static inline double constant(const ordo_model *model, const char *name)
{
    ordo_model_constant c = { 0 };
    for (size_t i = 0; i < ordo_model_constant_count(); i++)
        if (ordo_model_constant_at(model, i, &c) == ORDO_OK && strcmp(c.name, name) == 0)
            return c.value;
    CHECK_FAIL("no constant %s", name);
    return 0;
}

typedef struct drawn {
    ordo_plan *plan;
    ordo_plan_info info;
    ordo_plan_price price;
} drawn;

static inline drawn draw_plan(const ordo_machine *h200, const ordo_model *model)
{
    for (;;) {
        drawn d = { .info = ORDO_PLAN_INFO_INIT };
        const ordo_problem p = draw();
        if (ordo_plan_create(&d.plan, &p, h200, NULL) == ORDO_OK &&
            ordo_plan_query(d.plan, &d.info) == ORDO_OK &&
            ordo_model_plan(model, d.plan, &d.price) == ORDO_OK)
            return d;
        ordo_plan_destroy(d.plan); /* what no kernel runs, or has no price */
    }
}

#endif
