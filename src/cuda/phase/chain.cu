/* phase/chain.cu: dV, dK and dS of the backward pass by phases in one kernel: the instances. */
#include "cuda/phase/chain.h"

ordo_phase_kernel ordo_phase_chain_kernel(bool f16)
{
    return { f16 ? (const void *)phase_chain<PHASE_CHAIN_D, PHASE_CHAIN_DV, true>
                 : (const void *)phase_chain<PHASE_CHAIN_D, PHASE_CHAIN_DV, false>,
             chain_shape<PHASE_CHAIN_D, PHASE_CHAIN_DV>::BYTES };
}
