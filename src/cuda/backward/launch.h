/* backward/launch.h: one instance of the backward pass: row statistics, the chains, dQ. */
#ifndef CUDA_BACKWARD_LAUNCH_H
#define CUDA_BACKWARD_LAUNCH_H

#include "cuda/backward/kernel.h"
#include "cuda/backward/rows.h"
#include "cuda/common/launch.h"

template <int D, int MODE, int DROP, bool GENERAL, bool F16>
static ordo_status backward_launch(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    using Z = backward_shape<D, DROP, GENERAL>;
    ordo_backward_args args;
    int blocks = 0;
    CUDA_TRY(ordo_backward_arguments(pass, Z::ROWS, Z::KEYS, &args, &blocks, why, why_size));
    /* Chains that wait for each other: refused, not hung, where the blocks do not fit. */
    const bool together = ordo_run_coresident(&pass->run) > 0;
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES,
                                  together ? ORDO_LAUNCH_TOGETHER : ORDO_LAUNCH_EARLY };
    CUDA_TRY(ordo_backward_begin(pass, false, why, why_size));
    CUDA_TRY(ordo_cuda_launch((const void *)backward_kernel<D, MODE, DROP, GENERAL, F16>, &args,
                              grid, pass->stream, why, why_size));
    return ordo_backward_end(pass, !together, why, why_size);
}

/* Buckets 64 and 128, all kinds of dropout. */
template <int MODE, bool F16>
static ordo_status backward_general(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    const bool narrow = pass->bucket == 64;
    if (!(pass->keep_scale > 0.0f))
        return narrow ? backward_launch<64, MODE, 0, true, F16>(pass, why, why_size)
                      : backward_launch<128, MODE, 0, true, F16>(pass, why, why_size);
    if (pass->keep_bits)
        return narrow ? backward_launch<64, MODE, 1, true, F16>(pass, why, why_size)
                      : backward_launch<128, MODE, 1, true, F16>(pass, why, why_size);
    return narrow ? backward_launch<64, MODE, 2, true, F16>(pass, why, why_size)
                  : backward_launch<128, MODE, 2, true, F16>(pass, why, why_size);
}

#endif
