/* bits.cu: generators of keep bits that libordo does not have, and the clock of the device. */
#include "base/keep.h"
#include "block/cuda/parts.cuh"

static __device__ __forceinline__ uint64_t now(void)
{
    uint64_t nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

/* ---- 32 bits per element, compared one by one ---- */

/* The keys of all rounds, computed on the host. */
struct round_keys {
    uint32_t at[20];
};

template <int ROUNDS>
static __global__ void compare_kernel(uint32_t *words, uint64_t count, round_keys keys,
                                      uint32_t offset, uint32_t limit)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t w = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; w < count; w += step) {
        uint32_t kept = 0;
#pragma unroll
        for (uint32_t d = 0; d < 8; d++) {
            const uint64_t counter = w * 8 + d;
            uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = offset, c3 = 0;
#pragma unroll
            for (int r = 0; r < ROUNDS; r++) {
                const uint64_t p0 = (uint64_t)ORDO_PHILOX_M0 * c0;
                const uint64_t p1 = (uint64_t)ORDO_PHILOX_M1 * c2;
                c0 = (uint32_t)(p1 >> 32) ^ c1 ^ keys.at[2 * r];
                c1 = (uint32_t)p1;
                c2 = (uint32_t)(p0 >> 32) ^ c3 ^ keys.at[2 * r + 1];
                c3 = (uint32_t)p0;
            }
            const uint32_t draws[4] = { c0, c1, c2, c3 };
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                kept |= (uint32_t)(draws[i] < limit) << (4 * d + i);
        }
        words[w] = kept;
    }
}

ordo_status block_cuda_compare_bits(const block_compare *b, void *stream, char *why, size_t n)
{
    const auto kernel = b->rounds == 3   ? compare_kernel<3>
                        : b->rounds == 5 ? compare_kernel<5>
                        : b->rounds == 7 ? compare_kernel<7>
                                         : compare_kernel<10>;
    round_keys keys;
    uint32_t key0 = (uint32_t)b->seed, key1 = (uint32_t)(b->seed >> 32);
    for (int r = 0; r < 10; r++, key0 += ORDO_PHILOX_W0, key1 += ORDO_PHILOX_W1) {
        keys.at[2 * r] = key0;
        keys.at[2 * r + 1] = key1;
    }
    kernel<<<132 * 16, 128, 0, (cudaStream_t)stream>>>(b->words, b->count, keys,
                                                       (uint32_t)b->offset, b->limit);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

/* ---- ordo's own, with stamps ---- */

/* A lane makes the two words of its place, rows g and g + 8, as they are stored. */
static __global__ void __launch_bounds__(32) traced_kernel(block_traced b)
{
    const ordo_keep keep = { b.seed, b.offset, 7, 8, b.threshold, ORDO_KEYING_ORDO };
    const uint32_t row = threadIdx.x / 4, quad = threadIdx.x % 4;
    const uint64_t begin = now();
    for (uint64_t block = blockIdx.x; block < b.blocks; block += gridDim.x) {
        const uint32_t bh = (uint32_t)(block / (uint64_t)b.head_blocks);
        const uint64_t place = block % (uint64_t)b.head_blocks;
        const uint32_t down = (uint32_t)(place / (uint64_t)b.across);
        const uint32_t column_block = (uint32_t)(place % (uint64_t)b.across);
        const uint32_t first = 16 * down + row;
        const uint2 words = make_uint2(ordo_keep_word(&keep, bh, first, column_block, quad),
                                       ordo_keep_word(&keep, bh, first + 8, column_block, quad));
        ((uint2 *)b.words)[block * 32 + threadIdx.x] = words;
    }
    if (threadIdx.x == 0) {
        uint32_t sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        b.stamps[blockIdx.x] = { begin, now(), sm, 0 };
    }
}

ordo_status block_cuda_traced_bits(const block_traced *b, void *stream, char *why, size_t n)
{
    traced_kernel<<<(unsigned)b->warps, 32, 0, (cudaStream_t)stream>>>(*b);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

/* ---- streams ---- */

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
