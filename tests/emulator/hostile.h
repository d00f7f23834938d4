/* hostile.h: operands that are hard for a matrix product: every class of numbers, exponents near
 * and far from one another, sums that cancel, and accumulators around the sum. */
#ifndef TESTS_EMULATOR_HOSTILE_H
#define TESTS_EMULATOR_HOSTILE_H

#include "check.h"
#include "ordo/problem.h"

enum { HOSTILE_KINDS = 12 };

typedef struct hostile {
    uint64_t *state;
    ordo_dtype dtype;
    int kind, middle, spread; /* middle and spread of exponent fields */
} hostile;

static inline hostile hostile_make(uint64_t *state, ordo_dtype dtype, int kind)
{
    const int top = dtype == ORDO_F16 ? 31 : 255;
    return (hostile) { state, dtype, kind, (int)check_between(state, 1, top - 1),
                       (int)check_between(state, 1, dtype == ORDO_F16 ? 12 : 40) };
}

/* An element of operand 0 or 1. */
static inline uint16_t hostile_half(const hostile *h, int operand)
{
    const int bits = h->dtype == ORDO_F16 ? 10 : 7, top = 0x7fff >> bits;
    const uint64_t random = check_random(h->state);
    const int odds = (int)(random >> 32 & 1023);
    int field = h->middle + (int)(random >> 16 & 0xffff) % (2 * h->spread) - h->spread;
    switch (h->kind) {
    case 0: return (uint16_t)(random >> 48); /* any bits */
    case 1: /* any exponent */ field = (int)(random >> 16 & 0xffff) % top; break;
    case 2: /* mostly subnormal numbers and zeros */ field = odds < 700 ? 0 : field; break;
    case 3: /* products around 1 whatever the operands' exponents */
        field = operand ? h->middle : top - 1 - h->middle + odds % 8 - 4;
        break;
    case 4: /* products at the lower end of f32: -133 is E's floor */
        field = h->dtype == ORDO_F16 ? odds % 4 : (operand ? 100 : 0) + odds % 14;
        break;
    case 5: /* products at the upper end */
        field = h->dtype == ORDO_F16 ? top - 1 - odds % 2 : (operand ? 168 : 200) + odds % 9;
        break;
    case 6: /* equal largest significands, few of them negative: sums near 2^31 */
        return (uint16_t)((odds < 30) << 15 | (top / 2) << bits | ((1 << bits) - 1));
    case 7: /* powers of two that cancel */
        return (uint16_t)((odds & 1) << 15 | (top / 2 + odds / 2 % 3) << bits);
    default: break;
    }
    if (h->kind == 8 && odds < 700) /* mostly zeros of both signs */
        return (uint16_t)(random & 0x8000);
    if (h->kind == 9 && odds < 25) /* infinities and NaN */
        return (uint16_t)((random & 0x8000) | top << bits | (odds < 12 ? random & 1 : 0));
    if (h->kind == 10 && odds < 60) /* one large term and others at the limit of alignment */
        field += 24 + odds % 4;
    field = field < 0 ? 0 : field >= top ? top - 1 : field;
    return (uint16_t)((random & 0x8000) | (uint64_t)field << bits |
                      (random >> 40 & ((1 << bits) - 1)));
}

/* An accumulator, around the products in most cases. */
static inline uint32_t hostile_sum(const hostile *h)
{
    const uint64_t random = check_random(h->state);
    const int around = 2 * h->middle + (h->dtype == ORDO_F16 ? 97 : -127);
    const int field = around + (int)(random >> 40) % 60 - 30;
    uint32_t c = (uint32_t)random;
    if (random >> 32 & 3)
        c = (c & 0x807fffffu) | (uint32_t)(field < 0 ? 0 : field > 254 ? 254 : field) << 23;
    if (h->kind == 4 && h->dtype == ORDO_BF16)
        c &= 0x80ffffffu; /* tiny */
    if (h->kind == 5 && h->dtype == ORDO_BF16)
        c = (c | 0x7c000000u) & 0xff7fffffu; /* large */
    if ((random >> 34 & 7) < (h->kind == 4 ? 5 : 1))
        c &= 0x80000000u; /* zeros */
    if ((c >> 23 & 255) == 255 && h->kind != 9)
        c ^= 0x20000000u;
    return c;
}

#endif
