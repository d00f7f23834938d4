/* wgmma_narrow.h: steps of 8 and 16 columns, which no kernel of the library has, beside those of
 * sm90/wgmma.h: step<F16>(d, from, by, adds) with lines of B that
 * are its columns. */
#ifndef TESTS_CUDA_WGMMA_NARROW_H
#define TESTS_CUDA_WGMMA_NARROW_H

#include "cuda/sm90/wgmma.h"

#define WGMMA_ACC8(d, i) WGMMA_ACC4(d, i), WGMMA_ACC4(d, i + 4)
#define WGMMA_NAMES4     "%0, %1, %2, %3"
#define WGMMA_NAMES8     WGMMA_NAMES4 ", %4, %5, %6, %7"

WGMMA_SS(4, WGMMA_ACC4, "8", WGMMA_NAMES4, "%4", "%5", "%6", "%7, %8")
WGMMA_SS(8, WGMMA_ACC8, "16", WGMMA_NAMES8, "%8", "%9", "%10", "%11, %12")
WGMMA_RS(4, WGMMA_ACC4, "8", WGMMA_NAMES4, "{%4, %5, %6, %7}", "%8", "%9", "%10")
WGMMA_RS(8, WGMMA_ACC8, "16", WGMMA_NAMES8, "{%8, %9, %10, %11}", "%12", "%13", "%14")

template <bool F16, int N>
__device__ static void step(float (&d)[N], uint64_t from, uint64_t by, int adds)
{
    wgmma_ss<F16, 0, 0>(d, from, by, adds);
}

template <bool F16, int N>
__device__ static void step(float (&d)[N], const uint32_t *from, uint64_t by, int adds)
{
    wgmma_rs<F16, 0>(d, from, by, adds);
}

#endif
