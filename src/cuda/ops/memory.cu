/* ops/memory.cu: calls the CUDA runtime for memory, streams and events. */
#include "cuda/ops/ops.h"

#include "cuda/support/launch.h"

ordo_status ordo_cuda_alloc(void **memory, size_t bytes)
{
    const cudaError_t error = cudaMalloc(memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* or the next launch would report it */
        return ordo_cuda_fail(ORDO_ERR_MEMORY,
                              "%zu bytes of device memory: there is not enough left", bytes);
    }
    return ordo_cuda_status(error, "cudaMalloc");
}

ordo_status ordo_cuda_free(void *memory)
{
    CUDA_CALL(cudaFree(memory));
    return ORDO_OK;
}

ordo_status ordo_cuda_copy(void *to, const void *from, size_t bytes, void *stream)
{
    CUDA_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream));
    CUDA_CALL(cudaStreamSynchronize((cudaStream_t)stream));
    return ORDO_OK;
}

ordo_status ordo_cuda_fill(void *memory, int byte, size_t bytes, void *stream)
{
    CUDA_CALL(cudaMemsetAsync(memory, byte, bytes, (cudaStream_t)stream));
    return ORDO_OK;
}

static __global__ void set_words(uint32_t *to, uint32_t word, size_t count)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step)
        to[i] = word;
}

ordo_status ordo_cuda_fill_words(void *memory, uint32_t word, size_t count, void *stream)
{
    const size_t blocks = (count + 255) / 256;
    set_words<<<(unsigned)(blocks < 1024 ? blocks : 1024), 256, 0, (cudaStream_t)stream>>>(
        (uint32_t *)memory, word, count);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

/* The first 16 * wide bytes as uint4, the rest byte by byte. */
static __global__ void compare(const uint8_t *a, const uint8_t *b, size_t bytes, size_t wide,
                               int *differ)
{
    const size_t first = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    const size_t step = (size_t)gridDim.x * blockDim.x;
    bool found = false;
    for (size_t i = first; i < wide; i += step) {
        const uint4 x = ((const uint4 *)a)[i], y = ((const uint4 *)b)[i];
        found |= x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w;
    }
    for (size_t i = 16 * wide + first; i < bytes; i += step)
        found |= a[i] != b[i];
    if (found)
        *differ = 1;
}

static ordo_status compare_with(int *differ, const void *a, const void *b, size_t bytes,
                                cudaStream_t stream, bool *equal)
{
    const bool aligned = ((uintptr_t)a | (uintptr_t)b) % 16 == 0;
    int found = 0;
    CUDA_CALL(cudaMemsetAsync(differ, 0, sizeof *differ, stream));
    compare<<<1024, 256, 0, stream>>>((const uint8_t *)a, (const uint8_t *)b, bytes,
                                      aligned ? bytes / 16 : 0, differ);
    CUDA_CALL(cudaGetLastError());
    CUDA_CALL(cudaMemcpyAsync(&found, differ, sizeof found, cudaMemcpyDefault, stream));
    CUDA_CALL(cudaStreamSynchronize(stream));
    *equal = !found;
    return ORDO_OK;
}

ordo_status ordo_cuda_equal(const void *a, const void *b, size_t bytes, void *stream, bool *equal)
{
    int *differ = NULL;
    CUDA_CALL(cudaMallocAsync((void **)&differ, sizeof *differ, (cudaStream_t)stream));
    const ordo_status status = compare_with(differ, a, b, bytes, (cudaStream_t)stream, equal);
    (void)cudaFreeAsync(differ, (cudaStream_t)stream);
    return status;
}

ordo_status ordo_cuda_stream_create(void **stream)
{
    CUDA_CALL(cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
    return ORDO_OK;
}

ordo_status ordo_cuda_stream_destroy(void *stream)
{
    CUDA_CALL(cudaStreamDestroy((cudaStream_t)stream));
    return ORDO_OK;
}

ordo_status ordo_cuda_synchronise(void *stream)
{
    CUDA_CALL(cudaStreamSynchronize((cudaStream_t)stream));
    return ORDO_OK;
}

ordo_status ordo_cuda_event_create(void **event)
{
    CUDA_CALL(cudaEventCreate((cudaEvent_t *)event));
    return ORDO_OK;
}

ordo_status ordo_cuda_event_destroy(void *event)
{
    CUDA_CALL(cudaEventDestroy((cudaEvent_t)event));
    return ORDO_OK;
}

ordo_status ordo_cuda_event_record(void *event, void *stream)
{
    CUDA_CALL(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
    return ORDO_OK;
}

ordo_status ordo_cuda_event_wait(void *stream, void *event)
{
    CUDA_CALL(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
    return ORDO_OK;
}

ordo_status ordo_cuda_event_elapsed(void *from, void *to, double *seconds)
{
    float milliseconds = 0;
    CUDA_CALL(cudaEventSynchronize((cudaEvent_t)to));
    CUDA_CALL(cudaEventElapsedTime(&milliseconds, (cudaEvent_t)from, (cudaEvent_t)to));
    *seconds = milliseconds * 1e-3;
    return ORDO_OK;
}
