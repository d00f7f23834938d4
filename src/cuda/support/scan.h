/* support/scan.h: scans over the threads of a block. */
#ifndef CUDA_SUPPORT_SCAN_H
#define CUDA_SUPPORT_SCAN_H

#include "cuda/tile/ptx.h"

struct largest {
    ORDO_DEVICE int64_t of(int64_t a, int64_t b)
    {
        return a > b ? a : b;
    }
};

struct sum {
    ORDO_DEVICE int64_t of(int64_t a, int64_t b)
    {
        return a + b;
    }
};

/* Inclusive scan of x over the threads of the block. `carry`, equal in all threads, precedes the
 * first and is updated to the result of the last. */
template <class TAKE> ORDO_DEVICE int64_t scan(int64_t x, int64_t &carry, int64_t *ends)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int step = 1; step < 32; step *= 2) {
        const int64_t other = __shfl_up_sync(~0u, x, step);
        if (lane >= step)
            x = TAKE::of(other, x);
    }
    __syncthreads(); /* the ends of the scan before have been read */
    if (lane == 31)
        ends[warp] = x;
    __syncthreads();
    int64_t before = carry;
    for (int w = 0; w < (int)blockDim.x / 32; w++) {
        if (w < warp)
            before = TAKE::of(before, ends[w]);
        carry = TAKE::of(carry, ends[w]);
    }
    return TAKE::of(before, x);
}

#endif
