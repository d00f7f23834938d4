/* sm90/phases/chain.cu: dV, dK and dS of the backward pass by phases in one kernel: the choice, and
 * the instances for heads of up to 192 columns. */
#include "cuda/sm90/phases/chain.h"

ordo_phase_kernel ordo_phase_chain_kernel(bool f16, int columns, int v_columns)
{
    if (columns > 192 || v_columns > 192)
        return ordo_phase_chain_256_kernel(f16, v_columns);
    return v_columns <= 128 ? phase_chain_of<192, 128>(f16) : phase_chain_of<192, 192>(f16);
}
