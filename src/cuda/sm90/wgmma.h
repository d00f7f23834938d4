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

#define WGMMA_ACC4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_ACC16(d, i)                                                                          \
    WGMMA_ACC4(d, i), WGMMA_ACC4(d, i + 4), WGMMA_ACC4(d, i + 8), WGMMA_ACC4(d, i + 12)
#define WGMMA_ACC32(d, i)  WGMMA_ACC16(d, i), WGMMA_ACC16(d, i + 16)
#define WGMMA_ACC48(d, i)  WGMMA_ACC32(d, i), WGMMA_ACC16(d, i + 32)
#define WGMMA_ACC64(d, i)  WGMMA_ACC32(d, i), WGMMA_ACC32(d, i + 32)
#define WGMMA_ACC96(d, i)  WGMMA_ACC64(d, i), WGMMA_ACC32(d, i + 64)
#define WGMMA_ACC128(d, i) WGMMA_ACC64(d, i), WGMMA_ACC64(d, i + 64)
#define WGMMA_NAMES16      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES32                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES48                                                                              \
    WGMMA_NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "  \
                  "%47"
#define WGMMA_NAMES64                                                                              \
    WGMMA_NAMES48 ", "                                                                             \
                  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES96                                                                              \
    WGMMA_NAMES64                                                                                  \
    ", "                                                                                           \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_NAMES128                                                                             \
    WGMMA_NAMES96                                                                                  \
    ", "                                                                                           \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "             \
    "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "               \
    "%123, %124, %125, %126, %127"

/* One instruction: its text wants the type of the operands and the numbers of those behind the
 * accumulators as literals. */
#define WGMMA_TEXT(type, n, names, a, b, add, transposed)                                          \
    "{.reg .pred p; setp.ne.b32 p, " add ", 0; wgmma.mma_async.sync.aligned.m64n" n                \
    "k16.f32." type "." type " {" names "}, " a ", " b ", p, 1, 1, " transposed ";}"
#define WGMMA_PRODUCT(accumulators, n, names, a, b, add, transposed, ...)                          \
    if constexpr (F16)                                                                             \
        asm volatile(WGMMA_TEXT("f16", n, names, a, b, add, transposed)                            \
                     : accumulators(d, 0)                                                          \
                     : __VA_ARGS__);                                                               \
    else                                                                                           \
        asm volatile(WGMMA_TEXT("bf16", n, names, a, b, add, transposed)                           \
                     : accumulators(d, 0)                                                          \
                     : __VA_ARGS__)

#define WGMMA_SS(count, accumulators, n, names, a_, b_, add_, transposed)                          \
    template <bool F16, int TRANSPOSED_A, int TRANSPOSED_B>                                        \
    ORDO_DEVICE void wgmma_ss(float(&d)[count], uint64_t a, uint64_t b, int add)                   \
    {                                                                                              \
        WGMMA_PRODUCT(accumulators, n, names, a_, b_, add_, transposed, "l"(a), "l"(b), "r"(add),  \
                      "n"(TRANSPOSED_A), "n"(TRANSPOSED_B));                                       \
    }
WGMMA_SS(16, WGMMA_ACC16, "32", WGMMA_NAMES16, "%16", "%17", "%18", "%19, %20")
WGMMA_SS(32, WGMMA_ACC32, "64", WGMMA_NAMES32, "%32", "%33", "%34", "%35, %36")
WGMMA_SS(48, WGMMA_ACC48, "96", WGMMA_NAMES48, "%48", "%49", "%50", "%51, %52")
WGMMA_SS(64, WGMMA_ACC64, "128", WGMMA_NAMES64, "%64", "%65", "%66", "%67, %68")
WGMMA_SS(96, WGMMA_ACC96, "192", WGMMA_NAMES96, "%96", "%97", "%98", "%99, %100")
WGMMA_SS(128, WGMMA_ACC128, "256", WGMMA_NAMES128, "%128", "%129", "%130", "%131, %132")

/* a: four registers of a thread, k-slice k of an accumulator packed two by two. */
#define WGMMA_RS(count, accumulators, n, names, a_, b_, add_, transposed)                          \
    template <bool F16, int TRANSPOSED_B>                                                          \
    ORDO_DEVICE void wgmma_rs(float(&d)[count], const uint32_t *a, uint64_t b, int add)            \
    {                                                                                              \
        WGMMA_PRODUCT(accumulators, n, names, a_, b_, add_, transposed, "r"(a[0]), "r"(a[1]),      \
                      "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANSPOSED_B));                  \
    }
WGMMA_RS(16, WGMMA_ACC16, "32", WGMMA_NAMES16, "{%16, %17, %18, %19}", "%20", "%21", "%22")
WGMMA_RS(32, WGMMA_ACC32, "64", WGMMA_NAMES32, "{%32, %33, %34, %35}", "%36", "%37", "%38")
WGMMA_RS(64, WGMMA_ACC64, "128", WGMMA_NAMES64, "{%64, %65, %66, %67}", "%68", "%69", "%70")
WGMMA_RS(96, WGMMA_ACC96, "192", WGMMA_NAMES96, "{%96, %97, %98, %99}", "%100", "%101", "%102")
WGMMA_RS(128, WGMMA_ACC128, "256", WGMMA_NAMES128, "{%128, %129, %130, %131}", "%132", "%133",
         "%134")

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
