/* decimal.h: plain decimal numbers from text, the same in every locale. */
#ifndef BASE_DECIMAL_H
#define BASE_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>

/* Read `digits[.digits][e[+-]digits]`, all of `text`: no sign, no space, no hex, no "nan".
 * False if it is not such a number, or has more than 15 significant digits or an exponent
 * so large that one rounding could not give the nearest double. */
bool ordo_decimal_read(const char *text, size_t length, double *value);

#endif
