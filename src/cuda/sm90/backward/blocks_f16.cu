/* sm90/backward/blocks_f16.cu: the instances of the backward pass for block masks, f16. */
#include "cuda/sm90/backward/launch.h"
#include "cuda/sm90/backward/rows.h"

ordo_status ordo_backward_blocks_f16(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return backward_general<ORDO_DQ_ORDERED, true, true>(pass, why, why_size);
}
