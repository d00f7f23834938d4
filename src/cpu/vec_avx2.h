/* vec_avx2.h: vectors of eight floats on x86-64 with AVX2 and FMA. */
#ifndef CPU_VEC_AVX2_H
#define CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define LANES         8
#define BLOCK_WIDTH   1 /* in vectors of 16 */
#define FOR_PARTS(DO) DO(0) DO(1)
/* a product's register block: 8 accumulators, as many as two pipes keep busy */
#define FOR_ROWS(DO) DO(0) DO(1) DO(2) DO(3)

typedef __m256 lanes;

static inline lanes ln_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void ln_store(float *p, lanes a)
{
    _mm256_storeu_ps(p, a);
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
static inline lanes ln_less(lanes a, lanes b, lanes x, lanes y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline lanes ln_scale(lanes p, lanes shifted)
{
    const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n));
}
static inline lanes ln_abs(lanes a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static inline lanes ln_bit(const uint32_t *words, uint32_t bit)
{
    const __m256i place = _mm256_set1_epi32((int)bit);
    const __m256i set = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)words), place);
    const __m256i all = _mm256_cmpeq_epi32(set, place);
    return _mm256_and_ps(_mm256_castsi256_ps(all), _mm256_set1_ps(1.0f));
}

static inline float ln_sum(lanes a)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif
