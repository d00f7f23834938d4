/* keep_avx512.c: keep bits on x86-64 with AVX-512. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>

#define LANES    16
#define TOGETHER 2
#define TARGET   __attribute__((target("avx512f")))

typedef uint32_t vec __attribute__((vector_size(4 * LANES)));

/* As in keep_avx2.c. */
TARGET static inline void wide(vec v, uint32_t m, vec *high, vec *low)
{
    const __m512i factor = _mm512_set1_epi32((int)m), even = (__m512i)v;
    const __m512i a = _mm512_mul_epu32(even, factor);
    const __m512i b = _mm512_mul_epu32(_mm512_srli_epi64(even, 32), factor);
    *high = (vec)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(a, 32), b);
    *low = (vec)_mm512_mask_blend_epi32(0xaaaa, a, _mm512_slli_epi64(b, 32));
}

#include "cpu/keep_body.h"

const ordo_keep_kernel ordo_keep_avx512 = { "avx512", fill };

#else
typedef int ordo_no_keep_avx512; /* not this machine */
#endif
