/* keep_neon.c: keep bits on 64-bit ARM. */
#if defined(__aarch64__)

#include <arm_neon.h>

#define LANES    4
#define TOGETHER 4
#define TARGET

typedef uint32x4_t vec;

static inline void wide(vec v, uint32_t m, vec *high, vec *low)
{
    const uint32x4_t a = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(v), m));
    const uint32x4_t b = vreinterpretq_u32_u64(vmull_high_n_u32(v, m));
    *high = vuzp2q_u32(a, b);
    *low = vuzp1q_u32(a, b);
}

#include "cpu/keep_body.h"

const ordo_keep_kernel ordo_keep_neon = { "neon", fill };

#else
typedef int ordo_no_keep_neon; /* not this machine */
#endif
