/* vec_neon.h: vectors of four floats on 64-bit ARM. */
#ifndef CPU_VEC_NEON_H
#define CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/half.h"

#define LANES         4
#define FOR_PARTS(DO) DO(0) DO(1) DO(2) DO(3)
enum { BLOCK_ROWS = 4, BLOCK_WIDTH = 1 }; /* 16 sums, as many as four pipes keep busy */

typedef float32x4_t lanes;

static inline lanes ln_load(const float *p)
{
    return vld1q_f32(p);
}
static inline void ln_store(float *p, lanes a)
{
    vst1q_f32(p, a);
}
static inline lanes ln_from_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline lanes ln_from_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline void ln_to_f16(uint16_t *p, lanes a)
{
    const lanes canonical =
        vbslq_f32(vceqq_f32(a, a), a, vreinterpretq_f32_u32(vdupq_n_u32(ORDO_F32_NAN)));
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(canonical)));
}
static inline lanes ln_all(float a)
{
    return vdupq_n_f32(a);
}
static inline lanes ln_fma(lanes a, lanes b, lanes c)
{
    return vfmaq_f32(c, a, b);
}
/* Have it computed by here: gcc orders operations by chains, and the core, which looks ahead only
 * so far, wants those of different chains side by side. */
static inline lanes ln_settle(lanes a)
{
    __asm__ volatile("" : "+w"(a));
    return a;
}
static inline lanes ln_mul(lanes a, lanes b)
{
    return vmulq_f32(a, b);
}
static inline lanes ln_add(lanes a, lanes b)
{
    return vaddq_f32(a, b);
}
static inline lanes ln_sub(lanes a, lanes b)
{
    return vsubq_f32(a, b);
}
static inline lanes ln_div(lanes a, lanes b)
{
    return vdivq_f32(a, b);
}
static inline lanes ln_max(lanes a, lanes b)
{
    return vmaxnmq_f32(a, b); /* but for the sign of a zero, which no result shows */
}
static inline lanes ln_min(lanes a, lanes b)
{
    return vminq_f32(a, b);
}
static inline lanes ln_less(lanes a, lanes b, lanes x, lanes y)
{
    return vbslq_f32(vcltq_f32(a, b), x, y);
}
static inline lanes ln_scale(lanes q, lanes shifted, lanes whole, lanes t)
{
    const uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23);
    const uint32x4_t scaled = vaddq_u32(vreinterpretq_u32_f32(q), n);
    (void)whole;
    return vreinterpretq_f32_u32(vbicq_u32(scaled, vcltq_f32(t, vdupq_n_f32(-126))));
}
static inline lanes ln_abs(lanes a)
{
    return vabsq_f32(a);
}
static inline lanes ln_keep(lanes a, const uint32_t *words, uint32_t bit)
{
    const uint32x4_t set = vtstq_u32(vld1q_u32(words), vdupq_n_u32(bit));
    return vreinterpretq_f32_u32(vandq_u32(set, vreinterpretq_u32_f32(a)));
}

static inline float ln_sum(lanes a)
{
    const float32x2_t two = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* Four vectors as the columns of a 4 x 4 block whose rows are `ld` apart. */
static inline void transpose(lanes a, lanes b, lanes c, lanes d, float *to, ptrdiff_t ld)
{
    const float64x2_t ab0 = vreinterpretq_f64_f32(vtrn1q_f32(a, b)),
                      ab1 = vreinterpretq_f64_f32(vtrn2q_f32(a, b)),
                      cd0 = vreinterpretq_f64_f32(vtrn1q_f32(c, d)),
                      cd1 = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
    vst1q_f32(to, vreinterpretq_f32_f64(vtrn1q_f64(ab0, cd0)));
    vst1q_f32(to + ld, vreinterpretq_f32_f64(vtrn1q_f64(ab1, cd1)));
    vst1q_f32(to + 2 * ld, vreinterpretq_f32_f64(vtrn2q_f64(ab0, cd0)));
    vst1q_f32(to + 3 * ld, vreinterpretq_f32_f64(vtrn2q_f64(ab1, cd1)));
}

static inline void ln_transpose(const float *from, float *to, ptrdiff_t ld)
{
    for (int y = 0; y < 16; y += 4, from += 64)
        for (int x = 0; x < 16; x += 4)
            transpose(vld1q_f32(from + x), vld1q_f32(from + 16 + x), vld1q_f32(from + 32 + x),
                      vld1q_f32(from + 48 + x), to + x * ld + y, ld);
}

/* The register block by hand, for scalars that lie side by side: four come with one load and are
 * used lane by lane. Each element's chain over k is that of the generic block. A Neoverse V1
 * multiplies at full rate only by what was loaded just before, so that scalars kept for several
 * steps, or loaded one by one, cost a fifth of it. */
#define TARGET_BLOCK
static inline void target_block(int k, const float *a, int a_k, const float *b, int ldb, float *c,
                                int ldc, bool add)
{
    enum { AHEAD = 4 }; /* steps from a prefetch to its use */
#define DO(i)                                                                                      \
    float *c##i = c + (ptrdiff_t)(i)*ldc;                                                          \
    float32x4_t s##i##0 = vdupq_n_f32(0), s##i##1 = s##i##0, s##i##2 = s##i##0, s##i##3 = s##i##0; \
    if (add) {                                                                                     \
        s##i##0 = vld1q_f32(c##i);                                                                 \
        s##i##1 = vld1q_f32(c##i + 4);                                                             \
        s##i##2 = vld1q_f32(c##i + 8);                                                             \
        s##i##3 = vld1q_f32(c##i + 12);                                                            \
    }
    FOR_PARTS(DO)
#undef DO
#pragma GCC unroll 4 /* a short loop runs at 0.88 or 0.94 of the peak, by where it lies */
    for (int x = 0; x < k; x++, a += a_k, b += ldb) {
        __asm__ volatile("" ::: "memory"); /* or gcc gathers the loads of all four steps */
        __builtin_prefetch(a + AHEAD * (ptrdiff_t)a_k);
        const float32x4_t scalars = vld1q_f32(a), b0 = vld1q_f32(b), b1 = vld1q_f32(b + 4),
                          b2 = vld1q_f32(b + 8), b3 = vld1q_f32(b + 12);
#define DO(i)                                                                                      \
    s##i##0 = vfmaq_laneq_f32(s##i##0, b0, scalars, i);                                            \
    s##i##1 = vfmaq_laneq_f32(s##i##1, b1, scalars, i);                                            \
    s##i##2 = vfmaq_laneq_f32(s##i##2, b2, scalars, i);                                            \
    s##i##3 = vfmaq_laneq_f32(s##i##3, b3, scalars, i);
        FOR_PARTS(DO)
#undef DO
    }
#define DO(i)                                                                                      \
    vst1q_f32(c##i, s##i##0);                                                                      \
    vst1q_f32(c##i + 4, s##i##1);                                                                  \
    vst1q_f32(c##i + 8, s##i##2);                                                                  \
    vst1q_f32(c##i + 12, s##i##3);
    FOR_PARTS(DO)
#undef DO
}

/* Four rows of scalars put side by side: to[4 x + i] = a[i a_row + x a_k]. */
static inline void target_gather(float *to, int k, const float *a, int a_row, int a_k)
{
    const float *r0 = a, *r1 = r0 + a_row, *r2 = r1 + a_row, *r3 = r2 + a_row;
    int x = 0;
    for (; a_k == 1 && x + 4 <= k; x += 4)
        transpose(vld1q_f32(r0 + x), vld1q_f32(r1 + x), vld1q_f32(r2 + x), vld1q_f32(r3 + x),
                  to + 4 * (ptrdiff_t)x, 4);
    for (; x < k; x++) {
        const ptrdiff_t at = (ptrdiff_t)x * a_k, out = 4 * (ptrdiff_t)x;
        to[out] = r0[at];
        to[out + 1] = r1[at];
        to[out + 2] = r2[at];
        to[out + 3] = r3[at];
    }
}

#endif
