/* vec_generic.h: vectors of one float, in plain C. Slow where fmaf is a call; for correctness. */
#ifndef CPU_VEC_GENERIC_H
#define CPU_VEC_GENERIC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

#define LANES 1
#define FOR_PARTS(DO)                                                                              \
    DO(0)                                                                                          \
    DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
enum { BLOCK_ROWS = 4, BLOCK_WIDTH = 1 }; /* a product's register block */

typedef float lanes;

static inline lanes ln_load(const float *p)
{
    return *p;
}
static inline void ln_store(float *p, lanes a)
{
    *p = a;
}
/* 16-bit floats; a NaN that comes in need not stay the same NaN, one that goes out is canonical */
static inline lanes ln_from_bf16(const uint16_t *p)
{
    return ordo_f32_from_bf16(*p);
}
static inline lanes ln_from_f16(const uint16_t *p)
{
    return ordo_f32_from_f16(*p);
}
static inline void ln_to_f16(uint16_t *p, lanes a)
{
    *p = ordo_f16_from_f32(a);
}
/* to[x ld + y] = from[16 y + x], x and y below 16 */
static inline void ln_transpose(const float *from, float *to, ptrdiff_t ld)
{
    for (int x = 0; x < 16; x++)
        for (int y = 0; y < 16; y++)
            to[x * ld + y] = from[16 * y + x];
}
static inline lanes ln_all(float a)
{
    return a;
}
static inline lanes ln_fma(lanes a, lanes b, lanes c)
{
    return fmaf(a, b, c);
}
static inline lanes ln_settle(lanes a)
{
    return a;
}
static inline lanes ln_mul(lanes a, lanes b)
{
    return a * b;
}
static inline lanes ln_add(lanes a, lanes b)
{
    return a + b;
}
static inline lanes ln_sub(lanes a, lanes b)
{
    return a - b;
}
static inline lanes ln_div(lanes a, lanes b)
{
    return a / b;
}
/* a > b ? a : b, which drops a NaN on the left */
static inline lanes ln_max(lanes a, lanes b)
{
    return a > b ? a : b;
}
static inline lanes ln_min(lanes a, lanes b)
{
    return a < b ? a : b;
}
/* a < b ? x : y */
static inline lanes ln_less(lanes a, lanes b, lanes x, lanes y)
{
    return a < b ? x : y;
}
/* q 2^n by adding to the exponent, 0 where t < -126; n in the low bits of `shifted` */
static inline lanes ln_scale(lanes q, lanes shifted, lanes whole, lanes t)
{
    (void)whole;
    const uint32_t scaled = ordo_f32_bits(q) + (ordo_f32_bits(shifted) << 23);
    return t < -126 ? 0 : ordo_f32_of_bits(scaled);
}
static inline lanes ln_abs(lanes a)
{
    return fabsf(a);
}
/* lane x of a if words[x] has the bit, else 0 */
static inline lanes ln_keep(lanes a, const uint32_t *words, uint32_t bit)
{
    return *words & bit ? a : 0.0f;
}

/* over the lanes */
static inline float ln_sum(lanes a)
{
    return a;
}

#endif
