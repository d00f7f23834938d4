/* vec_neon.h: vectors of four floats on 64-bit ARM. */
#ifndef CPU_VEC_NEON_H
#define CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>

#define LANES         4
#define BLOCK_WIDTH   1 /* in vectors of 16 */
#define FOR_PARTS(DO) DO(0) DO(1) DO(2) DO(3)
/* a product's register block: 16 accumulators, as many as four pipes keep busy */
#define FOR_ROWS(DO) DO(0) DO(1) DO(2) DO(3)

typedef float32x4_t lanes;

static inline lanes ln_load(const float *p)
{
    return vld1q_f32(p);
}
static inline void ln_store(float *p, lanes a)
{
    vst1q_f32(p, a);
}
static inline lanes ln_all(float a)
{
    return vdupq_n_f32(a);
}
static inline lanes ln_fma(lanes a, lanes b, lanes c)
{
    return vfmaq_f32(c, a, b);
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
static inline lanes ln_less(lanes a, lanes b, lanes x, lanes y)
{
    return vbslq_f32(vcltq_f32(a, b), x, y);
}
static inline lanes ln_scale(lanes p, lanes shifted)
{
    const uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), n));
}
static inline lanes ln_abs(lanes a)
{
    return vabsq_f32(a);
}
static inline lanes ln_bit(const uint32_t *words, uint32_t bit)
{
    const uint32x4_t set = vtstq_u32(vld1q_u32(words), vdupq_n_u32(bit));
    return vreinterpretq_f32_u32(vandq_u32(set, vdupq_n_u32(0x3f800000)));
}

static inline float ln_sum(lanes a)
{
    const float32x2_t two = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* The register block by hand: four scalars come with one load and are used lane by lane, which
 * takes a third off the instructions. Each element's chain over k is that of the generic block. */
#define TARGET_BLOCK
#define COLUMNS(b)                                                                                 \
    const float32x4_t b0 = vld1q_f32(b), b1 = vld1q_f32((b) + 4), b2 = vld1q_f32((b) + 8),         \
                      b3 = vld1q_f32((b) + 12);
#define ROW(i, scalars, lane)                                                                      \
    s##i##0 = vfmaq_laneq_f32(s##i##0, b0, scalars, lane);                                         \
    s##i##1 = vfmaq_laneq_f32(s##i##1, b1, scalars, lane);                                         \
    s##i##2 = vfmaq_laneq_f32(s##i##2, b2, scalars, lane);                                         \
    s##i##3 = vfmaq_laneq_f32(s##i##3, b3, scalars, lane);

static inline void target_block(int k, const float *a, int a_row, int a_k, const float *b, int ldb,
                                float *c, int ldc, bool add)
{
#define DO(i)                                                                                      \
    float *c##i = c + (ptrdiff_t)(i)*ldc;                                                          \
    float32x4_t s##i##0 = vdupq_n_f32(0), s##i##1 = s##i##0, s##i##2 = s##i##0, s##i##3 = s##i##0; \
    if (add) {                                                                                     \
        s##i##0 = vld1q_f32(c##i);                                                                 \
        s##i##1 = vld1q_f32(c##i + 4);                                                             \
        s##i##2 = vld1q_f32(c##i + 8);                                                             \
        s##i##3 = vld1q_f32(c##i + 12);                                                            \
    }
    FOR_ROWS(DO)
#undef DO
    int x = 0;
    if (a_k == 1) { /* four steps of each row at a time; the barrier keeps gcc from loading the
                       columns of all four first, and spilling */
        const float *r0 = a, *r1 = a + a_row, *r2 = r1 + a_row, *r3 = r2 + a_row;
        for (; x + 4 <= k; x += 4, b += 4 * (ptrdiff_t)ldb) {
            const float32x4_t a0 = vld1q_f32(r0 + x), a1 = vld1q_f32(r1 + x),
                              a2 = vld1q_f32(r2 + x), a3 = vld1q_f32(r3 + x);
#define STEP(lane)                                                                                 \
    {                                                                                              \
        __asm__ volatile("" ::: "memory");                                                         \
        COLUMNS(b + (lane) * (ptrdiff_t)ldb)                                                       \
        ROW(0, a0, lane) ROW(1, a1, lane) ROW(2, a2, lane) ROW(3, a3, lane)                        \
    }
            STEP(0) STEP(1) STEP(2) STEP(3)
#undef STEP
        }
    } else if (a_row == 1) { /* all rows of one step */
        for (; x < k; x++, b += ldb) {
            const float32x4_t scalars = vld1q_f32(a + (ptrdiff_t)x * a_k);
            COLUMNS(b)
            ROW(0, scalars, 0) ROW(1, scalars, 1) ROW(2, scalars, 2) ROW(3, scalars, 3)
        }
    }
    for (; x < k; x++, b += ldb) {
        COLUMNS(b)
#define DO(i)                                                                                      \
    {                                                                                              \
        const float32x4_t one = vdupq_n_f32(a[(ptrdiff_t)(i)*a_row + (ptrdiff_t)x * a_k]);         \
        ROW(i, one, 0)                                                                             \
    }
        FOR_ROWS(DO)
#undef DO
    }
#define DO(i)                                                                                      \
    vst1q_f32(c##i, s##i##0);                                                                      \
    vst1q_f32(c##i + 4, s##i##1);                                                                  \
    vst1q_f32(c##i + 8, s##i##2);                                                                  \
    vst1q_f32(c##i + 12, s##i##3);
    FOR_ROWS(DO)
#undef DO
}
#undef COLUMNS
#undef ROW

#endif
