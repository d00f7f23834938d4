/* half.h: bf16 and f16 as 16-bit patterns, for host and device alike.
 *
 * Up is exact; down rounds once, to nearest, ties to even, whatever the source: a double
 * goes to 16 bits directly, because going through float would round twice. Subnormals are
 * kept, overflow gives infinity, every NaN becomes the one canonical quiet NaN. */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include "base/hd.h"

#include <stdint.h>
#include <string.h>

#define ORDO_BF16_NAN 0x7fc0u
#define ORDO_F16_NAN  0x7e00u
#define ORDO_F32_NAN  0x7fc00000u

ORDO_HD uint32_t ordo_f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ORDO_HD float ordo_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

ORDO_HD float ordo_f32_from_f64(double x)
{
    return x != x ? ordo_f32_of_bits(ORDO_F32_NAN) : (float)x;
}

ORDO_HD float ordo_f32_from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    return ordo_f32_of_bits((bits & 0x7fffffff) > 0x7f800000 ? ORDO_F32_NAN : bits);
}

ORDO_HD float ordo_f32_from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff;

    if (exponent == 31)
        return ordo_f32_of_bits(fraction ? ORDO_F32_NAN : sign | 0x7f800000);
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in f32 */
        const float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return ordo_f32_of_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

/* Round a double to a format of 1 sign bit, `fraction_bits` stored bits and this bias. */
ORDO_HD uint16_t ordo_half_round(double x, int fraction_bits, int bias, uint16_t nan)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    const uint16_t infinity = (uint16_t)((2 * bias + 1) << fraction_bits);
    const int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    const uint64_t significand = (bits & 0xfffffffffffff) | 0x10000000000000;

    if (x != x)
        return nan;
    if (exponent == 1024)
        return sign | infinity;

    /* Below the normal range each step down in exponent costs one bit of the significand. */
    const int lowest = 1 - bias, below = exponent < lowest ? lowest - exponent : 0;
    const int shift = 52 - fraction_bits + below;
    if (shift > 53) /* under half the smallest subnormal; also zero and double's subnormals */
        return sign;

    uint64_t kept = significand >> shift;
    const uint64_t rest = significand & ((UINT64_C(1) << shift) - 1);
    const uint64_t tie = UINT64_C(1) << (shift - 1);
    kept += rest > tie || (rest == tie && (kept & 1));

    /* The hidden bit in `kept` adds one to the exponent, and so does a carry of rounding. */
    if (!below)
        kept += (uint64_t)(exponent - lowest) << fraction_bits;
    return sign | (kept < infinity ? (uint16_t)kept : infinity);
}

ORDO_HD uint16_t ordo_bf16_from_f64(double x)
{
    return ordo_half_round(x, 7, 127, ORDO_BF16_NAN);
}

ORDO_HD uint16_t ordo_f16_from_f64(double x)
{
    return ordo_half_round(x, 10, 15, ORDO_F16_NAN);
}

ORDO_HD uint16_t ordo_bf16_from_f32(float x)
{
    const uint32_t bits = ordo_f32_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return ORDO_BF16_NAN;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

ORDO_HD uint16_t ordo_f16_from_f32(float x)
{
    return ordo_f16_from_f64((double)x);
}

#endif
