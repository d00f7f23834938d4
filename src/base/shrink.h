/* shrink.h: the shift of the online softmax, and the factor by which a new maximum rescales
 * a row's sums. Scores are q.k; exponents are base 2. Plain C: tests/cuda/shrink_test.c.
 *
 * The shift is a rounded product, so that every element of a row is relative to the same number.
 * A new shift makes the sums so far smaller by exp2(old shift - new shift). Both products are
 * rounded before they are subtracted: a maximum that stays gives exactly 0, hence a factor of
 * exactly 1. A fused multiply-add would give the rounding error of the product, the same in every
 * key tile, and an error that grows with the number of keys. */
#ifndef BASE_SHRINK_H
#define BASE_SHRINK_H

#include <math.h>
#include <stdbool.h>

#include "base/hd.h"

/* What is subtracted from scaled scores; 0 for a row that has seen no key: its scores stay -inf. */
ORDO_HD float ordo_softmax_shift(float max, float scale_log2)
{
    return max == -INFINITY ? 0.0f : max * scale_log2;
}

/* The exponent of what the sums so far are multiplied by: at most 0; -inf if there are none. */
ORDO_HD float ordo_softmax_shrink(float old_max, float scale_log2, float shift)
{
    return old_max * scale_log2 - shift;
}

/* Whether the shift of a row may be off by more than 1/2; true of a row that has seen no key. An
 * f32 up to 2^24 is rounded by at most 1/2. exp2 of that error is a factor of every element of P
 * and of the row's sum, and cancels if P can hold it: up to 2^24 the largest element lies between
 * 2^-1/2 and 2^1/2. From 2^28 on it can be 2^16 or more, from 2^29 on 2^-32: in f16 infinity, and
 * 0. */
ORDO_HD bool ordo_softmax_far(float max, float scale_log2)
{
    return fabsf(max * scale_log2) > 0x1p24f;
}

#endif
