/* keep_avx2.c: keep bits on x86-64 with AVX2. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>

#define LANES    8
#define TOGETHER 2
#define TARGET   __attribute__((target("avx2")))

typedef uint32_t vec __attribute__((vector_size(4 * LANES)));

/* The instruction multiplies even lanes; odd ones are shifted down, and their products back. */
TARGET static inline void wide(vec v, uint32_t m, vec *high, vec *low)
{
    const __m256i factor = _mm256_set1_epi32((int)m), even = (__m256i)v;
    const __m256i a = _mm256_mul_epu32(even, factor);
    const __m256i b = _mm256_mul_epu32(_mm256_srli_epi64(even, 32), factor);
    *high = (vec)_mm256_blend_epi32(_mm256_srli_epi64(a, 32), b, 0xaa);
    *low = (vec)_mm256_blend_epi32(a, _mm256_slli_epi64(b, 32), 0xaa);
}

#include "cpu/keep_body.h"

const ordo_keep_kernel ordo_keep_avx2 = { "avx2", fill };

#else
typedef int ordo_no_keep_avx2; /* not this machine */
#endif
