/* vec.h: the virtual vector of 16 floats that the kernels are written on: a struct of whatever
 * vectors the target has. The file that includes this has included one of the vec_TARGET.h.
 *
 * The parts have names and the loops over them are macros: gcc 12 keeps arrays of vectors in
 * memory, at half the speed. */
#ifndef CPU_VEC_H
#define CPU_VEC_H

#include "base/exp2.h"

/* Larger than what gcc inlines unasked; a call would pass all vectors through memory. */
#define VEC_INLINE static inline __attribute__((always_inline))

#define PART(i) lanes p##i;
typedef struct v16 {
    FOR_PARTS(PART)
} v16;
#undef PART

static inline v16 v_load(const float *p)
{
    v16 r;
#define DO(i) r.p##i = ln_load(p + (i)*LANES);
    FOR_PARTS(DO)
#undef DO
    return r;
}
static inline void v_store(float *p, v16 a)
{
#define DO(i) ln_store(p + (i)*LANES, a.p##i);
    FOR_PARTS(DO)
#undef DO
}
static inline v16 v_from_bf16(const uint16_t *p)
{
    v16 r;
#define DO(i) r.p##i = ln_from_bf16(p + (i)*LANES);
    FOR_PARTS(DO)
#undef DO
    return r;
}
static inline v16 v_from_f16(const uint16_t *p)
{
    v16 r;
#define DO(i) r.p##i = ln_from_f16(p + (i)*LANES);
    FOR_PARTS(DO)
#undef DO
    return r;
}
static inline void v_to_f16(uint16_t *p, v16 a)
{
#define DO(i) ln_to_f16(p + (i)*LANES, a.p##i);
    FOR_PARTS(DO)
#undef DO
}
static inline v16 v_all(float a)
{
    v16 r;
#define DO(i) r.p##i = ln_all(a);
    FOR_PARTS(DO)
#undef DO
    return r;
}
static inline v16 v_fma(v16 a, v16 b, v16 c)
{
#define DO(i) a.p##i = ln_fma(a.p##i, b.p##i, c.p##i);
    FOR_PARTS(DO)
#undef DO
    return a;
}
static inline v16 v_mul(v16 a, v16 b)
{
#define DO(i) a.p##i = ln_mul(a.p##i, b.p##i);
    FOR_PARTS(DO)
#undef DO
    return a;
}
static inline v16 v_add(v16 a, v16 b)
{
#define DO(i) a.p##i = ln_add(a.p##i, b.p##i);
    FOR_PARTS(DO)
#undef DO
    return a;
}
static inline v16 v_sub(v16 a, v16 b)
{
#define DO(i) a.p##i = ln_sub(a.p##i, b.p##i);
    FOR_PARTS(DO)
#undef DO
    return a;
}
static inline v16 v_div(v16 a, v16 b)
{
#define DO(i) a.p##i = ln_div(a.p##i, b.p##i);
    FOR_PARTS(DO)
#undef DO
    return a;
}
static inline v16 v_max(v16 a, v16 b)
{
#define DO(i) a.p##i = ln_max(a.p##i, b.p##i);
    FOR_PARTS(DO)
#undef DO
    return a;
}
/* a < b ? a : b, b if that is NaN */
static inline v16 v_min(v16 a, v16 b)
{
#define DO(i) a.p##i = ln_min(a.p##i, b.p##i);
    FOR_PARTS(DO)
#undef DO
    return a;
}
/* a < b ? x : y */
static inline v16 v_less(v16 a, v16 b, v16 x, v16 y)
{
#define DO(i) a.p##i = ln_less(a.p##i, b.p##i, x.p##i, y.p##i);
    FOR_PARTS(DO)
#undef DO
    return a;
}
static inline v16 v_abs(v16 a)
{
#define DO(i) a.p##i = ln_abs(a.p##i);
    FOR_PARTS(DO)
#undef DO
    return a;
}
/* q 2^n, 0 where t < -126: the end of exp2. n is in the low bits of `shifted`, and as a number in
 * `whole`. */
static inline v16 v_scale(v16 q, v16 shifted, v16 whole, v16 t)
{
#define DO(i) q.p##i = ln_scale(q.p##i, shifted.p##i, whole.p##i, t.p##i);
    FOR_PARTS(DO)
#undef DO
    return q;
}
/* Lane x of a if words[x] has the bit, else 0. */
static inline v16 v_keep(v16 a, const uint32_t *words, uint32_t bit)
{
    v16 r;
#define DO(i) r.p##i = ln_keep(a.p##i, words + (i)*LANES, bit);
    FOR_PARTS(DO)
#undef DO
    return r;
}

/* Two vectors on their way through the same steps. */
typedef struct v32 {
    v16 a, b;
} v32;

VEC_INLINE v32 v_settle(v32 x)
{
#define DO(i) x.a.p##i = ln_settle(x.a.p##i);
    FOR_PARTS(DO)
#undef DO
#define DO(i) x.b.p##i = ln_settle(x.b.p##i);
    FOR_PARTS(DO)
#undef DO
    return x;
}
VEC_INLINE v32 v_exp2_term(v32 q, v32 f, float term)
{
    return v_settle((v32) { v_fma(q.a, f.a, v_all(term)), v_fma(q.b, f.b, v_all(term)) });
}

/* Lane by lane what ordo_exp2() does; for x below 128. */
VEC_INLINE v32 v_exp2_below(v32 t)
{
    const v16 round = v_all(ORDO_EXP2_ROUND), c6 = v_all(ORDO_EXP2_C6);
    const v32 shifted = v_settle((v32) { v_add(t.a, round), v_add(t.b, round) });
    const v32 whole = { v_sub(shifted.a, round), v_sub(shifted.b, round) };
    const v32 f = v_settle((v32) { v_sub(t.a, whole.a), v_sub(t.b, whole.b) });
    v32 q = v_exp2_term((v32) { c6, c6 }, f, ORDO_EXP2_C5);
    q = v_exp2_term(q, f, ORDO_EXP2_C4);
    q = v_exp2_term(q, f, ORDO_EXP2_C3);
    q = v_exp2_term(q, f, ORDO_EXP2_C2);
    q = v_exp2_term(q, f, ORDO_EXP2_C1);
    q = v_exp2_term(q, f, 1.0f);
    return (v32) { v_scale(q.a, shifted.a, whole.a, t.a), v_scale(q.b, shifted.b, whole.b, t.b) };
}

VEC_INLINE v32 v_exp2_two(v16 x, v16 y)
{
    const v16 most = v_all(128.0f); /* a NaN stays */
    return v_exp2_below((v32) { v_min(most, x), v_min(most, y) });
}
static inline v16 v_exp2(v16 x)
{
    return v_exp2_two(x, x).a;
}

/* The sum over the lanes, by one tree: 8+8, 4+4, 2+2, 1+1. */
#if LANES == 16
#define FOLD(op, a) (a).p0
#elif LANES == 8
#define FOLD(op, a) op((a).p0, (a).p1)
#elif LANES == 4
#define FOLD(op, a) op(op((a).p0, (a).p2), op((a).p1, (a).p3))
#else
#define FOLD_EVEN(op, a)                                                                           \
    op(op(op((a).p0, (a).p8), op((a).p4, (a).p12)), op(op((a).p2, (a).p10), op((a).p6, (a).p14)))
#define FOLD_ODD(op, a)                                                                            \
    op(op(op((a).p1, (a).p9), op((a).p5, (a).p13)), op(op((a).p3, (a).p11), op((a).p7, (a).p15)))
#define FOLD(op, a) op(FOLD_EVEN(op, a), FOLD_ODD(op, a))
#endif

static inline float v_sum(v16 a)
{
    return ln_sum(FOLD(ln_add, a));
}

#endif
