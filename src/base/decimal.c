/* decimal.c: strtod() reads a comma in some locales, so we do not use it. With at most 15
 * digits the mantissa is exact in a double, and so is a power of ten up to 10^22: one
 * multiplication or division then rounds once, correctly. */
#include "base/decimal.h"

#include <stdint.h>

enum { DIGITS_MAX = 15, POWER_MAX = 22 };

typedef struct cursor {
    const char *at, *end;
} cursor;

static bool is_digit(const cursor *c)
{
    return c->at < c->end && *c->at >= '0' && *c->at <= '9';
}

static bool take(cursor *c, char wanted)
{
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

/* Append digits to the mantissa; `significant` counts them from the first that is not 0. */
static bool digits(cursor *c, uint64_t *mantissa, int *significant, int *read)
{
    *read = 0;
    for (; is_digit(c); c->at++, (*read)++) {
        if (*mantissa != 0 || *c->at != '0')
            (*significant)++;
        if (*significant > DIGITS_MAX || *read > 1000)
            return false;
        *mantissa = *mantissa * 10 + (uint64_t)(*c->at - '0');
    }
    return *read > 0;
}

static bool exponent(cursor *c, int *power)
{
    const bool negative = take(c, '-');
    if (!negative)
        (void)take(c, '+');
    if (!is_digit(c))
        return false;
    int magnitude = 0;
    for (; is_digit(c); c->at++) {
        magnitude = magnitude * 10 + (*c->at - '0');
        if (magnitude > 2000)
            return false;
    }
    *power += negative ? -magnitude : magnitude;
    return true;
}

bool ordo_decimal_read(const char *text, size_t length, double *value)
{
    cursor c = { text, text + length };
    uint64_t mantissa = 0;
    int significant = 0, whole, fraction = 0, power = 0;

    if (!digits(&c, &mantissa, &significant, &whole))
        return false;
    if (take(&c, '.') && !digits(&c, &mantissa, &significant, &fraction))
        return false;
    power -= fraction;
    if ((take(&c, 'e') || take(&c, 'E')) && !exponent(&c, &power))
        return false;
    if (c.at != c.end || power > POWER_MAX || power < -POWER_MAX)
        return false;

    double scale = 1;
    for (int i = 0; i < (power < 0 ? -power : power); i++)
        scale *= 10; /* exact up to 10^22 */
    *value = power < 0 ? (double)mantissa / scale : (double)mantissa * scale;
    return true;
}
