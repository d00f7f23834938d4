/* streams.cu: the clock of the device, and a stream that waits. */
#include "block/cuda/keep.cuh"
#include "block/cuda/parts.cuh"

static __global__ void stamp_kernel(uint64_t *nanoseconds)
{
    *nanoseconds = now();
}

ordo_status block_cuda_stamp(uint64_t *nanoseconds, void *stream, char *why, size_t n)
{
    stamp_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(nanoseconds);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

ordo_status block_cuda_wait(void *stream, void *event, char *why, size_t n)
{
    CUDA_CALL(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
    return ORDO_OK;
}
