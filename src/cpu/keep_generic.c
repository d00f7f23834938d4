/* keep_generic.c: keep bits on any machine. */
#include <stdint.h>

#define LANES    4
#define TOGETHER 2
#define TARGET

typedef uint32_t vec __attribute__((vector_size(4 * LANES)));

static inline void wide(vec v, uint32_t m, vec *high, vec *low)
{
    vec up = { 0 }, down = { 0 };
    for (int l = 0; l < LANES; l++) {
        const uint64_t product = (uint64_t)v[l] * m;
        up[l] = (uint32_t)(product >> 32);
        down[l] = (uint32_t)product;
    }
    *high = up;
    *low = down;
}

#include "cpu/keep_body.h"

const ordo_keep_kernel ordo_keep_generic = { "generic", fill };
