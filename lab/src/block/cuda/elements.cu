/* elements.cu: seeded numbers, activations, residuals: one thread per four or eight elements. */
#include "block/cuda/parts.cuh"
#include "block/functions.h"
#include "block/random.h"

enum { THREADS = 256 };

static __global__ void fill_kernel(void *to, bool half, int64_t count, uint64_t seed,
                                   uint32_t tensor, float factor, float centre)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t g = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; 4 * g < count; g += step) {
        const block_numbers numbers = block_random(seed, tensor, (uint64_t)g);
        for (int i = 0; i < 4 && 4 * g + i < count; i++) {
            const float value = centre + factor * numbers.at[i];
            if (half)
                ((__nv_bfloat16 *)to)[4 * g + i] = __float2bfloat16_rn(value);
            else
                ((float *)to)[4 * g + i] = value;
        }
    }
}

ordo_status block_cuda_fill(void *to, ordo_dtype dtype, int64_t count, uint64_t seed,
                            uint32_t tensor, float factor, float centre, void *stream, char *why,
                            size_t n)
{
    fill_kernel<<<block_cuda_grid((count + 3) / 4, THREADS), THREADS, 0, (cudaStream_t)stream>>>(
        to, dtype == ORDO_BF16, count, seed, tensor, factor, centre);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

static __global__ void add_kernel(void *sum, const void *a, const void *b, int64_t eights)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t g = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; g < eights; g += step) {
        const eight x = load_eight(a, g), y = load_eight(b, g);
        eight s;
#pragma unroll
        for (int i = 0; i < 8; i++)
            s.at[i] = x.at[i] + y.at[i];
        store_eight(sum, g, s);
    }
}

ordo_status block_cuda_add(void *sum, const void *a, const void *b, int64_t count, void *stream,
                           char *why, size_t n)
{
    add_kernel<<<block_cuda_grid(count / 8, THREADS), THREADS, 0, (cudaStream_t)stream>>>(
        sum, a, b, count / 8);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

/* Group g of the result has columns of one row, because widths are multiples of 8. */
template <bool GATED>
static __global__ void activate_kernel(const void *u, void *out, int64_t groups, int64_t across)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t g = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; g < groups; g += step) {
        const int64_t first = GATED ? g + g / across * across : g;
        const eight x = load_eight(u, first);
        eight second = {}, result;
        float slope;
        if (GATED)
            second = load_eight(u, first + across);
#pragma unroll
        for (int i = 0; i < 8; i++)
            result.at[i] =
                GATED ? block_silu(x.at[i], &slope) * second.at[i] : block_gelu(x.at[i], &slope);
        store_eight(out, g, result);
    }
}

template <bool GATED>
static __global__ void activate_gradient_kernel(const void *u, const void *dg, void *du,
                                                int64_t groups, int64_t across)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t g = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; g < groups; g += step) {
        const int64_t first = GATED ? g + g / across * across : g;
        const eight x = load_eight(u, first), d = load_eight(dg, g);
        eight second = {}, dx, dsecond;
        if (GATED)
            second = load_eight(u, first + across);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float slope;
            const float value = GATED ? block_silu(x.at[i], &slope) : block_gelu(x.at[i], &slope);
            dsecond.at[i] = d.at[i] * value;
            dx.at[i] = d.at[i] * (GATED ? slope * second.at[i] : slope);
        }
        store_eight(du, first, dx);
        if (GATED)
            store_eight(du, first + across, dsecond);
    }
}

ordo_status block_cuda_activate(const block_activation *a, void *stream, char *why, size_t n)
{
    const int64_t across = a->width / 8, groups = a->rows * across;
    const auto kernel = a->gated ? activate_kernel<true> : activate_kernel<false>;
    kernel<<<block_cuda_grid(groups, THREADS), THREADS, 0, (cudaStream_t)stream>>>(a->u, a->g,
                                                                                   groups, across);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

ordo_status block_cuda_activate_gradient(const block_activation *a, void *stream, char *why,
                                         size_t n)
{
    const int64_t across = a->width / 8, groups = a->rows * across;
    const auto kernel = a->gated ? activate_gradient_kernel<true> : activate_gradient_kernel<false>;
    kernel<<<block_cuda_grid(groups, THREADS), THREADS, 0, (cudaStream_t)stream>>>(
        a->u, a->dg, a->du, groups, across);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}
