/* special.c: the special function unit in integers, and logf in the compiler's operations. */
#include "emulator/special.h"

#include <math.h>

#include "base/half.h"
#include "emulator/rom.h"

typedef struct coefficients {
    int32_t c0, c1, c2;
} coefficients;

#define TRIPLE(c0, c1, c2) { c0, c1, c2 },
static const coefficients ex2_rom[64] = { ORDO_EX2_ROM(TRIPLE) };
static const coefficients lg2_rom[64] = { ORDO_LG2_ROM(TRIPLE) };
static const coefficients rcp_rom[128] = { ORDO_RCP_ROM(TRIPLE) };
#undef TRIPLE

enum { FRACTION = 0x7fffff, NAN_BITS = 0x7fffffff, INFINITY_BITS = 0x7f800000 };

/* The square of x < 2^bits, added from the products of its bits without the columns below 2^s, s =
 * 2 bits - 15, and without a carry from them, divided by 2^s. With x = h 2^half + l and h < 2^8, l
 * squared is below, h squared is all there but for its last bit, and bit j of h has the upper bits
 * of l. */
static int64_t upper_square(uint32_t x, int bits)
{
    const int half = bits - 8;
    const uint32_t h = x >> half, l = x & ((1u << half) - 1);
    uint32_t sum = h * h >> 1;
    for (int j = 1; j < 8; j++)
        sum += l >> (half - j) & (0u - (h >> j & 1));
    return sum;
}

/* Q of a fraction; segments of 2^bits. */
static int64_t interpolate(const coefficients *rom, int bias, uint32_t fraction, int bits)
{
    const coefficients *c = &rom[fraction >> bits];
    const uint32_t x = fraction & ((1u << bits) - 1);
    return (int64_t)c->c0 * 4096 + bias + (int64_t)c->c1 * x + c->c2 * upper_square(x, bits);
}

/* |x| in fixed point with 23 bits after the point, truncated; of a negative x that is not whole,
 * the bits are inverted, which is 2^-23 too small. */
float ordo_emulator_ex2(float x)
{
    const uint32_t bits = ordo_f32_bits(x);
    if (x != x)
        return ordo_f32_of_bits(NAN_BITS);
    if (fabsf(x) >= 256.0f)
        return x < 0.0f ? 0.0f : INFINITY;
    int32_t place = (int32_t)(fabsf(x) * 8388608.0f);
    if (bits >> 31)
        place = place & FRACTION ? ~place : -place;
    const int exponent = (place >> 23) + 127;
    if (exponent >= 255)
        return INFINITY;
    if (exponent <= 0)
        return 0.0f;
    const int64_t q = interpolate(ex2_rom, ORDO_EX2_BIAS, (uint32_t)place & FRACTION, 17);
    return ordo_f32_of_bits((uint32_t)exponent << 23 | (uint32_t)(q >> 15));
}

/* Exponent + Q in two's complement; of a negative logarithm the bits are inverted. 36 bits after
 * the point remain, then 24 bits in all. */
float ordo_emulator_lg2(float x)
{
    const uint32_t bits = ordo_f32_bits(x), fraction = bits & FRACTION;
    const int field = (int)(bits >> 23 & 255);
    if (x != x || (field != 0 && bits >> 31))
        return ordo_f32_of_bits(NAN_BITS);
    if (field == 0)
        return -INFINITY;
    if (field == 255)
        return INFINITY;
    if (x == 1.0f)
        return 0.0f;
    const int64_t value = (int64_t)(field - 127) * (INT64_C(1) << 38) +
                          interpolate(lg2_rom, ORDO_LG2_BIAS, fraction, 17);
    const uint32_t sign = value < 0 ? 0x80000000u : 0;
    const uint64_t size = (uint64_t)(value < 0 ? ~value : value) >> 2;
    if (size == 0)
        return ordo_f32_of_bits(sign);
    const int top = 63 - __builtin_clzll(size);
    const uint64_t kept = top > 23 ? size >> (top - 23) : size << (23 - top);
    return ordo_f32_of_bits(sign | (uint32_t)(top - 36 + 127) << 23 | ((uint32_t)kept & FRACTION));
}

float ordo_emulator_rcp(float x)
{
    const uint32_t bits = ordo_f32_bits(x), fraction = bits & FRACTION, sign = bits & 0x80000000u;
    const int field = (int)(bits >> 23 & 255);
    if (x != x)
        return ordo_f32_of_bits(NAN_BITS);
    if (field == 255)
        return ordo_f32_of_bits(sign);
    if (field == 0)
        return ordo_f32_of_bits(sign | INFINITY_BITS);
    const int64_t q = interpolate(rcp_rom, ORDO_RCP_BIAS, fraction, 16);
    const uint32_t of_one =
        0x3f000000u + (uint32_t)(q >> 15); /* 1/2 and q units in its last place */
    const int exponent = (int)(of_one >> 23) - (field - 127);
    return ordo_f32_of_bits(exponent <= 0 ? sign
                                          : sign | (uint32_t)exponent << 23 | (of_one & FRACTION));
}

float ordo_emulator_log(float x)
{
    static const uint32_t polynomial[] = { 0xbe055027, 0x3e1039f6, 0xbdf8cdcc,
                                           0x3e0f2955, 0xbe2ad8b9, 0x3e4ced0b,
                                           0xbe7fff22, 0x3eaaaa78, 0xbf000000 };
    const bool small = x < 0x1p-126f;
    if (small)
        x *= 0x1p23f;
    const uint32_t bits = ordo_f32_bits(x);
    if (bits >= INFINITY_BITS) /* infinity, NaN and negative numbers; of those, -0 */
        return x == 0.0f ? -INFINITY : fmaf(x, INFINITY, INFINITY);
    /* x = 2^n (1 + m), 2/3 <= 1 + m < 4/3 */
    const uint32_t exponent = (bits - 0x3f2aaaabu) & 0xff800000u;
    const float m = ordo_f32_of_bits(bits - exponent) - 1.0f;
    const float n = fmaf((float)(int32_t)exponent, 0x1p-23f, small ? -23.0f : 0.0f);
    float y = ordo_f32_of_bits(polynomial[0]);
    for (int i = 1; i < 9; i++)
        y = fmaf(y, m, ordo_f32_of_bits(polynomial[i]));
    y = m * y;
    y = fmaf(y, m, m);
    y = fmaf(n, ordo_f32_of_bits(0x3f317218), y);
    return x == 0.0f ? -INFINITY : y;
}

uint16_t ordo_emulator_round(float x, ordo_dtype dtype)
{
    if (x != x)
        return 0x7fff;
    return dtype == ORDO_F16 ? ordo_f16_from_f32(x) : ordo_bf16_from_f32(x);
}
