/* functions.h: activations and constants of norms, for host and device alike. */
#ifndef BLOCK_FUNCTIONS_H
#define BLOCK_FUNCTIONS_H

#include "base/exp2.h"
#include "base/hd.h"

#define ORDO_BLOCK_NORM_EPSILON 1e-5f
#define ORDO_BLOCK_LOG2_E       0x1.715476p+0f
#define ORDO_BLOCK_GELU_LINEAR  0.79788456f /* sqrt(2 / pi) */
#define ORDO_BLOCK_GELU_CUBIC   0.044715f

ORDO_HD float block_sigmoid(float x)
{
    return 1.0f / (1.0f + ordo_exp2(-ORDO_BLOCK_LOG2_E * x));
}

/* x sigmoid(2 inner(x)) is GELU with tanh(inner(x)); `slope` gets its derivative. */
ORDO_HD float block_gelu(float x, float *slope)
{
    const float square = x * x;
    const float inner = ORDO_BLOCK_GELU_LINEAR * x * (1.0f + ORDO_BLOCK_GELU_CUBIC * square);
    const float rise = ORDO_BLOCK_GELU_LINEAR * (1.0f + 3.0f * ORDO_BLOCK_GELU_CUBIC * square);
    const float s = block_sigmoid(2.0f * inner);
    *slope = s + 2.0f * x * s * (1.0f - s) * rise;
    return x * s;
}

ORDO_HD float block_silu(float x, float *slope)
{
    const float s = block_sigmoid(x);
    *slope = s * (1.0f + x * (1.0f - s));
    return x * s;
}

#endif
