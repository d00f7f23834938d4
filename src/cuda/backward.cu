/* backward.cu: the backward pass: row statistics, the chains, dQ to bf16. */
#include <cuda_runtime.h>

#include "cuda/backward_kernel.h"
#include "cuda/backward_rows.h"
#include "cuda/launch.h"

template <int D> static ordo_status launch(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    using Z = backward_shape<D>;
    ordo_backward_args args;
    int blocks = 0;
    CUDA_TRY(ordo_backward_arguments(pass, Z::ROWS, Z::KEYS, &args, &blocks, why, why_size));
    const cudaStream_t stream = (cudaStream_t)pass->stream;
    CUDA_CALL(cudaFuncSetAttribute(backward_kernel<D, ORDO_DQ_ORDERED>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, Z::BYTES));
    CUDA_TRY(ordo_backward_begin(pass, false, why, why_size));
    void *parameters[] = { &args };
    if (ordo_run_coresident(&pass->run)) /* refused, not hung, where the blocks do not fit */
        CUDA_CALL(cudaLaunchCooperativeKernel((const void *)backward_kernel<D, ORDO_DQ_ORDERED>,
                                              blocks, Z::THREADS, parameters, Z::BYTES, stream));
    else
        backward_kernel<D, ORDO_DQ_ORDERED><<<blocks, Z::THREADS, Z::BYTES, stream>>>(args);
    CUDA_CALL(cudaGetLastError());
    return ordo_backward_end(pass, why, why_size);
}

ordo_status ordo_sm90_backward(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return pass->head_dim == 64 ? launch<64>(pass, why, why_size)
                                : launch<128>(pass, why, why_size);
}
