/* kernels_avx512.c: the emulator's kernels for x86-64 with AVX-512; compiled with -mavx512f
 * -mavx512bw -mfma -mf16c. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define LANES 16

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef int16_t vs __attribute__((vector_size(64)));

static inline vs larger(vs a, vs b)
{
    return (vs)_mm512_max_epi16((__m512i)a, (__m512i)b);
}

static inline vs narrow(vi a, vi b)
{
    const __m256i low = _mm512_cvtepi32_epi16((__m512i)a), high = _mm512_cvtepi32_epi16((__m512i)b);
    return (vs)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static inline vi to_integer(vf a)
{
    return (vi)_mm512_cvttps_epi32((__m512)a);
}

static inline vi magnitude(vi a)
{
    return (vi)_mm512_abs_epi32((__m512i)a);
}

static inline vf to_float(vi size, vi total)
{
    (void)size;
    return (vf)_mm512_cvt_roundepi32_ps((__m512i)total, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

static inline vu settled(vu a)
{
    __asm__("" : "+v"(a));
    return a;
}

static inline bool any(vi a)
{
    return _mm512_test_epi32_mask((__m512i)a, (__m512i)a) != 0;
}

static inline vi from_table(const int32_t *table, vi index)
{
    return (vi)_mm512_i32gather_epi32((__m512i)index, table, 4);
}

static inline vf from_half(const uint16_t *from)
{
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

static inline void to_half(uint16_t *to, vf a)
{
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph((__m512)a, _MM_FROUND_TO_NEAREST_INT));
}

#include "emulator/kernels_body.h"

const ordo_emulator_kernels ordo_emulator_kernels_avx512 = EMULATOR_KERNELS("avx512");

#else
typedef int ordo_no_emulator_avx512; /* not this machine */
#endif
