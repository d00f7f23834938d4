/* sm90/forward/instances.h: the instances of the forward kernels.
 *
 * A line makes an object with ordo_forward_NAME(), a call of a template of sm90/forward/launch.h:
 * src/cuda/CMakeLists.txt reads the lines, so that an object is compiled apart from the others. */
#ifndef CUDA_SM90_FORWARD_INSTANCES_H
#define CUDA_SM90_FORWARD_INSTANCES_H

#include "cuda/sm90/forward/args.h"

#define ORDO_FORWARD_INSTANCES(INSTANCE)                                                           \
    /* dense, nothing hidden but by a causal mask, whole head sizes */                             \
    INSTANCE(dense_64_bf16, forward_dense<64, false>)                                              \
    INSTANCE(dense_64_f16, forward_dense<64, true>)                                                \
    INSTANCE(dense_128_bf16, forward_dense<128, false>)                                            \
    INSTANCE(dense_128_f16, forward_dense<128, true>)                                              \
    /* any pass of a bucket of head sizes, or of a pair of them */                                 \
    INSTANCE(varlen_64_bf16, forward_varlen<64, 64, false>)                                        \
    INSTANCE(varlen_64_f16, forward_varlen<64, 64, true>)                                          \
    INSTANCE(varlen_128_bf16, forward_varlen<128, 128, false>)                                     \
    INSTANCE(varlen_128_f16, forward_varlen<128, 128, true>)                                       \
    INSTANCE(varlen_192_128_bf16, forward_varlen<192, 128, false>)                                 \
    INSTANCE(varlen_192_128_f16, forward_varlen<192, 128, true>)                                   \
    INSTANCE(varlen_192_bf16, forward_varlen<192, 192, false>)                                     \
    INSTANCE(varlen_192_f16, forward_varlen<192, 192, true>)                                       \
    INSTANCE(varlen_256_bf16, forward_varlen<256, 256, false>)                                     \
    INSTANCE(varlen_256_f16, forward_varlen<256, 256, true>)                                       \
    /* a rule other than ORDO_RULE_ANY, without dropout */                                         \
    INSTANCE(score_rule_64_bf16, forward_score_rule<64, false>)                                    \
    INSTANCE(score_rule_64_f16, forward_score_rule<64, true>)                                      \
    INSTANCE(score_rule_128_bf16, forward_score_rule<128, false>)                                  \
    INSTANCE(score_rule_128_f16, forward_score_rule<128, true>)                                    \
    /* block masks */                                                                              \
    INSTANCE(block_mask_64_bf16, forward_varlen<64, 64, false, FORWARD_LISTS>)                     \
    INSTANCE(block_mask_64_f16, forward_varlen<64, 64, true, FORWARD_LISTS>)                       \
    INSTANCE(block_mask_128_bf16, forward_varlen<128, 128, false, FORWARD_LISTS>)                  \
    INSTANCE(block_mask_128_f16, forward_varlen<128, 128, true, FORWARD_LISTS>)                    \
    /* keys in pages, and many queries */                                                          \
    INSTANCE(paged_64_bf16, forward_paged<64, false>)                                              \
    INSTANCE(paged_64_f16, forward_paged<64, true>)                                                \
    INSTANCE(paged_128_bf16, forward_paged<128, false>)                                            \
    INSTANCE(paged_128_f16, forward_paged<128, true>)                                              \
    INSTANCE(paged_192_bf16, forward_paged<192, false>)                                            \
    INSTANCE(paged_192_f16, forward_paged<192, true>)                                              \
    INSTANCE(paged_256_bf16, forward_paged<256, false>)                                            \
    INSTANCE(paged_256_f16, forward_paged<256, true>)                                              \
    /* keys in pages, also in short ones, and few queries */                                       \
    INSTANCE(decode_64_bf16, forward_decode<64, false, false>)                                     \
    INSTANCE(decode_64_f16, forward_decode<64, true, false>)                                       \
    INSTANCE(decode_128_bf16, forward_decode<128, false, false>)                                   \
    INSTANCE(decode_128_f16, forward_decode<128, true, false>)                                     \
    INSTANCE(decode_192_bf16, forward_decode<192, false, false>)                                   \
    INSTANCE(decode_192_f16, forward_decode<192, true, false>)                                     \
    INSTANCE(decode_256_bf16, forward_decode<256, false, false>)                                   \
    INSTANCE(decode_256_f16, forward_decode<256, true, false>)                                     \
    INSTANCE(gather_64_bf16, forward_decode<64, false, true>)                                      \
    INSTANCE(gather_64_f16, forward_decode<64, true, true>)                                        \
    INSTANCE(gather_128_bf16, forward_decode<128, false, true>)                                    \
    INSTANCE(gather_128_f16, forward_decode<128, true, true>)                                      \
    INSTANCE(gather_192_bf16, forward_decode<192, false, true>)                                    \
    INSTANCE(gather_192_f16, forward_decode<192, true, true>)                                      \
    INSTANCE(gather_256_bf16, forward_decode<256, false, true>)                                    \
    INSTANCE(gather_256_f16, forward_decode<256, true, true>)                                      \
    /* long sequences of such passes: by key tiles (128 to head size 128, then 64) if head sizes   \
     * do not matter */                                                                            \
    INSTANCE(spread_choose_128, spread_choose<128>)                                                \
    INSTANCE(spread_choose_256, spread_choose<256>)                                                \
    INSTANCE(spread_scores_64_bf16, spread_scores<64, false, false>)                               \
    INSTANCE(spread_scores_64_f16, spread_scores<64, true, false>)                                 \
    INSTANCE(spread_scores_128_bf16, spread_scores<128, false, false>)                             \
    INSTANCE(spread_scores_128_f16, spread_scores<128, true, false>)                               \
    INSTANCE(spread_scores_192_bf16, spread_scores<192, false, false>)                             \
    INSTANCE(spread_scores_192_f16, spread_scores<192, true, false>)                               \
    INSTANCE(spread_scores_256_bf16, spread_scores<256, false, false>)                             \
    INSTANCE(spread_scores_256_f16, spread_scores<256, true, false>)                               \
    INSTANCE(spread_gather_64_bf16, spread_scores<64, false, true>)                                \
    INSTANCE(spread_gather_64_f16, spread_scores<64, true, true>)                                  \
    INSTANCE(spread_gather_128_bf16, spread_scores<128, false, true>)                              \
    INSTANCE(spread_gather_128_f16, spread_scores<128, true, true>)                                \
    INSTANCE(spread_gather_192_bf16, spread_scores<192, false, true>)                              \
    INSTANCE(spread_gather_192_f16, spread_scores<192, true, true>)                                \
    INSTANCE(spread_gather_256_bf16, spread_scores<256, false, true>)                              \
    INSTANCE(spread_gather_256_f16, spread_scores<256, true, true>)                                \
    INSTANCE(spread_weights_128_bf16, spread_weights<128, false>)                                  \
    INSTANCE(spread_weights_128_f16, spread_weights<128, true>)                                    \
    INSTANCE(spread_weights_256_bf16, spread_weights<256, false>)                                  \
    INSTANCE(spread_weights_256_f16, spread_weights<256, true>)                                    \
    INSTANCE(spread_values_128_bf16, spread_values<128, false, false>)                             \
    INSTANCE(spread_values_128_f16, spread_values<128, true, false>)                               \
    INSTANCE(spread_values_256_bf16, spread_values<256, false, false>)                             \
    INSTANCE(spread_values_256_f16, spread_values<256, true, false>)                               \
    INSTANCE(spread_picked_128_bf16, spread_values<128, false, true>)                              \
    INSTANCE(spread_picked_128_f16, spread_values<128, true, true>)                                \
    INSTANCE(spread_picked_256_bf16, spread_values<256, false, true>)                              \
    INSTANCE(spread_picked_256_f16, spread_values<256, true, true>)                                \
    /* element masks */                                                                            \
    INSTANCE(seen_64_bf16, forward_varlen<64, 64, false, FORWARD_ELEMENTS>)                        \
    INSTANCE(seen_64_f16, forward_varlen<64, 64, true, FORWARD_ELEMENTS>)                          \
    INSTANCE(seen_128_bf16, forward_varlen<128, 128, false, FORWARD_ELEMENTS>)                     \
    INSTANCE(seen_128_f16, forward_varlen<128, 128, true, FORWARD_ELEMENTS>)                       \
    INSTANCE(seen_192_bf16, forward_varlen<192, 192, false, FORWARD_ELEMENTS>)                     \
    INSTANCE(seen_192_f16, forward_varlen<192, 192, true, FORWARD_ELEMENTS>)                       \
    INSTANCE(seen_256_bf16, forward_varlen<256, 256, false, FORWARD_ELEMENTS>)                     \
    INSTANCE(seen_256_f16, forward_varlen<256, 256, true, FORWARD_ELEMENTS>)                       \
    /* a bias */                                                                                   \
    INSTANCE(bias_64_bf16, forward_varlen<64, 64, false, FORWARD_BIAS>)                            \
    INSTANCE(bias_64_f16, forward_varlen<64, 64, true, FORWARD_BIAS>)                              \
    INSTANCE(bias_128_bf16, forward_varlen<128, 128, false, FORWARD_BIAS>)                         \
    INSTANCE(bias_128_f16, forward_varlen<128, 128, true, FORWARD_BIAS>)

/* The instance for keep bits of that source; `rule`: of the kernels that have one. */
#define ORDO_FORWARD_DECLARE(NAME, ...)                                                            \
    ordo_forward_instance ordo_forward_##NAME(ordo_keep_source source, ordo_forward_rule rule);
ORDO_FORWARD_INSTANCES(ORDO_FORWARD_DECLARE)

#endif
