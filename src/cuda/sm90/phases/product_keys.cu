/* sm90/phases/product_keys.cu: dV and dK of the backward pass by phases: the instances. */
#include "cuda/sm90/phases/product.h"

ordo_phase_kernel ordo_phase_keys_kernel(bool f16, int columns)
{
    return f16 ? phase_product_of<PHASE_BY_KEYS, true>(columns)
               : phase_product_of<PHASE_BY_KEYS, false>(columns);
}
