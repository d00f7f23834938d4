/* sm90/gemm/wgmma_e4m3.h: matrix products of a warpgroup of e4m3: m64nNk32, f32 out, by the rules
 * of sm90/wgmma.h. Both operands are tiles whose columns are the k of the product: the hardware has
 * no other way. Two elements take the place of one of 16 bits, so that tiles and descriptors are
 * those of k / 2 columns. */
#ifndef CUDA_SM90_GEMM_WGMMA_E4M3_H
#define CUDA_SM90_GEMM_WGMMA_E4M3_H

#include "cuda/sm90/wgmma.h"

#define WGMMA_E4M3(count, accumulators, n, names, a_, b_, add_)                                    \
    ORDO_DEVICE void wgmma_e4m3(float(&d)[count], uint64_t a, uint64_t b, int add)                 \
    {                                                                                              \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " add_ ", 0; "                                 \
                     "wgmma.mma_async.sync.aligned.m64n" n "k32.f32.e4m3.e4m3 {" names "}, " a_    \
                     ", " b_ ", p, 1, 1;}"                                                         \
                     : accumulators(d, 0)                                                          \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }
WGMMA_E4M3(16, WGMMA_ACC16, "32", WGMMA_NAMES16, "%16", "%17", "%18")
WGMMA_E4M3(32, WGMMA_ACC32, "64", WGMMA_NAMES32, "%32", "%33", "%34")
WGMMA_E4M3(48, WGMMA_ACC48, "96", WGMMA_NAMES48, "%48", "%49", "%50")
WGMMA_E4M3(64, WGMMA_ACC64, "128", WGMMA_NAMES64, "%64", "%65", "%66")

#endif
