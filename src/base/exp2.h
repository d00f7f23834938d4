/* exp2.h: 2^x and natural logarithms whose bits do not depend on a C library.
 *
 * exp2: t = x rounded to the nearest integer n plus f in [-1/2, 1/2]; 2^f by a polynomial of degree
 * six (near-minimax, relative error 9.2e-9); n is added to the exponent bits. Error below 0.88 ulp,
 * relative 1.25 * 2^-24 (tests/base/exp2_long.c, over every float). Below -126 the result is 0:
 * probabilities have no use for subnormals. From 128 on it is +inf. The canonical NaN stays NaN, of
 * either sign; one with a payload may not, since its low bits would pass for n: callers see to
 * that. Vector kernels repeat these steps lane by lane, so their bits are these. */
#ifndef BASE_EXP2_H
#define BASE_EXP2_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/constants.h"
#include "base/hd.h"

#define ORDO_EXP2_ROUND 12582912.0f /* 1.5 * 2^23: adding it leaves the nearest integer below */
#define ORDO_EXP2_C1    0x1.62e430p-1f
#define ORDO_EXP2_C2    0x1.ebfbe0p-3f
#define ORDO_EXP2_C3    0x1.c6af6cp-5f
#define ORDO_EXP2_C4    0x1.3b2a54p-7f
#define ORDO_EXP2_C5    0x1.5f0890p-10f
#define ORDO_EXP2_C6    0x1.44138ap-13f

ORDO_HD float ordo_exp2(float x)
{
    const float t = x > 128.0f ? 128.0f : x;
    const float shifted = t + ORDO_EXP2_ROUND;
    const float f = t - (shifted - ORDO_EXP2_ROUND);
    float q = ORDO_EXP2_C6;
    q = fmaf(q, f, ORDO_EXP2_C5);
    q = fmaf(q, f, ORDO_EXP2_C4);
    q = fmaf(q, f, ORDO_EXP2_C3);
    q = fmaf(q, f, ORDO_EXP2_C2);
    q = fmaf(q, f, ORDO_EXP2_C1);
    const float p = fmaf(q, f, 1.0f);
    uint32_t bits, n;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&n, &shifted, sizeof n);
    bits += n << 23; /* the low bits of `shifted` are the integer */
    float result;
    memcpy(&result, &bits, sizeof result);
    return x < -126.0f ? 0.0f : result;
}

/* Natural logarithm of a positive normal double, by basic operations alone: x = 2^e m with m in
 * [sqrt(1/2), sqrt(2)], ln m = 2 atanh((m - 1) / (m + 1)) as a series. Relative error below 1e-15.
 */
ORDO_HD double ordo_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t e = (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    const double z = (m - 1) / (m + 1), zz = z * z; /* |z| < 0.1716 */
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * zz + 1.0 / k;
    return 2 * z * sum + (double)e * ORDO_LN_2;
}

#endif
