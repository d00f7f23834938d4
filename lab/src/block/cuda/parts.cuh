/* parts.cuh: what the files of the module share. */
#ifndef BLOCK_CUDA_PARTS_CUH
#define BLOCK_CUDA_PARTS_CUH

#include <cstdio>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "block/cuda/module.h"

/* Leave the function with a message if a call of the runtime fails. */
#define CUDA_CALL(call)                                                                            \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess)                                                                 \
            return block_cuda_failed(error_, #call, why, n);                                       \
    } while (0)

static inline ordo_status block_cuda_failed(cudaError_t error, const char *what, char *why,
                                            size_t n)
{
    (void)cudaGetLastError(); /* or the next launch would report it */
    snprintf(why, n, "%s: %s", what, cudaGetErrorString(error));
    return error == cudaErrorMemoryAllocation ? ORDO_ERR_MEMORY : ORDO_ERR_DEVICE;
}

/* Blocks of a grid whose threads walk over `count` items. */
static inline unsigned block_cuda_grid(int64_t count, int threads)
{
    const int64_t blocks = (count + threads - 1) / threads;
    return (unsigned)(blocks < 8192 ? blocks : 8192);
}

/* product.cu */
ordo_status block_cuda_open(block_cuda **c, const block_cuda_options *options, char *why, size_t n);
void block_cuda_close(block_cuda *c);
void block_cuda_forget(block_cuda *c);
ordo_status block_cuda_multiply(block_cuda *c, const block_product *p, void *stream, char *why,
                                size_t n);
void block_cuda_describe(const block_cuda *c, int id, char *text, size_t n);

/* Memory for partial sums of norm gradients, kept until close. */
ordo_status block_cuda_partials(block_cuda *c, size_t bytes, float **memory, char *why, size_t n);

/* elements.cu */
ordo_status block_cuda_fill(void *to, ordo_dtype dtype, int64_t count, uint64_t seed,
                            uint32_t tensor, float factor, float centre, void *stream, char *why,
                            size_t n);
ordo_status block_cuda_activate(const block_activation *a, void *stream, char *why, size_t n);
ordo_status block_cuda_activate_gradient(const block_activation *a, void *stream, char *why,
                                         size_t n);
ordo_status block_cuda_add(void *sum, const void *a, const void *b, int64_t count, void *stream,
                           char *why, size_t n);

/* norms.cu */
ordo_status block_cuda_norm(const block_norm *norm, void *stream, char *why, size_t n);
ordo_status block_cuda_norm_gradient(block_cuda *c, const block_norm_gradient *norm, void *stream,
                                     char *why, size_t n);

/* streams.cu */
ordo_status block_cuda_stamp(uint64_t *nanoseconds, void *stream, char *why, size_t n);
ordo_status block_cuda_wait(void *stream, void *event, char *why, size_t n);

/* Eight bf16 elements, moved as 16 bytes. */
struct eight {
    float at[8];
};

static __device__ __forceinline__ eight load_eight(const void *from, int64_t index)
{
    const uint4 raw = ((const uint4 *)from)[index];
    const uint32_t words[4] = { raw.x, raw.y, raw.z, raw.w };
    eight e;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        e.at[2 * i] = __uint_as_float(words[i] << 16);
        e.at[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
    return e;
}

static __device__ __forceinline__ void store_eight(void *to, int64_t index, const eight &e)
{
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(e.at[2 * i], e.at[2 * i + 1]);
        memcpy(&words[i], &pair, sizeof pair);
    }
    ((uint4 *)to)[index] = make_uint4(words[0], words[1], words[2], words[3]);
}

#endif
