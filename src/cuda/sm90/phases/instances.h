/* sm90/phases/instances.h: the kernels of the passes by phases.
 *
 * A line makes an object with ordo_phases_NAME(), a call of a template of sm90/phases/launch.h:
 * src/cuda/CMakeLists.txt reads the lines, so that an object is compiled apart from the others. */
#ifndef CUDA_SM90_PHASES_INSTANCES_H
#define CUDA_SM90_PHASES_INSTANCES_H

#include "cuda/sm90/phases/args.h"

#define ORDO_PHASE_INSTANCES(INSTANCE)                                                             \
    INSTANCE(softmax, phase_scores_of<phase_softmax<false>, phase_softmax<true>>)                  \
    INSTANCE(outputs, phase_product_of<PHASE_OUTPUTS>)                                             \
    INSTANCE(scores, phase_scores_of<phase_scores<false>, phase_scores<true>>)                     \
    INSTANCE(keys, phase_product_of<PHASE_BY_KEYS>)                                                \
    INSTANCE(queries, phase_product_of<PHASE_QUERIES>)                                             \
    INSTANCE(queries_transposed, phase_product_of<PHASE_TRANSPOSED>)                               \
    INSTANCE(queries_seen, phase_product_of<PHASE_SEEN>)                                           \
    /* head sizes, of v too if it is another, up to these */                                       \
    INSTANCE(chain_192_128, phase_chain_of<192, 128>)                                              \
    INSTANCE(chain_192, phase_chain_of<192, 192>)                                                  \
    INSTANCE(chain_256_128, phase_chain_of<256, 128>)                                              \
    INSTANCE(chain_256, phase_chain_of<256, 256>)                                                  \
    /* element masks */                                                                            \
    INSTANCE(chain_seen_192, phase_chain_of<192, 192, true>)                                       \
    INSTANCE(chain_seen_256, phase_chain_of<256, 256, true>)

/* `columns`: of the outputs of a product. */
#define ORDO_PHASE_DECLARE(NAME, ...)                                                              \
    ordo_phase_kernel ordo_phases_##NAME(const ordo_cuda_pass *pass, int32_t columns);
ORDO_PHASE_INSTANCES(ORDO_PHASE_DECLARE)

#endif
