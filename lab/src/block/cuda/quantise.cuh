/* quantise.cuh: bf16 matrices as e4m3 with one scale per tensor, transposed on request.
 *
 * The largest magnitude is mapped to 448, the largest finite number of e4m3. Maxima do not depend
 * on the order in which they are taken, so the bits repeat. */
#ifndef BLOCK_CUDA_QUANTISE_CUH
#define BLOCK_CUDA_QUANTISE_CUH

#include <cuda_fp8.h>

#include "block/cuda/parts.cuh"

enum { QUANTISE_THREADS = 256, QUANTISE_TILE = 64, QUANTISE_STRIDE = QUANTISE_TILE + 16 };

/* *largest = bits of the largest magnitude; ordered as magnitudes are, with NaN above infinity. */
static __global__ void largest_kernel(const void *from, int64_t eights, uint32_t *largest)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    uint32_t most = 0;
    for (int64_t g = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; g < eights; g += step) {
        const eight e = load_eight(from, g);
#pragma unroll
        for (int i = 0; i < 8; i++)
            most = max(most, __float_as_uint(e.at[i]) & 0x7fffffffu);
    }
    most = __reduce_max_sync(0xffffffffu, most);
    if (threadIdx.x % 32 == 0)
        atomicMax(largest, most);
}

static __device__ __forceinline__ uint8_t to_e4m3(float x)
{
    return (uint8_t)__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

/* Factor into e4m3; thread 0 of the grid stores the one back. */
static __device__ __forceinline__ float scale_of(const uint32_t *largest, float *back, bool first)
{
    const float most = __uint_as_float(*largest);
    if (first)
        *back = most == 0 ? 1.0f : most / 448.0f;
    return most == 0 ? 1.0f : 448.0f / most;
}

static __global__ void quantise_kernel(const void *from, uint8_t *to, int64_t eights,
                                       const uint32_t *largest, float *back)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const float scale = scale_of(largest, back, blockIdx.x == 0 && threadIdx.x == 0);
    for (int64_t g = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; g < eights; g += step) {
        const eight e = load_eight(from, g);
        uint32_t words[2] = { 0, 0 };
#pragma unroll
        for (int i = 0; i < 8; i++)
            words[i / 4] |= (uint32_t)to_e4m3(e.at[i] * scale) << 8 * (i % 4);
        ((uint2 *)to)[g] = make_uint2(words[0], words[1]);
    }
}

/* `from` is rows x columns, `to` columns x rows; both multiples of 16. One block of threads per
 * tile of 64 x 64. */
static __global__ void quantise_transposed_kernel(const void *from, uint8_t *to, int64_t rows,
                                                  int64_t columns, const uint32_t *largest,
                                                  float *back)
{
    __shared__ __align__(16) uint8_t tile[QUANTISE_TILE][QUANTISE_STRIDE]; /* [column][row] */
    const int64_t row0 = (int64_t)blockIdx.y * QUANTISE_TILE;
    const int64_t column0 = (int64_t)blockIdx.x * QUANTISE_TILE;
    const float scale =
        scale_of(largest, back, blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0);
    for (int g = threadIdx.x; g < QUANTISE_TILE * QUANTISE_TILE / 8; g += QUANTISE_THREADS) {
        const int row = g / (QUANTISE_TILE / 8), column = g % (QUANTISE_TILE / 8) * 8;
        if (row0 + row >= rows || column0 + column >= columns)
            continue;
        const eight e = load_eight(from, ((row0 + row) * columns + column0 + column) / 8);
#pragma unroll
        for (int i = 0; i < 8; i++)
            tile[column + i][row] = to_e4m3(e.at[i] * scale);
    }
    __syncthreads();
    for (int g = threadIdx.x; g < QUANTISE_TILE * QUANTISE_TILE / 16; g += QUANTISE_THREADS) {
        const int column = g / (QUANTISE_TILE / 16), row = g % (QUANTISE_TILE / 16) * 16;
        if (row0 + row >= rows || column0 + column >= columns)
            continue;
        *(uint4 *)(to + (column0 + column) * rows + row0 + row) =
            *(const uint4 *)&tile[column][row];
    }
}

#endif
