/* sm90/phases/product_outputs.cu: O of the forward pass by phases: the instances. */
#include "cuda/sm90/phases/product.h"

ordo_phase_kernel ordo_phase_outputs_kernel(bool f16, int columns)
{
    return f16 ? phase_product_of<PHASE_OUTPUTS, true>(columns)
               : phase_product_of<PHASE_OUTPUTS, false>(columns);
}
