/* phase/chain.cu: dV, dK and dS of the backward pass by phases in one kernel: the instances. */
#include "cuda/phase/chain.h"

template <int DV> static ordo_phase_kernel chain_of(bool f16)
{
    return { f16 ? (const void *)phase_chain<PHASE_CHAIN_D, DV, true>
                 : (const void *)phase_chain<PHASE_CHAIN_D, DV, false>,
             chain_shape<PHASE_CHAIN_D, DV>::BYTES };
}

ordo_phase_kernel ordo_phase_chain_kernel(bool f16, int v_columns)
{
    return v_columns <= 128 ? chain_of<128>(f16) : chain_of<192>(f16);
}
