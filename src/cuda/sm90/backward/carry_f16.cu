/* sm90/backward/carry_f16.cu: plain passes that carry sums of dK and dV, f16. */
#include "cuda/sm90/backward/launch.h"
#include "cuda/sm90/backward/rows.h"

ordo_status ordo_backward_carry_f16(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return backward_plain_of<true, true>(pass, why, why_size);
}
