/* random.c: seeded numbers for inputs: integers and one product, the same on every machine. */
#include "kit/random.h"

#include <math.h>
#include <string.h>

uint64_t cli_random_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The sum of four 16-bit uniform numbers, centred, has nearly a normal distribution; the
 * factor makes its variance one. Integers and one product: the same on every machine. */
double cli_random_normal(uint64_t key)
{
    const uint64_t bits = cli_random_mix(key);
    int64_t sum = -2 * 65535;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(bits >> 16 * i & 0xffff);
    return (double)sum * 0x1.bb67ae8584caap-16; /* sqrt(3) / 65536 */
}

/* Round to nearest, ties to even; such a number never comes near overflow. */
static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The same of a format with `digits` binary digits whose smallest normal number is 2^(least - 1);
 * `sign`: its bit. */
static uint32_t to_small(double x, int digits, int least, uint32_t sign)
{
    int exponent;
    const double size = fabs(x);
    (void)frexp(size, &exponent); /* size = m * 2^exponent, m in [1/2, 1) */
    if (exponent < least || size == 0)
        exponent = least; /* the spacing of subnormal numbers is that of the smallest normal ones */
    const uint32_t units = (uint32_t)rint(ldexp(size, digits - exponent));
    /* A carry out of the digits moves the exponent up by itself. */
    const uint32_t bits = units + ((uint32_t)(exponent - least) << (digits - 1));
    return bits | (signbit(x) ? sign : 0);
}

void cli_random_put(void *data, ordo_dtype dtype, int64_t index, uint64_t key)
{
    const double value = cli_random_normal(key);
    if (dtype == ORDO_F32)
        ((float *)data)[index] = (float)value;
    else if (dtype == ORDO_BF16)
        ((uint16_t *)data)[index] = to_bf16((float)value);
    else if (dtype == ORDO_F16)
        ((uint16_t *)data)[index] = (uint16_t)to_small(value, 11, -13, 0x8000);
    else
        ((uint8_t *)data)[index] = (uint8_t)to_small(value, 4, -5, 0x80);
}
