/* checked.h: products and sums of sizes that say when they do not fit. */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* *total = *total * factor; false, leaving *total alone, if that does not fit. */
static inline bool ordo_mul_fits(uint64_t *total, uint64_t factor)
{
    uint64_t product;
    if (__builtin_mul_overflow(*total, factor, &product))
        return false;
    *total = product;
    return true;
}

/* *total = *total + term; false, leaving *total alone, if that does not fit. */
static inline bool ordo_add_fits(uint64_t *total, uint64_t term)
{
    uint64_t sum;
    if (__builtin_add_overflow(*total, term, &sum))
        return false;
    *total = sum;
    return true;
}

#endif
