/* sm90/phases/scores.cu: P and dS of the backward pass by phases: the instances. */
#include "cuda/sm90/phases/scores.h"

ordo_phase_kernel ordo_phase_scores_kernel(bool f16)
{
    return { f16 ? (const void *)phase_scores<true> : (const void *)phase_scores<false>,
             phase_shape<PHASE_KEYS>::BYTES };
}
