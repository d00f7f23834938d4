/* phase/scores.cu: P, and dS, of the passes by phases: the instances. */
#include "cuda/phase/scores.h"

template <bool F16> static const void *scores_of(bool backward)
{
    return backward ? (const void *)phase_scores<F16, true>
                    : (const void *)phase_scores<F16, false>;
}

ordo_phase_kernel ordo_phase_scores_kernel(bool f16, bool backward)
{
    return { f16 ? scores_of<true>(backward) : scores_of<false>(backward),
             phase_shape<PHASE_KEYS>::BYTES };
}
