/* sm90/backward/carry.cu: plain passes that carry sums of dK and dV, bf16. */
#include "cuda/sm90/backward/launch.h"
#include "cuda/sm90/backward/rows.h"

ordo_status ordo_backward_carry_bf16(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return backward_plain_of<false, true>(pass, why, why_size);
}
