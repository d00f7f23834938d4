/* sm90/phases/product_turned.cu: dQ of the backward pass by phases from dS^T: the instances. */
#include "cuda/sm90/phases/product.h"

ordo_phase_kernel ordo_phase_turned_kernel(bool f16, int columns)
{
    return f16 ? phase_product_of<PHASE_TURNED, true>(columns)
               : phase_product_of<PHASE_TURNED, false>(columns);
}
