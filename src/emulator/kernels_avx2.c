/* kernels_avx2.c: the emulator's kernels for x86-64 with AVX2; compiled with -mavx2 -mfma -mf16c.
 */
#if defined(__x86_64__)

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define LANES 8

typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));
typedef uint32_t vu __attribute__((vector_size(32)));
typedef int16_t vs __attribute__((vector_size(32)));

static inline vs larger(vs a, vs b)
{
    return (vs)_mm256_max_epi16((__m256i)a, (__m256i)b);
}

static inline vs narrow(vi a, vi b)
{
    return (vs)_mm256_permute4x64_epi64(_mm256_packs_epi32((__m256i)a, (__m256i)b), 0xd8);
}

static inline vi to_integer(vf a)
{
    return (vi)_mm256_cvttps_epi32((__m256)a);
}

static inline vi magnitude(vi a)
{
    return (vi)_mm256_abs_epi32((__m256i)a);
}

/* Without the bit below the last one that fits, and perhaps others below it, nothing rounds up: if
 * the size has more than 24 bits, size >> 24 begins with that bit. */
static inline vf to_float(vi size, vi total)
{
    const __m256i bits = (__m256i)size;
    const __m256i exact = _mm256_andnot_si256(_mm256_srli_epi32(bits, 24), bits);
    return (vf)_mm256_cvtepi32_ps(_mm256_sign_epi32(exact, (__m256i)total));
}

static inline vu settled(vu a)
{
    __asm__("" : "+x"(a));
    return a;
}

static inline bool any(vi a)
{
    return !_mm256_testz_si256((__m256i)a, (__m256i)a);
}

static inline vi from_table(const int32_t *table, vi index)
{
    return (vi)_mm256_i32gather_epi32(table, (__m256i)index, 4);
}

static inline vf from_half(const uint16_t *from)
{
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

static inline void to_half(uint16_t *to, vf a)
{
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph((__m256)a, _MM_FROUND_TO_NEAREST_INT));
}

#include "emulator/kernels_body.h"

const ordo_emulator_kernels ordo_emulator_kernels_avx2 = EMULATOR_KERNELS("avx2");

#else
typedef int ordo_no_emulator_avx2; /* not this machine */
#endif
