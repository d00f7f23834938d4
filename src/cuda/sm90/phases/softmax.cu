/* sm90/phases/softmax.cu: P and lse of the forward pass by phases: the instances. */
#include "cuda/sm90/phases/softmax.h"

ordo_phase_kernel ordo_phase_softmax_kernel(bool f16)
{
    return { f16 ? (const void *)phase_softmax<true> : (const void *)phase_softmax<false>,
             phase_shape<PHASE_KEYS>::BYTES };
}
