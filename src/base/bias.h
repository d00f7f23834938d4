/* bias.h: where the bias of a sequence and head lies, and what it hides. */
#ifndef BASE_BIAS_H
#define BASE_BIAS_H

#include "ordo/attention.h"

/* A bias below this hides its element, as -inf does: f32 may not hold it in base 2 or divided by
 * the scale, as kernels add it. */
#define ORDO_BIAS_LEAST -0x1p100f

static inline bool ordo_bias_hides(float bias)
{
    return bias < ORDO_BIAS_LEAST; /* NaN does not */
}

/* Sequences and heads of the tensor: those of the problem, or 1. */
static inline int64_t ordo_bias_sequences(const ordo_problem *problem)
{
    return problem->bias.per_sequence ? problem->batch : 1;
}
static inline int64_t ordo_bias_heads(const ordo_problem *problem)
{
    return problem->bias.per_head ? problem->heads : 1;
}

/* Elements of dbias; 0 without a bias. */
static inline int64_t ordo_bias_count(const ordo_problem *problem)
{
    return problem->bias.on ? ordo_bias_sequences(problem) * ordo_bias_heads(problem) *
                                  problem->q_len * problem->kv_len
                            : 0;
}

/* Strides of call.bias in elements, 0 where an axis is shared. */
typedef struct ordo_bias_strides {
    int64_t sequence, head, row;
} ordo_bias_strides;

static inline ordo_bias_strides ordo_bias_strides_of(const ordo_problem *problem,
                                                     const ordo_tensor *bias)
{
    const bool tight = bias->stride[3] == 0;
    const int64_t matrix = problem->q_len * problem->kv_len;
    ordo_bias_strides s = { bias->stride[0], bias->stride[1], bias->stride[2] };
    if (tight)
        s = (ordo_bias_strides) { ordo_bias_heads(problem) * matrix, matrix, problem->kv_len };
    if (!problem->bias.per_sequence)
        s.sequence = 0;
    if (!problem->bias.per_head)
        s.head = 0;
    return s;
}

#endif
