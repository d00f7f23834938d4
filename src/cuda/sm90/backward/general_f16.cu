/* sm90/backward/general_f16.cu: the general instances of the backward pass, f16. */
#include "cuda/sm90/backward/launch.h"
#include "cuda/sm90/backward/rows.h"

ordo_status ordo_backward_general_f16(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return backward_general<ORDO_DQ_ORDERED, true>(pass, why, why_size);
}
