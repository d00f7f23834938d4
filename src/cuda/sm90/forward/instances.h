/* sm90/forward/instances.h: the instances of the forward kernels.
 *
 * A line makes an object with ordo_forward_NAME(), a call of a template of sm90/forward/launch.h:
 * src/cuda/CMakeLists.txt reads the lines, so that an object is compiled apart from the others. */
#ifndef CUDA_SM90_FORWARD_INSTANCES_H
#define CUDA_SM90_FORWARD_INSTANCES_H

#include "cuda/sm90/forward/args.h"

#define ORDO_FORWARD_INSTANCES(INSTANCE)                                                           \
    /* dense, nothing hidden but by a causal mask, whole head sizes */                             \
    INSTANCE(plain_64_bf16, forward_plain<64, false>)                                              \
    INSTANCE(plain_64_f16, forward_plain<64, true>)                                                \
    INSTANCE(plain_128_bf16, forward_plain<128, false>)                                            \
    INSTANCE(plain_128_f16, forward_plain<128, true>)                                              \
    /* any pass of a bucket of head sizes, or of a pair of them */                                 \
    INSTANCE(general_64_bf16, forward_general<64, 64, false>)                                      \
    INSTANCE(general_64_f16, forward_general<64, 64, true>)                                        \
    INSTANCE(general_128_bf16, forward_general<128, 128, false>)                                   \
    INSTANCE(general_128_f16, forward_general<128, 128, true>)                                     \
    INSTANCE(general_192_128_bf16, forward_general<192, 128, false>)                               \
    INSTANCE(general_192_128_f16, forward_general<192, 128, true>)                                 \
    INSTANCE(general_192_bf16, forward_general<192, 192, false>)                                   \
    INSTANCE(general_192_f16, forward_general<192, 192, true>)                                     \
    INSTANCE(general_256_bf16, forward_general<256, 256, false>)                                   \
    INSTANCE(general_256_f16, forward_general<256, 256, true>)                                     \
    /* a rule other than ORDO_RULE_ANY, without dropout */                                         \
    INSTANCE(ruled_64_bf16, forward_ruled<64, false>)                                              \
    INSTANCE(ruled_64_f16, forward_ruled<64, true>)                                                \
    INSTANCE(ruled_128_bf16, forward_ruled<128, false>)                                            \
    INSTANCE(ruled_128_f16, forward_ruled<128, true>)                                              \
    /* block masks */                                                                              \
    INSTANCE(blocks_64_bf16, forward_general<64, 64, false, true>)                                 \
    INSTANCE(blocks_64_f16, forward_general<64, 64, true, true>)                                   \
    INSTANCE(blocks_128_bf16, forward_general<128, 128, false, true>)                              \
    INSTANCE(blocks_128_f16, forward_general<128, 128, true, true>)

/* The instance for keep bits of that source; `rule` is of the ruled ones. */
#define ORDO_FORWARD_DECLARE(NAME, ...)                                                            \
    ordo_forward_instance ordo_forward_##NAME(ordo_keep_source source, ordo_forward_rule rule);
ORDO_FORWARD_INSTANCES(ORDO_FORWARD_DECLARE)

#endif
