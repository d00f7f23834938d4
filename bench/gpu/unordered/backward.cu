/* backward.cu: the backward pass with dQ partials added as they come: a row of attention_h200.
 *
 * Takes the place of src/cuda/sm90/backward/pass.cu in a module that is not part of the product:
 * the same kernel without turns, after dQ sums were cleared. What order costs is measured against
 * it.
 */
#include <cuda_runtime.h>
#include <stdio.h>

#include "cuda/sm90/backward/kernel.h"
#include "cuda/sm90/backward/rows.h"
#include "cuda/sm90/passes.h"
#include "cuda/support/launch.h"

template <int D> static ordo_status launch(const ordo_cuda_pass *pass)
{
    using Z = backward_shape<D, ORDO_KEEP_NONE>;
    ordo_backward_args args;
    int blocks = 0;
    CUDA_TRY(ordo_backward_arguments(pass, Z::ROWS, Z::KEYS, &args, &blocks));
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES, ORDO_LAUNCH_EARLY };
    CUDA_TRY(ordo_backward_begin(pass, true));
    CUDA_TRY(ordo_cuda_launch((const void *)backward_kernel<D, ORDO_DQ_UNORDERED, ORDO_KEEP_NONE>,
                              &args, grid, pass->stream));
    return ordo_backward_end(pass, false); /* nobody counts turns to wait for */
}

ordo_status ordo_wgmma_backward_flash(const ordo_cuda_pass *pass)
{
    if (pass->f16 || pass->keep_scale > 0.0f || !ordo_backward_dense(pass) ||
        !ordo_backward_usual_order(pass))
        return ordo_cuda_fail(ORDO_ERR_UNSUPPORTED,
                              "a pass that is not dense: the kernel without turns runs no other");
    return pass->head_dim == 64 ? launch<64>(pass) : launch<128>(pass);
}
