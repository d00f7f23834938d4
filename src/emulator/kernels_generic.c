/* kernels_generic.c: the emulator's kernels for any machine. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

#define LANES 4

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef int16_t vs __attribute__((vector_size(16)));

static inline vs larger(vs a, vs b)
{
    const vs mask = a > b;
    return (a & mask) | (b & ~mask);
}

static inline vs narrow(vi a, vi b)
{
    return (vs) { (int16_t)a[0], (int16_t)a[1], (int16_t)a[2], (int16_t)a[3],
                  (int16_t)b[0], (int16_t)b[1], (int16_t)b[2], (int16_t)b[3] };
}

static inline vi to_integer(vf a)
{
    vi y = { 0 };
    for (int i = 0; i < LANES; i++) /* the cast is undefined outside */
        y[i] = fabsf(a[i]) < 0x1p31f ? (int32_t)a[i] : 0;
    return y;
}

static inline vi magnitude(vi a)
{
    const vi sign = a < 0; /* -1 or 0 */
    return (vi)(((vu)a ^ (vu)sign) - (vu)sign);
}

/* Without the bit below the last one that fits, and perhaps others below it, nothing rounds up: if
 * the size has more than 24 bits, size >> 24 begins with that bit. */
static inline vf to_float(vi size, vi total)
{
    const vi exact = size & ~(vi)((vu)size >> 24);
    return (vf)((vi) __builtin_convertvector(exact, vf) | (total & INT32_MIN));
}

static inline vu settled(vu a)
{
    return a;
}

static inline bool any(vi a)
{
    return (a[0] | a[1] | a[2] | a[3]) != 0;
}

static inline vi from_table(const int32_t *table, vi index)
{
    return (vi) { table[index[0]], table[index[1]], table[index[2]], table[index[3]] };
}

static inline vf from_half(const uint16_t *from)
{
    return (vf) { ordo_f32_from_f16(from[0]), ordo_f32_from_f16(from[1]),
                  ordo_f32_from_f16(from[2]), ordo_f32_from_f16(from[3]) };
}

static inline void to_half(uint16_t *to, vf a)
{
    for (int i = 0; i < LANES; i++)
        to[i] = ordo_f16_from_f32(a[i]);
}

#include "emulator/kernels_body.h"

const ordo_emulator_kernels ordo_emulator_kernels_generic = EMULATOR_KERNELS("generic");
