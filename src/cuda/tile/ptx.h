/* tile/ptx.h: one function per instruction that CUDA C does not offer and that every device from
 * compute capability 8.0 on has. Those of 9.0 are in sm90/ptx.h.
 *
 * Addresses of shared memory are 32-bit. */
#ifndef CUDA_TILE_PTX_H
#define CUDA_TILE_PTX_H

#include <stdint.h>

#include "cuda/tile/watchdog.h"

/* ---- order ---- */

ORDO_DEVICE void named_sync(uint32_t id, uint32_t threads)
{
    ordo_watch_note(ORDO_WAIT_NAMED, id);
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
    ordo_watch_note(ORDO_WAIT_NONE, 0);
}

ORDO_DEVICE void named_arrive(uint32_t id, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

ORDO_DEVICE int32_t load_acquire(const int32_t *from)
{
    int32_t value;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

ORDO_DEVICE void add_release(int32_t *to, int32_t value)
{
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

/* Programmatic dependent launch (launch.h). grid_let_next() lets the blocks of the next kernel
 * start as blocks of this one end; grid_wait() waits until the kernels before have ended and their
 * writes are visible. Below compute capability 9.0 kernels start after the kernels before them, and
 * both do nothing. */
ORDO_DEVICE void grid_let_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

ORDO_DEVICE void grid_wait(void)
{
#if __CUDA_ARCH__ >= 900
    ordo_watch_note(ORDO_WAIT_GRID, 0);
    asm volatile("griddepcontrol.wait;" ::: "memory");
    ordo_watch_note(ORDO_WAIT_NONE, 0);
#endif
}

/* ---- numbers ---- */

ORDO_DEVICE float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

ORDO_DEVICE float max_nan(float a, float b) /* NaN if either is */
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

template <bool F16> ORDO_DEVICE uint32_t pack_pair(float low, float high)
{
    uint32_t pair;
    if constexpr (F16)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* x, times `factor` if the bit is 0 in the word: by a predicate, which the multiplication of f32
 * takes for nothing, where a selection would be one more instruction of the integer pipe. */
ORDO_DEVICE void multiply_if_clear(float &x, uint32_t word, uint32_t bit, float factor)
{
    asm("{.reg .b32 y; .reg .pred clear; and.b32 y, %1, %2; setp.eq.u32 clear, y, 0; "
        "@clear mul.rn.f32 %0, %0, %3;}"
        : "+f"(x)
        : "r"(word), "r"(bit), "f"(factor));
}

/* The same of numbers below zero: 0. NaN stays. */
template <bool F16> ORDO_DEVICE uint32_t pack_positive_pair(float low, float high)
{
    uint32_t pair;
    if constexpr (F16)
        asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <bool F16> ORDO_DEVICE float pair_low(uint32_t pair)
{
    if constexpr (!F16)
        return __uint_as_float(pair << 16); /* bf16 is the upper half of an f32 */
    float low;
    asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(low) : "r"(pair));
    return low;
}

template <bool F16> ORDO_DEVICE float pair_high(uint32_t pair)
{
    return F16 ? pair_low<F16>(pair >> 16) : __uint_as_float(pair & 0xffff0000u);
}

/* Returns `taint`, or NaN if either value of the pair is infinite or NaN: x * 0 is 0 for all
 * others. Start with a taint of 0. */
template <bool F16> ORDO_DEVICE uint32_t not_finite(uint32_t taint, uint32_t pair)
{
    if constexpr (F16)
        asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(taint) : "r"(pair), "r"(0));
    else
        asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(taint) : "r"(pair), "r"(0));
    return taint;
}

/* All ones from bit n up; 0 if n is 32 or more. */
ORDO_DEVICE uint32_t ones_from(int n)
{
    uint32_t ones;
    asm("shl.b32 %0, %1, %2;" : "=r"(ones) : "r"(~0u), "r"(n)); /* by 32 and more: 0 */
    return ones;
}

/* Sets all to zero. Volatile, so that a rare case stays a branch and does not become a selection
 * per element. */
template <int N> ORDO_DEVICE void clear(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("mov.b32 %0, 0;" : "=f"(x[i]));
}

/* Each byte of the result repeats the sign of one byte of x: 0x9988 selects bytes 0, 0, 1, 1. */
template <uint32_t BYTES> ORDO_DEVICE uint32_t byte_signs(uint32_t x)
{
    uint32_t y;
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(y) : "r"(x), "n"(BYTES));
    return y;
}

ORDO_DEVICE uint2 load_once(const uint2 *from)
{
    uint2 x;
    asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2];"
                 : "=r"(x.x), "=r"(x.y)
                 : "l"(from));
    return x;
}

/* ---- shared memory by address ---- */

ORDO_DEVICE void store_shared(uint32_t at, int32_t value)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}

ORDO_DEVICE int32_t load_shared(uint32_t at)
{
    int32_t value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(at) : "memory");
    return value;
}

ORDO_DEVICE void store_shared2(uint32_t at, int32_t a, int32_t b)
{
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b) : "memory");
}

ORDO_DEVICE void store_shared_int4(uint32_t at, int4 x)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x.x), "r"(x.y), "r"(x.z),
                 "r"(x.w)
                 : "memory");
}

ORDO_DEVICE int4 load_shared_int4(uint32_t at)
{
    int4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(at)
                 : "memory");
    return x;
}

/* Hides the value from the optimizer, so that what is computed from it is recomputed where it is
 * used instead of kept live in registers. */
ORDO_DEVICE uint32_t opaque(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}

ORDO_DEVICE void load_shared2(uint32_t at, int32_t &a, int32_t &b)
{
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(at) : "memory");
}

ORDO_DEVICE void load_shared4(uint32_t at, float &a, float &b, float &c, float &d)
{
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
                 : "r"(at));
}

ORDO_DEVICE void store_shared4(uint32_t at, float a, float b, float c, float d)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(a), "f"(b), "f"(c),
                 "f"(d)
                 : "memory");
}

ORDO_DEVICE void load_matrix4_transposed(uint32_t at, uint32_t &a, uint32_t &b, uint32_t &c,
                                         uint32_t &d)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(at)
                 : "memory");
}

ORDO_DEVICE void load_matrix4(uint32_t at, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(at)
                 : "memory");
}

#endif
