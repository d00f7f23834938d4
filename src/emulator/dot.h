/* dot.h: one step of a matrix product of a GPU, d = c + a_0 b_0 + ... + a_15 b_15, bit for bit:
 * bf16 or f16 in, f32 out, or of 32 products of e4m3. This is the definition; product.h computes
 * the same for whole tiles of bf16 and f16.
 *
 * Write a = m_a 2^(e_a - f) with an integer m_a, where f is the number of stored fraction bits (7
 * of bf16, 10 of f16, 3 of e4m3) and e_a the exponent; a subnormal number has the smallest normal
 * exponent. Likewise c with f = 23. All terms of a sum are aligned to
 *
 *   E = max(-133, e_c if c is not 0, e_a + e_b of every product that is not 0)
 *
 * and truncated at 2^(E - fraction); a product is not normalised before. The truncated terms
 * are added exactly, and the sum is truncated to an f32 of `result` fraction bits. Zeros count
 * nothing, whatever the other factor is. A sum that underflows or vanishes is +0. Products beyond
 * the range of f32 may cancel. NaN, inf * 0 and inf - inf give 0x7fffffff.
 *
 * These are measurements of hardware, not a specification: docs/design/emulator.md. */
#ifndef EMULATOR_DOT_H
#define EMULATOR_DOT_H

#include <stddef.h>
#include <stdint.h>

#include "ordo/problem.h"

typedef struct ordo_emulator_arithmetic {
    const char *name;
    int fraction; /* bits of an aligned term after the point of 2^E */
    int terms;    /* products of one sum: 16, or 8 and then 8 more with the first result as c */
    int result;   /* fraction bits of the result */
} ordo_emulator_arithmetic;

/* wgmma and mma.sync m16n8k16 of an H200: compared with 480 million outputs. */
extern const ordo_emulator_arithmetic ordo_emulator_hopper;

/* mma.sync m16n8k16 of an A100, as publications describe it. NOT VERIFIED on a device by us. */
extern const ordo_emulator_arithmetic ordo_emulator_ampere;

/* wgmma m64nNk32 of e4m3 of an H200: compared with 1.6 million outputs. */
extern const ordo_emulator_arithmetic ordo_emulator_hopper_e4m3;

/* One step; `dtype` is ORDO_BF16 or ORDO_F16, c and the result are bits of f32. */
uint32_t ordo_emulator_dot(const ordo_emulator_arithmetic *arithmetic, ordo_dtype dtype,
                           const uint16_t a[16], const uint16_t b[16], uint32_t c);

/* The same of 32 products of e4m3. */
uint32_t ordo_emulator_dot_e4m3(const ordo_emulator_arithmetic *arithmetic, const uint8_t a[32],
                                const uint8_t b[32], uint32_t c);

/* ordo_emulator_dot() of operands that were converted to f32, which is exact; b is strided. */
float ordo_emulator_dot_values(const ordo_emulator_arithmetic *arithmetic, ordo_dtype dtype,
                               const float a[16], const float *b, ptrdiff_t b_stride, float c);

#endif
