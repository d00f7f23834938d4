/* dot.c: the sum of products in 64-bit integers, term by term as dot.h defines it. */
#include "emulator/dot.h"

#include <assert.h>

#include "base/half.h"

const ordo_emulator_arithmetic ordo_emulator_hopper = { "hopper", 25, 16, 23 };
const ordo_emulator_arithmetic ordo_emulator_ampere = { "ampere", 24, 8, 23 };
const ordo_emulator_arithmetic ordo_emulator_hopper_e4m3 = { "hopper e4m3", 13, 32, 13 };

enum { MOST_TERMS = 16, BYTES = 32, LEAST_EXPONENT = -133, NAN_BITS = 0x7fffffff };

typedef enum kind { FINITE, INFINITE, NOT_A_NUMBER } kind;

typedef struct number { /* significand * 2^(exponent - fraction bits of its format) */
    int64_t significand;
    int exponent;
    kind kind;
} number;

/* `bits` of a format of 1 + exponent + fraction bits; an infinity has the significand +-1. */
static number decode(uint32_t bits, int exponent_bits, int fraction_bits)
{
    const uint32_t top = (1u << exponent_bits) - 1, stored = bits & ((1u << fraction_bits) - 1);
    const uint32_t field = bits >> fraction_bits & top;
    number x = { stored, (int)field - (int)(top >> 1), FINITE };
    if (field == 0) {
        x.exponent++;
    } else if (field == top) {
        x.kind = stored ? NOT_A_NUMBER : INFINITE;
        x.significand = 1;
    } else {
        x.significand |= INT64_C(1) << fraction_bits;
    }
    if (bits >> (exponent_bits + fraction_bits) & 1)
        x.significand = -x.significand;
    return x;
}

/* e4m3: the largest exponent is one of numbers, too, and its last number NaN. */
static number decode_byte(uint8_t bits)
{
    const int field = bits >> 3 & 15, stored = bits & 7;
    number x = { field ? stored | 8 : stored, (field ? field : 1) - 7, FINITE };
    if ((bits & 0x7f) == 0x7f)
        x.kind = NOT_A_NUMBER;
    if (bits & 0x80)
        x.significand = -x.significand;
    return x;
}

/* x 2^-down toward zero. */
static int64_t truncated(int64_t x, int down)
{
    const int64_t size = (x < 0 ? -x : x) >> (down > 62 ? 62 : down);
    return x < 0 ? -size : size;
}

/* sum 2^unit as an f32 of `result` fraction bits, truncated. */
static uint32_t pack(int64_t sum, int unit, int result)
{
    uint64_t size = sum < 0 ? (uint64_t)-sum : (uint64_t)sum;
    if (size == 0)
        return 0;
    const int top = 63 - __builtin_clzll(size) + unit;   /* exponent of the leading bit */
    const int last = (top < -126 ? -126 : top) - result; /* that of the last bit that is kept */
    if (last - unit > 62)
        return 0;
    size = last > unit ? size >> (last - unit) : size << (unit - last);
    if (size == 0) /* what underflows has no sign */
        return 0;
    size <<= 23 - result;
    const uint32_t sign = sum < 0 ? 0x80000000u : 0;
    if (top > 127)
        return sign | 0x7f800000u;
    return sign | (top < -126 ? (uint32_t)size
                              : (uint32_t)(top + 127) << 23 | ((uint32_t)size & 0x7fffff));
}

/* A sum with an infinity or a NaN in it. */
static uint32_t not_finite(const number *a, const number *b, int terms, number c)
{
    bool plus = c.kind == INFINITE && c.significand > 0, minus = c.kind == INFINITE && !plus;
    bool nan = c.kind == NOT_A_NUMBER;
    for (int k = 0; k < terms; k++) {
        if (a[k].kind == FINITE && b[k].kind == FINITE)
            continue;
        const int64_t sign = a[k].significand * b[k].significand;
        nan |= a[k].kind == NOT_A_NUMBER || b[k].kind == NOT_A_NUMBER || sign == 0;
        plus |= sign > 0;
        minus |= sign < 0;
    }
    return nan || (plus && minus) ? NAN_BITS : plus ? 0x7f800000u : 0xff800000u;
}

static uint32_t sum_of(const ordo_emulator_arithmetic *arithmetic, int fraction_bits,
                       const number *a, const number *b, uint32_t c_bits)
{
    const number c = decode(c_bits, 8, 23);
    bool finite = c.kind == FINITE;
    int align = c.significand && c.exponent > LEAST_EXPONENT ? c.exponent : LEAST_EXPONENT;
    for (int k = 0; k < arithmetic->terms; k++) {
        const int exponent = a[k].exponent + b[k].exponent;
        finite &= a[k].kind == FINITE && b[k].kind == FINITE;
        if (a[k].significand && b[k].significand && exponent > align)
            align = exponent;
    }
    if (!finite)
        return not_finite(a, b, arithmetic->terms, c);
    const int up = arithmetic->fraction - 2 * fraction_bits, c_up = arithmetic->fraction - 23;
    int64_t sum = 0;
    for (int k = 0; k < arithmetic->terms; k++) {
        const int64_t product = a[k].significand * b[k].significand;
        if (product)
            sum += truncated(product * (INT64_C(1) << up), align - a[k].exponent - b[k].exponent);
    }
    if (c.significand)
        sum += truncated(c.significand * (INT64_C(1) << (c_up > 0 ? c_up : 0)),
                         align - c.exponent + (c_up < 0 ? -c_up : 0));
    return pack(sum, align - arithmetic->fraction, arithmetic->result);
}

uint32_t ordo_emulator_dot(const ordo_emulator_arithmetic *arithmetic, ordo_dtype dtype,
                           const uint16_t a[16], const uint16_t b[16], uint32_t c)
{
    const int exponent_bits = dtype == ORDO_F16 ? 5 : 8, fraction_bits = 15 - exponent_bits;
    number x[MOST_TERMS], y[MOST_TERMS];
    assert(dtype == ORDO_BF16 || dtype == ORDO_F16);
    for (int k = 0; k < MOST_TERMS; k++) {
        x[k] = decode(a[k], exponent_bits, fraction_bits);
        y[k] = decode(b[k], exponent_bits, fraction_bits);
    }
    for (int k = 0; k < MOST_TERMS; k += arithmetic->terms)
        c = sum_of(arithmetic, fraction_bits, x + k, y + k, c);
    return c;
}

uint32_t ordo_emulator_dot_e4m3(const ordo_emulator_arithmetic *arithmetic, const uint8_t a[32],
                                const uint8_t b[32], uint32_t c)
{
    number x[BYTES], y[BYTES];
    for (int k = 0; k < BYTES; k++) {
        x[k] = decode_byte(a[k]);
        y[k] = decode_byte(b[k]);
    }
    for (int k = 0; k < BYTES; k += arithmetic->terms)
        c = sum_of(arithmetic, 3, x + k, y + k, c);
    return c;
}

static uint16_t half_of(float value, ordo_dtype dtype)
{
    return dtype == ORDO_F16 ? ordo_f16_from_f32(value) : ordo_bf16_from_f32(value);
}

float ordo_emulator_dot_values(const ordo_emulator_arithmetic *arithmetic, ordo_dtype dtype,
                               const float a[16], const float *b, ptrdiff_t b_stride, float c)
{
    uint16_t x[MOST_TERMS], y[MOST_TERMS];
    for (int k = 0; k < MOST_TERMS; k++) {
        x[k] = half_of(a[k], dtype);
        y[k] = half_of(b[k * b_stride], dtype);
    }
    return ordo_f32_of_bits(ordo_emulator_dot(arithmetic, dtype, x, y, ordo_f32_bits(c)));
}
