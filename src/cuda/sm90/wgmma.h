/* sm90/wgmma.h: the matrix products of a warpgroup: m64nNk16, bf16 or f16 in, f32 out.
 *
 * d is a thread's part of 64 x N accumulators (N / 2 of them; tile/fragment.h says which). B is
 * always a tile in shared memory, A one too (ss) or four registers (rs), each by a descriptor.
 * `add` false writes the product instead of adding it, so accumulators are never cleared. A
 * transposed operand is one whose rows are the k of the product.
 *
 * A group is issued between wgmma_fence() and wgmma_commit(); until wgmma_wait<N>() has left no
 * more than the N newest groups, its registers and tiles are its own. */
#ifndef CUDA_SM90_WGMMA_H
#define CUDA_SM90_WGMMA_H

#include "cuda/sm90/descriptor.h"
#include "cuda/sm90/ptx.h"

ORDO_DEVICE void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

ORDO_DEVICE void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING> ORDO_DEVICE void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Prevents the compiler from moving uses of accumulators across the asynchronous products. */
template <int N> ORDO_DEVICE void wgmma_pin(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

#define ACC4(d, i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC16(d, i) ACC4(d, i), ACC4(d, i + 4), ACC4(d, i + 8), ACC4(d, i + 12)
#define ACC32(d, i) ACC16(d, i), ACC16(d, i + 16)
#define ACC48(d)    ACC32(d, 0), ACC16(d, 32)
#define ACC64(d, i) ACC32(d, i), ACC32(d, i + 32)
#define ACC96(d)    ACC64(d, 0), ACC32(d, 64)
#define ACC128(d)   ACC64(d, 0), ACC64(d, 64)
#define NAMES16     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES32                                                                                    \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES48                                                                                    \
    NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES64                                                                                    \
    NAMES48 ", "                                                                                   \
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES96                                                                                    \
    NAMES64 ", "                                                                                   \
            "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "     \
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES128                                                                                   \
    NAMES96 ", "                                                                                   \
            "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "     \
            "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "       \
            "%123, %124, %125, %126, %127"

/* One instruction: its text wants the type of the operands and the numbers of those behind the
 * accumulators as literals. */
#define PRODUCT_SS(n, type, names, a, b, add, ta, tb)                                              \
    "{.reg .pred p; setp.ne.b32 p, " add ", 0; wgmma.mma_async.sync.aligned.m64n" n                \
    "k16.f32." type "." type " {" names "}, " a ", " b ", p, 1, 1, " ta ", " tb ";}"
#define PRODUCT_RS(n, type, names, a, b, add, tb)                                                  \
    "{.reg .pred p; setp.ne.b32 p, " add ", 0; wgmma.mma_async.sync.aligned.m64n" n                \
    "k16.f32." type "." type " {" names "}, {" a "}, " b ", p, 1, 1, " tb ";}"
#define SS(accumulators, ...)                                                                      \
    if constexpr (F16)                                                                             \
        asm volatile(PRODUCT_SS_OF("f16", __VA_ARGS__)                                             \
                     : accumulators                                                                \
                     : "l"(a), "l"(b), "r"(add), "n"(TRANSPOSED_A), "n"(TRANSPOSED_B));            \
    else                                                                                           \
        asm volatile(PRODUCT_SS_OF("bf16", __VA_ARGS__)                                            \
                     : accumulators                                                                \
                     : "l"(a), "l"(b), "r"(add), "n"(TRANSPOSED_A), "n"(TRANSPOSED_B))
#define RS(accumulators, ...)                                                                      \
    if constexpr (F16)                                                                             \
        asm volatile(PRODUCT_RS_OF("f16", __VA_ARGS__)                                             \
                     : accumulators                                                                \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),               \
                       "n"(TRANSPOSED_B));                                                         \
    else                                                                                           \
        asm volatile(PRODUCT_RS_OF("bf16", __VA_ARGS__)                                            \
                     : accumulators                                                                \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),               \
                       "n"(TRANSPOSED_B))
#define PRODUCT_SS_OF(type, n, names, ...) PRODUCT_SS(n, type, names, __VA_ARGS__)
#define PRODUCT_RS_OF(type, n, names, ...) PRODUCT_RS(n, type, names, __VA_ARGS__)

template <bool F16, int TRANSPOSED_A, int TRANSPOSED_B>
ORDO_DEVICE void wgmma_ss(float (&d)[16], uint64_t a, uint64_t b, int add)
{
    SS(ACC16(d, 0), "32", NAMES16, "%16", "%17", "%18", "%19", "%20");
}

template <bool F16, int TRANSPOSED_A, int TRANSPOSED_B>
ORDO_DEVICE void wgmma_ss(float (&d)[32], uint64_t a, uint64_t b, int add)
{
    SS(ACC32(d, 0), "64", NAMES32, "%32", "%33", "%34", "%35", "%36");
}

template <bool F16, int TRANSPOSED_A, int TRANSPOSED_B>
ORDO_DEVICE void wgmma_ss(float (&d)[48], uint64_t a, uint64_t b, int add)
{
    SS(ACC48(d), "96", NAMES48, "%48", "%49", "%50", "%51", "%52");
}

template <bool F16, int TRANSPOSED_A, int TRANSPOSED_B>
ORDO_DEVICE void wgmma_ss(float (&d)[64], uint64_t a, uint64_t b, int add)
{
    SS(ACC64(d, 0), "128", NAMES64, "%64", "%65", "%66", "%67", "%68");
}

template <bool F16, int TRANSPOSED_A, int TRANSPOSED_B>
ORDO_DEVICE void wgmma_ss(float (&d)[96], uint64_t a, uint64_t b, int add)
{
    SS(ACC96(d), "192", NAMES96, "%96", "%97", "%98", "%99", "%100");
}

template <bool F16, int TRANSPOSED_A, int TRANSPOSED_B>
ORDO_DEVICE void wgmma_ss(float (&d)[128], uint64_t a, uint64_t b, int add)
{
    SS(ACC128(d), "256", NAMES128, "%128", "%129", "%130", "%131", "%132");
}

/* a: four registers of a thread, k-slice k of an accumulator packed two by two. */
template <bool F16, int TRANSPOSED_B>
ORDO_DEVICE void wgmma_rs(float (&d)[32], const uint32_t *a, uint64_t b, int add)
{
    RS(ACC32(d, 0), "64", NAMES32, "%32, %33, %34, %35", "%36", "%37", "%38");
}

template <bool F16, int TRANSPOSED_B>
ORDO_DEVICE void wgmma_rs(float (&d)[64], const uint32_t *a, uint64_t b, int add)
{
    RS(ACC64(d, 0), "128", NAMES64, "%64, %65, %66, %67", "%68", "%69", "%70");
}

template <bool F16, int TRANSPOSED_B>
ORDO_DEVICE void wgmma_rs(float (&d)[96], const uint32_t *a, uint64_t b, int add)
{
    RS(ACC96(d), "192", NAMES96, "%96, %97, %98, %99", "%100", "%101", "%102");
}

template <bool F16, int TRANSPOSED_B>
ORDO_DEVICE void wgmma_rs(float (&d)[128], const uint32_t *a, uint64_t b, int add)
{
    RS(ACC128(d), "256", NAMES128, "%128, %129, %130, %131", "%132", "%133", "%134");
}

#undef ACC4
#undef ACC16
#undef ACC32
#undef ACC48
#undef ACC64
#undef ACC96
#undef ACC128
#undef NAMES16
#undef NAMES32
#undef NAMES48
#undef NAMES64
#undef NAMES96
#undef NAMES128
#undef PRODUCT_SS
#undef PRODUCT_RS
#undef PRODUCT_SS_OF
#undef PRODUCT_RS_OF
#undef SS
#undef RS

/* ---- descriptors: only the low word varies, and moving a tile's start is one addition ---- */

ORDO_DEVICE uint64_t wgmma_descriptor(uint32_t low)
{
    return (uint64_t)ORDO_DESCRIPTOR_HIGH << 32 | low;
}

/* k-slice of a tile of `rows` rows whose columns are the products' k. */
ORDO_DEVICE uint64_t wgmma_by_columns(uint32_t low, int rows, int k)
{
    return wgmma_descriptor(low + ordo_slice_by_columns(rows, k));
}

/* k-slice of a tile whose rows are the products' k. */
ORDO_DEVICE uint64_t wgmma_by_rows(uint32_t low, int k)
{
    return wgmma_descriptor(low + ordo_slice_by_rows(k));
}

#endif
