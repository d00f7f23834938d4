/* sm90/phases/chain_256.cu: the same for heads of 193 to 256 columns: the instances. */
#include "cuda/sm90/phases/chain.h"

ordo_phase_kernel ordo_phase_chain_256_kernel(const ordo_cuda_pass *pass)
{
    return pass->v_head_dim <= 128 ? phase_chain_of<256, 128>(pass)
                                   : phase_chain_of<ORDO_CHAIN_D, ORDO_CHAIN_D>(pass);
}
