/* sm90/backward/keys.cu: the general instances of the backward pass for dK and dV alone, bf16. */
#include "cuda/sm90/backward/launch.h"
#include "cuda/sm90/backward/rows.h"

ordo_status ordo_backward_keys_bf16(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return backward_general<ORDO_DQ_NONE, false>(pass, why, why_size);
}
