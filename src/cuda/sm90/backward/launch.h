/* sm90/backward/launch.h: launches one instance of the backward pass: row statistics, the chains,
 * dQ. What the lines of sm90/backward/instances.h call. */
#ifndef CUDA_SM90_BACKWARD_LAUNCH_H
#define CUDA_SM90_BACKWARD_LAUNCH_H

#include "cuda/sm90/backward/instances.h"
#include "cuda/sm90/backward/kernel.h"
#include "cuda/sm90/backward/rows.h"
#include "cuda/support/launch.h"

template <int D, int MODE, ordo_keep_source SOURCE, bool VARLEN, bool F16, bool CARRY = VARLEN,
          bool BLOCKS = false>
static ordo_status backward_launch(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    using Z = backward_shape<D, SOURCE, VARLEN, BLOCKS>;
    ordo_backward_args args = {};
    int blocks = 0;
    CUDA_TRY(ordo_backward_arguments(pass, Z::ROWS, Z::KEYS, &args, &blocks, why, why_size));
    /* Chains that wait for each other: the launch fails if the blocks cannot all be resident. */
    const bool together = ordo_run_coresident(&pass->run) > 0;
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES,
                                  together ? ORDO_LAUNCH_TOGETHER : ORDO_LAUNCH_EARLY };
    CUDA_TRY(ordo_backward_begin(pass, false, why, why_size));
    const void *const kernel =
        (const void *)backward_kernel<D, MODE, SOURCE, VARLEN, F16, CARRY, BLOCKS>;
    CUDA_TRY(ordo_cuda_launch(kernel, &args, grid, pass->stream, why, why_size));
    return ordo_backward_end(pass, !together, why, why_size);
}

/* Dense passes. Those that carry sums do not make bits: ordo_backward_dense(). */
template <int D, bool F16, bool CARRY>
static ordo_status backward_dense(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    if constexpr (!CARRY)
        if (ordo_pass_keep_source(pass) == ORDO_KEEP_MADE)
            return backward_launch<D, ORDO_DQ_ORDERED, ORDO_KEEP_MADE, false, F16>(pass, why,
                                                                                   why_size);
    if (ordo_pass_keep_source(pass) == ORDO_KEEP_GIVEN)
        return backward_launch<D, ORDO_DQ_ORDERED, ORDO_KEEP_GIVEN, false, F16, CARRY>(pass, why,
                                                                                       why_size);
    return backward_launch<D, ORDO_DQ_ORDERED, ORDO_KEEP_NONE, false, F16, CARRY>(pass, why,
                                                                                  why_size);
}

template <bool F16, bool CARRY>
static ordo_status backward_dense_of(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return ordo_pass_bucket(pass) == 64 ? backward_dense<64, F16, CARRY>(pass, why, why_size)
                                        : backward_dense<128, F16, CARRY>(pass, why, why_size);
}

/* Dense passes without dropout, in every order. */
template <bool F16>
static ordo_status backward_any_order(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return ordo_pass_bucket(pass) == 64
               ? backward_launch<64, ORDO_DQ_ANY_ORDER, ORDO_KEEP_NONE, false, F16>(pass, why,
                                                                                    why_size)
               : backward_launch<128, ORDO_DQ_ANY_ORDER, ORDO_KEEP_NONE, false, F16>(pass, why,
                                                                                     why_size);
}

/* A bucket, all kinds of dropout. */
template <int D, int MODE, bool F16, bool BLOCKS>
static ordo_status backward_sources(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    const bool carry = MODE != ORDO_DQ_ALONE; /* dQ has no sums to carry */
    const ordo_keep_source source = ordo_pass_keep_source(pass);
    if (source == ORDO_KEEP_NONE)
        return backward_launch<D, MODE, ORDO_KEEP_NONE, true, F16, carry, BLOCKS>(pass, why,
                                                                                  why_size);
    if (source == ORDO_KEEP_GIVEN)
        return backward_launch<D, MODE, ORDO_KEEP_GIVEN, true, F16, carry, BLOCKS>(pass, why,
                                                                                   why_size);
    return backward_launch<D, MODE, ORDO_KEEP_MADE, true, F16, carry, BLOCKS>(pass, why, why_size);
}

/* Buckets 64 and 128. */
template <int MODE, bool F16, bool BLOCKS = false>
static ordo_status backward_varlen(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return ordo_pass_bucket(pass) == 64
               ? backward_sources<64, MODE, F16, BLOCKS>(pass, why, why_size)
               : backward_sources<128, MODE, F16, BLOCKS>(pass, why, why_size);
}

#define ORDO_INSTANCE(NAME, ...)                                                                   \
    ordo_status ordo_backward_##NAME(const ordo_cuda_pass *pass, char *why, size_t why_size)       \
    {                                                                                              \
        return __VA_ARGS__(pass, why, why_size);                                                   \
    }

#endif
