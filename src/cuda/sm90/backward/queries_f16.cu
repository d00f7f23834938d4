/* sm90/backward/queries_f16.cu: the general instances of the backward pass for dQ alone, f16. */
#include "cuda/sm90/backward/launch.h"
#include "cuda/sm90/backward/rows.h"

ordo_status ordo_backward_queries_f16(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return backward_general<ORDO_DQ_ALONE, true>(pass, why, why_size);
}
