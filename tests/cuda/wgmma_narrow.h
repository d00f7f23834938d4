/* wgmma_narrow.h: steps of 8 and 16 columns, and of 32 with A from registers, which no kernel of
 * the library has, beside those of sm90/wgmma.h: step<F16>(d, from, by, adds) with lines of B that
 * are its columns. */
#ifndef TESTS_CUDA_WGMMA_NARROW_H
#define TESTS_CUDA_WGMMA_NARROW_H

#include "cuda/sm90/wgmma.h"

#define STEP(n, type, names, a, b, add, end)                                                       \
    "{.reg .pred p; setp.ne.b32 p, " add ", 0; wgmma.mma_async.sync.aligned.m64n" n                \
    "k16.f32." type "." type " {" names "}, " a ", " b ", p, 1, 1, " end ";}"
#define D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D8(d, i) D4(d, i), D4(d, i + 4)
#define D16(d)   D8(d, 0), D8(d, 8)
#define N4       "%0, %1, %2, %3"
#define N8       N4 ", %4, %5, %6, %7"
#define N16      N8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SHARED(n, names, a, b, add, ...)                                                           \
    if constexpr (F16)                                                                             \
        asm volatile(STEP(n, "f16", names, a, b, add, "0, 0")                                      \
                     : __VA_ARGS__                                                                 \
                     : "l"(from), "l"(by), "r"(adds));                                             \
    else                                                                                           \
        asm volatile(STEP(n, "bf16", names, a, b, add, "0, 0")                                     \
                     : __VA_ARGS__                                                                 \
                     : "l"(from), "l"(by), "r"(adds))
#define REGISTERS(n, names, a, b, add, ...)                                                        \
    if constexpr (F16)                                                                             \
        asm volatile(STEP(n, "f16", names, "{" a "}", b, add, "0")                                 \
                     : __VA_ARGS__                                                                 \
                     : "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "l"(by),            \
                       "r"(adds));                                                                 \
    else                                                                                           \
        asm volatile(STEP(n, "bf16", names, "{" a "}", b, add, "0")                                \
                     : __VA_ARGS__                                                                 \
                     : "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "l"(by), "r"(adds))

template <bool F16> __device__ static void step(float (&d)[4], uint64_t from, uint64_t by, int adds)
{
    SHARED("8", N4, "%4", "%5", "%6", D4(d, 0));
}

template <bool F16> __device__ static void step(float (&d)[8], uint64_t from, uint64_t by, int adds)
{
    SHARED("16", N8, "%8", "%9", "%10", D8(d, 0));
}

template <bool F16, int N>
__device__ static void step(float (&d)[N], uint64_t from, uint64_t by, int adds)
{
    wgmma_ss<F16, 0, 0>(d, from, by, adds);
}

template <bool F16>
__device__ static void step(float (&d)[4], const uint32_t *from, uint64_t by, int adds)
{
    REGISTERS("8", N4, "%4, %5, %6, %7", "%8", "%9", D4(d, 0));
}

template <bool F16>
__device__ static void step(float (&d)[8], const uint32_t *from, uint64_t by, int adds)
{
    REGISTERS("16", N8, "%8, %9, %10, %11", "%12", "%13", D8(d, 0));
}

template <bool F16>
__device__ static void step(float (&d)[16], const uint32_t *from, uint64_t by, int adds)
{
    REGISTERS("32", N16, "%16, %17, %18, %19", "%20", "%21", D16(d));
}

template <bool F16, int N>
__device__ static void step(float (&d)[N], const uint32_t *from, uint64_t by, int adds)
{
    wgmma_rs<F16, 0>(d, from, by, adds);
}

#undef STEP
#undef D4
#undef D8
#undef D16
#undef N4
#undef N8
#undef N16
#undef SHARED
#undef REGISTERS

#endif
