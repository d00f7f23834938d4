/* backward.cu: the backward pass: row statistics, the chains, dQ to bf16. */
#include <cuda_runtime.h>

#include "cuda/backward_kernel.h"
#include "cuda/backward_rows.h"
#include "cuda/backward_wide_rows.h"
#include "cuda/launch.h"

template <int D, bool DROP>
static ordo_status launch(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    using Z = backward_shape<D, DROP>;
    ordo_backward_args args;
    int blocks = 0;
    CUDA_TRY(ordo_backward_arguments(pass, Z::ROWS, Z::KEYS, &args, &blocks, why, why_size));
    /* Chains that wait for each other: refused, not hung, where the blocks do not fit. */
    const bool together = ordo_run_coresident(&pass->run) > 0;
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES,
                                  together ? ORDO_LAUNCH_TOGETHER : ORDO_LAUNCH_EARLY };
    CUDA_TRY(ordo_backward_begin(pass, false, why, why_size));
    CUDA_TRY(ordo_cuda_launch((const void *)backward_kernel<D, ORDO_DQ_ORDERED, DROP>, &args, grid,
                              pass->stream, why, why_size));
    return ordo_backward_end(pass, !together, why, why_size);
}

ordo_status ordo_sm90_backward(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    if (pass->bucket == 256)
        return ordo_sm90_backward_wide(pass, why, why_size);
    if (pass->keep_scale > 0.0f)
        return pass->head_dim == 64 ? launch<64, true>(pass, why, why_size)
                                    : launch<128, true>(pass, why, why_size);
    return pass->head_dim == 64 ? launch<64, false>(pass, why, why_size)
                                : launch<128, false>(pass, why, why_size);
}
