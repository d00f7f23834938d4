/* phase/product_queries.cu: O and dQ of the passes by phases: the instances. */
#include "cuda/phase/product.h"

ordo_phase_kernel ordo_phase_queries_kernel(bool f16, int columns)
{
    return f16 ? phase_product_of<false, true>(columns) : phase_product_of<false, false>(columns);
}
