/* constants.h: of norms and activations, for host and device alike. */
#ifndef BLOCK_CONSTANTS_H
#define BLOCK_CONSTANTS_H

#define ORDO_BLOCK_NORM_EPSILON 1e-5f
#define ORDO_BLOCK_LOG2_E       0x1.715476p+0f
#define ORDO_BLOCK_GELU_LINEAR  0.79788456f /* sqrt(2 / pi) */
#define ORDO_BLOCK_GELU_CUBIC   0.044715f

#endif
