/* sm90/phases/launch.h: what the lines of sm90/phases/instances.h call: the kernel for a pass. */
#ifndef CUDA_SM90_PHASES_LAUNCH_H
#define CUDA_SM90_PHASES_LAUNCH_H

#include "cuda/sm90/phases/chain.h"
#include "cuda/sm90/phases/instances.h"
#include "cuda/sm90/phases/scores.h"
#include "cuda/sm90/phases/softmax.h"

/* The kernels of tiles of scores, for bf16 and f16. */
template <auto BF16, auto F16>
static ordo_phase_kernel phase_scores_of(const ordo_cuda_pass *pass, int32_t)
{
    return { pass->f16 ? (const void *)F16 : (const void *)BF16, phase_shape<PHASE_KEYS>::BYTES };
}

template <phase_kind KIND, int N> static ordo_phase_kernel phase_product_wide(bool f16)
{
    return { f16 ? (const void *)phase_product<KIND, true, N>
                 : (const void *)phase_product<KIND, false, N>,
             phase_shape<N>::BYTES };
}

template <phase_kind KIND>
static ordo_phase_kernel phase_product_of(const ordo_cuda_pass *pass, int32_t columns)
{
    return ordo_phase_width(columns) == 192 ? phase_product_wide<KIND, 192>(pass->f16)
                                            : phase_product_wide<KIND, 256>(pass->f16);
}

template <int D, int DV, ordo_keep_source SOURCE, bool SEEN>
static ordo_phase_kernel phase_chain_from(bool f16)
{
    return { f16 ? (const void *)phase_chain<D, DV, true, SOURCE, SEEN>
                 : (const void *)phase_chain<D, DV, false, SOURCE, SEEN>,
             chain_shape<D, DV, SOURCE, SEEN>::BYTES };
}

template <int D, int DV, bool SEEN = false>
static ordo_phase_kernel phase_chain_of(const ordo_cuda_pass *pass, int32_t)
{
    const ordo_keep_source source = ordo_pass_keep_source(pass);
    return source == ORDO_KEEP_NONE    ? phase_chain_from<D, DV, ORDO_KEEP_NONE, SEEN>(pass->f16)
           : source == ORDO_KEEP_GIVEN ? phase_chain_from<D, DV, ORDO_KEEP_GIVEN, SEEN>(pass->f16)
                                       : phase_chain_from<D, DV, ORDO_KEEP_MADE, SEEN>(pass->f16);
}

#define ORDO_INSTANCE(NAME, ...)                                                                   \
    ordo_phase_kernel ordo_phases_##NAME(const ordo_cuda_pass *pass, int32_t columns)              \
    {                                                                                              \
        return __VA_ARGS__(pass, columns);                                                         \
    }

#endif
