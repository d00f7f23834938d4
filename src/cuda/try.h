/* try.h: forward a failure of the CUDA runtime as status and reason. */
#ifndef CUDA_TRY_H
#define CUDA_TRY_H

#include "ordo/status.h"

#include <cuda_runtime.h>
#include <stdio.h>

static inline ordo_status ordo_cuda_fail(cudaError_t error, const char *call, char *why,
                                         size_t why_size)
{
    snprintf(why, why_size, "%s: %s", call, cudaGetErrorString(error));
    return ORDO_ERR_DEVICE;
}

/* In a function with `why` and `why_size`: leave it if a call of the runtime fails. */
#define ORDO_CUDA_TRY(call)                                                                        \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess)                                                                 \
            return ordo_cuda_fail(error_, #call, why, why_size);                                   \
    } while (0)

#endif
