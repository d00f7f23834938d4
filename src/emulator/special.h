/* special.h: the functions of a Hopper kernel other than products and IEEE operations, bit for bit.
 *
 * ex2, lg2 and rcp are ex2.approx.ftz.f32 and so on: quadratic interpolations in integers by the
 * special function unit. The upper bits of a fraction of 23 bits select a segment, x is the rest:
 *
 *   Q = 4096 c0 + bias + c1 x + c2 sq(x)      in units of 2^-38
 *
 * where sq(x) is a square that was added without its columns below 2^s, divided by 2^s. Equal to an
 * H200 for all 2^32 arguments of each. */
#ifndef EMULATOR_SPECIAL_H
#define EMULATOR_SPECIAL_H

#include <stdint.h>

#include "ordo/problem.h"

float ordo_emulator_ex2(float x);
float ordo_emulator_lg2(float x);
float ordo_emulator_rcp(float x);

/* x[i] = ordo_emulator_ex2(x[i]), i < n. */
void ordo_emulator_ex2_row(float *x, int n);

/* logf() as nvcc 13.0 compiles it; round to nearest. A NaN is some NaN. */
float ordo_emulator_log(float x);

/* cvt.rn.bf16.f32 and cvt.rn.f16.f32: ties to even, subnormal numbers kept, NaN is 0x7fff. */
uint16_t ordo_emulator_round(float x, ordo_dtype dtype);

/* to[i] = ordo_emulator_round(x[i], dtype), i < n. */
void ordo_emulator_round_row(uint16_t *to, const float *x, int n, ordo_dtype dtype);

#endif
