/* vec_avx2.h: vectors of eight floats on x86-64 with AVX2 and FMA. */
#ifndef CPU_VEC_AVX2_H
#define CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "base/half.h"

#define LANES         8
#define FOR_PARTS(DO) DO(0) DO(1)
/* a product's register block, in rows and vectors of 16: 12 sums, 2 vectors and a scalar */
enum { BLOCK_ROWS = 6, BLOCK_WIDTH = 1 };

typedef __m256 lanes;

static inline lanes ln_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void ln_store(float *p, lanes a)
{
    _mm256_storeu_ps(p, a);
}
static inline lanes ln_from_bf16(const uint16_t *p)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline lanes ln_from_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline void ln_to_f16(uint16_t *p, lanes a)
{
    const lanes nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)ORDO_F32_NAN));
    const lanes canonical = _mm256_blendv_ps(nan, a, _mm256_cmp_ps(a, a, _CMP_ORD_Q));
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(canonical, _MM_FROUND_TO_NEAREST_INT));
}
static inline lanes ln_all(float a)
{
    return _mm256_set1_ps(a);
}
static inline lanes ln_fma(lanes a, lanes b, lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline lanes ln_settle(lanes a)
{
    return a;
}
static inline lanes ln_mul(lanes a, lanes b)
{
    return _mm256_mul_ps(a, b);
}
static inline lanes ln_add(lanes a, lanes b)
{
    return _mm256_add_ps(a, b);
}
static inline lanes ln_sub(lanes a, lanes b)
{
    return _mm256_sub_ps(a, b);
}
static inline lanes ln_div(lanes a, lanes b)
{
    return _mm256_div_ps(a, b);
}
static inline lanes ln_max(lanes a, lanes b)
{
    return _mm256_max_ps(a, b); /* a > b ? a : b, also for NaN and zeros */
}
static inline lanes ln_min(lanes a, lanes b)
{
    return _mm256_min_ps(a, b); /* b if either is NaN */
}
static inline lanes ln_less(lanes a, lanes b, lanes x, lanes y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline lanes ln_scale(lanes q, lanes shifted, lanes whole, lanes t)
{
    const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    const __m256i scaled = _mm256_add_epi32(_mm256_castps_si256(q), n);
    const lanes below = _mm256_cmp_ps(t, _mm256_set1_ps(-126), _CMP_LT_OQ);
    (void)whole;
    return _mm256_andnot_ps(below, _mm256_castsi256_ps(scaled));
}
static inline lanes ln_abs(lanes a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static inline lanes ln_keep(lanes a, const uint32_t *words, uint32_t bit)
{
    const __m256i place = _mm256_set1_epi32((int)bit);
    const __m256i set = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)words), place);
    const __m256i all = _mm256_cmpeq_epi32(set, place);
    return _mm256_and_ps(_mm256_castsi256_ps(all), a);
}

/* Two rows as pairs of columns, then pairs as fours; halves meet when rows are loaded. */
static inline void transpose_8(const float *from, float *to, ptrdiff_t ld)
{
#define HALVES(y, x)                                                                               \
    _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + 16 * (y) + (x))),              \
                         _mm_loadu_ps(from + 16 * ((y) + 4) + (x)), 1)
    for (int x = 0; x < 8; x += 4, to += 4 * ld) {
        const lanes a = HALVES(0, x), b = HALVES(1, x), c = HALVES(2, x), d = HALVES(3, x);
        const lanes ab0 = _mm256_unpacklo_ps(a, b), ab1 = _mm256_unpackhi_ps(a, b);
        const lanes cd0 = _mm256_unpacklo_ps(c, d), cd1 = _mm256_unpackhi_ps(c, d);
        ln_store(to, _mm256_shuffle_ps(ab0, cd0, 0x44));
        ln_store(to + ld, _mm256_shuffle_ps(ab0, cd0, 0xee));
        ln_store(to + 2 * ld, _mm256_shuffle_ps(ab1, cd1, 0x44));
        ln_store(to + 3 * ld, _mm256_shuffle_ps(ab1, cd1, 0xee));
    }
#undef HALVES
}
static inline void ln_transpose(const float *from, float *to, ptrdiff_t ld)
{
    for (int y = 0; y < 16; y += 8)
        for (int x = 0; x < 16; x += 8)
            transpose_8(from + 16 * y + x, to + x * ld + y, ld);
}

static inline float ln_sum(lanes a)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif
