/* norms.cu: norms, one block of threads per row; gains are summed over chunks of rows, and the
 * chunks in order. Every sum has a fixed tree, so that repeated passes give the same bits. */
#include "block/cuda/parts.cuh"
#include "block/functions.h"

enum { THREADS = 256, WARPS = THREADS / 32, CHUNKS = 64 };

/* Sum over the threads of a block; every thread gets it. */
static __device__ float sum_block(float value)
{
    __shared__ float of_warp[WARPS];
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, lane);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += of_warp[w];
    return sum;
}

static __global__ void norm_kernel(block_norm norm)
{
    const int64_t across = norm.columns / 8, first = blockIdx.x * across;
    float squares = 0;
    for (int64_t g = threadIdx.x; g < across; g += THREADS) {
        const eight x = load_eight(norm.x, first + g);
#pragma unroll
        for (int i = 0; i < 8; i++)
            squares += x.at[i] * x.at[i];
    }
    const float mean = sum_block(squares) / (float)norm.columns;
    const float factor = 1.0f / __fsqrt_rn(mean + ORDO_BLOCK_NORM_EPSILON);
    if (threadIdx.x == 0)
        norm.factor[blockIdx.x] = factor;
    for (int64_t g = threadIdx.x; g < across; g += THREADS) {
        eight x = load_eight(norm.x, first + g);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x.at[i] = x.at[i] * factor * norm.gain[8 * g + i];
        store_eight(norm.y, first + g, x);
    }
}

ordo_status block_cuda_norm(const block_norm *norm, void *stream, char *why, size_t n)
{
    norm_kernel<<<(unsigned)norm->rows, THREADS, 0, (cudaStream_t)stream>>>(*norm);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

static __global__ void gradient_rows_kernel(block_norm_gradient norm)
{
    const int64_t across = norm.columns / 8, first = blockIdx.x * across;
    const float factor = norm.factor[blockIdx.x];
    float product = 0;
    for (int64_t g = threadIdx.x; g < across; g += THREADS) {
        const eight x = load_eight(norm.x, first + g), dy = load_eight(norm.dy, first + g);
#pragma unroll
        for (int i = 0; i < 8; i++)
            product += norm.gain[8 * g + i] * dy.at[i] * x.at[i];
    }
    const float shrink = factor * factor * factor / (float)norm.columns * sum_block(product);
    for (int64_t g = threadIdx.x; g < across; g += THREADS) {
        const eight x = load_eight(norm.x, first + g), dy = load_eight(norm.dy, first + g);
        eight dx = load_eight(norm.add, first + g);
#pragma unroll
        for (int i = 0; i < 8; i++)
            dx.at[i] += factor * norm.gain[8 * g + i] * dy.at[i] - x.at[i] * shrink;
        store_eight(norm.dx, first + g, dx);
    }
}

/* One thread per two columns; blockIdx.y is the chunk of rows. */
static __global__ void gradient_columns_kernel(block_norm_gradient norm, float *partials)
{
    const int64_t pair = blockIdx.x * (int64_t)THREADS + threadIdx.x, pairs = norm.columns / 2;
    const int64_t from = norm.rows * blockIdx.y / CHUNKS,
                  to = norm.rows * (blockIdx.y + 1) / CHUNKS;
    float first = 0, second = 0;
    if (pair >= pairs)
        return;
    for (int64_t row = from; row < to; row++) {
        const uint32_t x = ((const uint32_t *)norm.x)[row * pairs + pair];
        const uint32_t dy = ((const uint32_t *)norm.dy)[row * pairs + pair];
        const float factor = norm.factor[row];
        first += __uint_as_float(dy << 16) * (__uint_as_float(x << 16) * factor);
        second += __uint_as_float(dy & 0xffff0000u) * (__uint_as_float(x & 0xffff0000u) * factor);
    }
    partials[blockIdx.y * norm.columns + 2 * pair] = first;
    partials[blockIdx.y * norm.columns + 2 * pair + 1] = second;
}

static __global__ void add_chunks_kernel(float *dgain, const float *partials, int64_t columns)
{
    const int64_t column = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    float sum = 0;
    if (column >= columns)
        return;
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        sum += partials[chunk * columns + column];
    dgain[column] = sum;
}

ordo_status block_cuda_norm_gradient(block_cuda *c, const block_norm_gradient *norm, void *stream,
                                     char *why, size_t n)
{
    const cudaStream_t s = (cudaStream_t)stream;
    float *partials = NULL;
    const ordo_status status = block_cuda_partials(
        c, (size_t)(CHUNKS * norm->columns) * sizeof *partials, &partials, why, n);
    if (status != ORDO_OK)
        return status;
    const dim3 grid((unsigned)((norm->columns / 2 + THREADS - 1) / THREADS), CHUNKS);
    gradient_columns_kernel<<<grid, THREADS, 0, s>>>(*norm, partials);
    CUDA_CALL(cudaGetLastError());
    add_chunks_kernel<<<(unsigned)((norm->columns + THREADS - 1) / THREADS), THREADS, 0, s>>>(
        norm->dgain, partials, norm->columns);
    CUDA_CALL(cudaGetLastError());
    gradient_rows_kernel<<<(unsigned)norm->rows, THREADS, 0, s>>>(*norm);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}
