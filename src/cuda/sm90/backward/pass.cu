/* sm90/backward/pass.cu: which instance of the chains runs a pass. */
#include "cuda/sm90/backward/pass.h"

#include <cuda_runtime.h>

#include "cuda/sm90/backward/instances.h"
#include "cuda/support/launch.h"
#include "cuda/support/sequences.h"
#include "cuda/support/statistics.h"
#include "cuda/support/tiles.h"

#define RUN(NAME)                                                                                  \
    (pass->f16 ? ordo_backward_##NAME##_f16(pass, why, why_size)                                   \
               : ordo_backward_##NAME##_bf16(pass, why, why_size))

ordo_status ordo_wgmma_backward_flash(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    if (ordo_backward_dense(pass) && !ordo_backward_usual_order(pass))
        return ordo_backward_any_order_bf16(pass, why, why_size);
    if (ordo_backward_dense(pass))
        return pass->carry.in || pass->carry.out ? RUN(carry) : RUN(dense);
    CUDA_TRY(ordo_cuda_sequences(pass, why, why_size));
    CUDA_TRY(ordo_cuda_tiles(pass, why, why_size));
    CUDA_TRY(ordo_cuda_clear_backward(pass, why, why_size));
    if (pass->blocks.start)
        return RUN(block_mask);
    if (!pass->dq.data)
        return RUN(keys);
    return pass->dk.data || pass->carry.out ? RUN(varlen) : RUN(queries);
}
