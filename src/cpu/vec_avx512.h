/* vec_avx512.h: vectors of sixteen floats on x86-64 with AVX-512F. */
#ifndef CPU_VEC_AVX512_H
#define CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "base/half.h"

#define LANES         16
#define FOR_PARTS(DO) DO(0)
/* a product's register block, in rows and vectors of 16: 24 sums, 4 vectors and a scalar */
enum { BLOCK_ROWS = 6, BLOCK_WIDTH = 4 };

typedef __m512 lanes;

static inline lanes ln_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void ln_store(float *p, lanes a)
{
    _mm512_storeu_ps(p, a);
}
static inline lanes ln_from_bf16(const uint16_t *p)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline lanes ln_from_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void ln_to_f16(uint16_t *p, lanes a)
{
    const lanes nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)ORDO_F32_NAN));
    const lanes canonical = _mm512_mask_mov_ps(nan, _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), a);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(canonical, _MM_FROUND_TO_NEAREST_INT));
}
static inline lanes ln_all(float a)
{
    return _mm512_set1_ps(a);
}
static inline lanes ln_fma(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline lanes ln_settle(lanes a)
{
    return a;
}
static inline lanes ln_mul(lanes a, lanes b)
{
    return _mm512_mul_ps(a, b);
}
static inline lanes ln_add(lanes a, lanes b)
{
    return _mm512_add_ps(a, b);
}
static inline lanes ln_sub(lanes a, lanes b)
{
    return _mm512_sub_ps(a, b);
}
static inline lanes ln_div(lanes a, lanes b)
{
    return _mm512_div_ps(a, b);
}
static inline lanes ln_max(lanes a, lanes b)
{
    return _mm512_max_ps(a, b); /* a > b ? a : b, also for NaN and zeros */
}
static inline lanes ln_min(lanes a, lanes b)
{
    return _mm512_min_ps(a, b); /* b if either is NaN */
}
static inline lanes ln_less(lanes a, lanes b, lanes x, lanes y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
static inline lanes ln_scale(lanes q, lanes shifted, lanes whole, lanes t)
{
    (void)shifted;
    const __mmask16 above = _mm512_cmp_ps_mask(t, _mm512_set1_ps(-126), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(above, q, whole);
}
static inline lanes ln_abs(lanes a)
{
    return _mm512_abs_ps(a);
}
static inline lanes ln_keep(lanes a, const uint32_t *words, uint32_t bit)
{
    const __m512i all = _mm512_loadu_si512(words);
    const __mmask16 set = _mm512_test_epi32_mask(all, _mm512_set1_epi32((int)bit));
    return _mm512_maskz_mov_ps(set, a);
}

/* Quarters of rows y, y+4, y+8 and y+12 meet when they are loaded; then pairs, then fours. */
static inline lanes quarters(const float *from)
{
    lanes a = _mm512_castps128_ps512(_mm_loadu_ps(from));
    a = _mm512_insertf32x4(a, _mm_loadu_ps(from + 64), 1);
    a = _mm512_insertf32x4(a, _mm_loadu_ps(from + 128), 2);
    return _mm512_insertf32x4(a, _mm_loadu_ps(from + 192), 3);
}
static inline void ln_transpose(const float *from, float *to, ptrdiff_t ld)
{
    for (int x = 0; x < 16; x += 4, to += 4 * ld) {
        const lanes a = quarters(from + x), b = quarters(from + x + 16),
                    c = quarters(from + x + 32), d = quarters(from + x + 48);
        const lanes ab0 = _mm512_unpacklo_ps(a, b), ab1 = _mm512_unpackhi_ps(a, b);
        const lanes cd0 = _mm512_unpacklo_ps(c, d), cd1 = _mm512_unpackhi_ps(c, d);
        ln_store(to, _mm512_shuffle_ps(ab0, cd0, 0x44));
        ln_store(to + ld, _mm512_shuffle_ps(ab0, cd0, 0xee));
        ln_store(to + 2 * ld, _mm512_shuffle_ps(ab1, cd1, 0x44));
        ln_store(to + 3 * ld, _mm512_shuffle_ps(ab1, cd1, 0xee));
    }
}

static inline __m256 ln_low(lanes a)
{
    return _mm512_castps512_ps256(a);
}
static inline __m256 ln_high(lanes a)
{
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
}
static inline float ln_sum(lanes a)
{
    const __m256 eight = _mm256_add_ps(ln_low(a), ln_high(a));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif
