/* sm90/phases/chain_256.cu: the same for heads of 193 to 256 columns: the instances. */
#include "cuda/sm90/phases/chain.h"

ordo_phase_kernel ordo_phase_chain_256_kernel(bool f16, int v_columns)
{
    return v_columns <= 128 ? phase_chain_of<256, 128>(f16)
                            : phase_chain_of<ORDO_CHAIN_D, ORDO_CHAIN_D>(f16);
}
