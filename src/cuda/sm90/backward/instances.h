/* sm90/backward/instances.h: the instances of the backward pass for buckets 64 and 128.
 *
 * A line makes an object with ordo_backward_NAME(), a call of a template of sm90/backward/launch.h:
 * src/cuda/CMakeLists.txt reads the lines, so that an object is compiled apart from the others. */
#ifndef CUDA_SM90_BACKWARD_INSTANCES_H
#define CUDA_SM90_BACKWARD_INSTANCES_H

#include "cuda/sm90/backward/args.h"

#define ORDO_BACKWARD_INSTANCES(INSTANCE)                                                          \
    INSTANCE(dense_bf16, backward_dense_of<false, false>)                                          \
    INSTANCE(dense_f16, backward_dense_of<true, false>)                                            \
    /* in every order, bf16 without dropout */                                                     \
    INSTANCE(any_order_bf16, backward_any_order<false>)                                            \
    /* with sums of dK and dV that are carried */                                                  \
    INSTANCE(carry_bf16, backward_dense_of<false, true>)                                           \
    INSTANCE(carry_f16, backward_dense_of<true, true>)                                             \
    /* any pass, after the table of sequences */                                                   \
    INSTANCE(varlen_bf16, backward_varlen<ORDO_DQ_ORDERED, false>)                                 \
    INSTANCE(varlen_f16, backward_varlen<ORDO_DQ_ORDERED, true>)                                   \
    /* dk and dv alone */                                                                          \
    INSTANCE(keys_bf16, backward_varlen<ORDO_DQ_NONE, false>)                                      \
    INSTANCE(keys_f16, backward_varlen<ORDO_DQ_NONE, true>)                                        \
    /* dq alone */                                                                                 \
    INSTANCE(queries_bf16, backward_varlen<ORDO_DQ_ALONE, false>)                                  \
    INSTANCE(queries_f16, backward_varlen<ORDO_DQ_ALONE, true>)                                    \
    /* a block mask, and whatever of the gradients is wanted */                                    \
    INSTANCE(block_mask_bf16, backward_varlen<ORDO_DQ_ORDERED, false, true>)                       \
    INSTANCE(block_mask_f16, backward_varlen<ORDO_DQ_ORDERED, true, true>)                         \
    /* an element mask, likewise */                                                                \
    INSTANCE(seen_bf16, backward_varlen<ORDO_DQ_ORDERED, false, true, true>)                       \
    INSTANCE(seen_f16, backward_varlen<ORDO_DQ_ORDERED, true, true, true>)                         \
    /* a bias, likewise */                                                                         \
    INSTANCE(bias_bf16, backward_varlen<ORDO_DQ_ORDERED, false, false, false, BIAS_READ>)          \
    INSTANCE(bias_f16, backward_varlen<ORDO_DQ_ORDERED, true, false, false, BIAS_READ>)            \
    INSTANCE(bias_staged_bf16, backward_staged<false>)                                             \
    INSTANCE(bias_staged_f16, backward_staged<true>)

/* The instance for a bucket and keep bits of a source. */
#define ORDO_BACKWARD_DECLARE(NAME, ...)                                                           \
    ordo_backward_instance ordo_backward_##NAME(int32_t bucket, ordo_keep_source source);
ORDO_BACKWARD_INSTANCES(ORDO_BACKWARD_DECLARE)

#endif
