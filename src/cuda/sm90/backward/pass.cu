/* sm90/backward/pass.cu: which instance of the chains runs a pass. */
#include "cuda/sm90/passes.h"

#include <cuda_runtime.h>

#include "cuda/sm90/backward/bias.h"
#include "cuda/sm90/backward/instances.h"
#include "cuda/sm90/backward/rows.h"
#include "cuda/support/around.h"
#include "cuda/support/launch.h"
#include "cuda/support/sequences.h"
#include "cuda/support/statistics.h"

#define INSTANCE(NAME)                                                                             \
    (pass->f16 ? ordo_backward_##NAME##_f16(bucket, source)                                        \
               : ordo_backward_##NAME##_bf16(bucket, source))

static ordo_backward_instance instance_of(const ordo_cuda_pass *pass)
{
    const int32_t bucket = ordo_pass_bucket(pass);
    const ordo_keep_source source = ordo_pass_keep_source(pass);
    if (ordo_backward_dense(pass) && !ordo_backward_usual_order(pass))
        return ordo_backward_any_order_bf16(bucket, source);
    if (ordo_backward_dense(pass))
        return pass->carry.in || pass->carry.out ? INSTANCE(carry) : INSTANCE(dense);
    if (pass->bias.data)
        return bucket == 128 && source == ORDO_KEEP_NONE && ordo_cuda_bias_maps(pass)
                   ? INSTANCE(bias_staged)
                   : INSTANCE(bias);
    if (pass->blocks.bits)
        return INSTANCE(seen);
    if (pass->blocks.start)
        return INSTANCE(block_mask);
    if (!pass->dq.data)
        return INSTANCE(keys);
    return pass->dk.data || pass->carry.out ? INSTANCE(varlen) : INSTANCE(queries);
}

ordo_status ordo_wgmma_backward_flash(const ordo_cuda_pass *pass)
{
    if (!ordo_backward_dense(pass)) {
        CUDA_TRY(ordo_cuda_sequences(pass, 0));
        CUDA_TRY(ordo_cuda_tiles(pass));
        CUDA_TRY(ordo_cuda_clear_backward(pass));
    }
    if (pass->dq.data || pass->dk.data || pass->carry.out)
        CUDA_TRY(ordo_backward_run(pass, instance_of(pass)));
    else /* the gradient of a bias alone */
        CUDA_TRY(ordo_backward_begin(pass, false));
    return pass->bias.grad ? ordo_backward_bias(pass) : ORDO_OK;
}
