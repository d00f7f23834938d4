/* sm90/phases/chain.cu: dV, dK and dS of the backward pass by phases in one kernel: the choice, and
 * the instances for heads of up to 192 columns. */
#include "cuda/sm90/phases/chain.h"

ordo_phase_kernel ordo_phase_chain_kernel(const ordo_cuda_pass *pass)
{
    if (pass->head_dim > 192 || pass->v_head_dim > 192)
        return ordo_phase_chain_256_kernel(pass);
    return pass->v_head_dim <= 128 ? phase_chain_of<192, 128>(pass)
                                   : phase_chain_of<192, 192>(pass);
}
