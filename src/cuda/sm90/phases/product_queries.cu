/* sm90/phases/product_queries.cu: dQ of the backward pass by phases: the instances. */
#include "cuda/sm90/phases/product.h"

ordo_phase_kernel ordo_phase_queries_kernel(bool f16, int columns)
{
    return f16 ? phase_product_of<PHASE_QUERIES, true>(columns)
               : phase_product_of<PHASE_QUERIES, false>(columns);
}
