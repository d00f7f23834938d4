/* sm90/backward/pass.cu: which instance of the chains runs a pass. The plain ones are here. */
#include "cuda/sm90/backward/pass.h"

#include <cuda_runtime.h>

#include "cuda/sm90/backward/launch.h"
#include "cuda/support/sequences.h"
#include "cuda/support/tiles.h"

static ordo_status backward_any_order(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return ordo_pass_bucket(pass) == 64
               ? backward_launch<64, ORDO_DQ_ANY_ORDER, ORDO_KEEP_NONE, false, false>(pass, why,
                                                                                      why_size)
               : backward_launch<128, ORDO_DQ_ANY_ORDER, ORDO_KEEP_NONE, false, false>(pass, why,
                                                                                       why_size);
}

ordo_status ordo_wgmma_backward_flash(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    if (!ordo_backward_plain(pass)) {
        CUDA_TRY(ordo_cuda_sequences(pass, why, why_size));
        CUDA_TRY(ordo_cuda_tiles(pass, why, why_size));
        CUDA_TRY(ordo_cuda_clear_backward(pass, why, why_size));
        if (pass->blocks.start)
            return pass->f16 ? ordo_backward_blocks_f16(pass, why, why_size)
                             : ordo_backward_blocks_bf16(pass, why, why_size);
        if (!pass->dq.data)
            return pass->f16 ? ordo_backward_keys_f16(pass, why, why_size)
                             : ordo_backward_keys_bf16(pass, why, why_size);
        if (!pass->dk.data && !pass->carry.out)
            return pass->f16 ? ordo_backward_queries_f16(pass, why, why_size)
                             : ordo_backward_queries_bf16(pass, why, why_size);
        return pass->f16 ? ordo_backward_general_f16(pass, why, why_size)
                         : ordo_backward_general_bf16(pass, why, why_size);
    }
    if (!ordo_backward_usual_order(pass))
        return backward_any_order(pass, why, why_size);
    if (pass->carry.in || pass->carry.out)
        return pass->f16 ? ordo_backward_carry_f16(pass, why, why_size)
                         : ordo_backward_carry_bf16(pass, why, why_size);
    return pass->f16 ? backward_plain_of<true, false>(pass, why, why_size)
                     : backward_plain_of<false, false>(pass, why, why_size);
}
