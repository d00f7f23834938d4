/* sum_body.h: the tree sum of arrays (ordo/sum.h), for one target; included by kernels_body.h.
 *
 * 1, 2, 4 or 8 inputs are added in registers. A larger tree is added by chunks that stay in the
 * first cache, one per level; its last addition goes to `out`, so that `out` may be an input. */
#ifndef CPU_SUM_BODY_H
#define CPU_SUM_BODY_H

#include <math.h>

FOR_EACH_KIND v16 tree1(const void *const *in, ordo_dtype dtype, int64_t at, int n)
{
    return elements(in[0], dtype, at, n);
}
FOR_EACH_KIND v16 tree2(const void *const *in, ordo_dtype dtype, int64_t at, int n)
{
    return v_add(tree1(in, dtype, at, n), tree1(in + 1, dtype, at, n));
}
FOR_EACH_KIND v16 tree4(const void *const *in, ordo_dtype dtype, int64_t at, int n)
{
    return v_add(tree2(in, dtype, at, n), tree2(in + 2, dtype, at, n));
}
FOR_EACH_KIND v16 tree8(const void *const *in, ordo_dtype dtype, int64_t at, int n)
{
    return v_add(tree4(in, dtype, at, n), tree4(in + 4, dtype, at, n));
}

/* Write the first `n` of 16 elements; NaN becomes the canonical NaN. */
FOR_EACH_KIND void put_sum(float *out, v16 x, int n)
{
    const v16 nan = v_all(ordo_f32_of_bits(ORDO_F32_NAN));
    x = v_less(x, v_all(INFINITY), x, v_less(v_all(-INFINITY), x, x, nan));
    if (n >= 16) {
        v_store(out, x);
        return;
    }
    float few[16];
    v_store(few, x);
    memcpy(out, few, sizeof *few * (size_t)n);
}

/* out[d] = the sum of 1, 2, 4 or 8 inputs at at + d, d < n. */
FOR_EACH_KIND void sum_few(float *out, const void *const *in, ordo_dtype dtype, int count,
                           int64_t at, int n)
{
    for (int d = 0; d < n; d += 16) {
        const int left = n - d;
        const v16 x = count == 8   ? tree8(in, dtype, at + d, left)
                      : count == 4 ? tree4(in, dtype, at + d, left)
                      : count == 2 ? tree2(in, dtype, at + d, left)
                                   : tree1(in, dtype, at + d, left);
        put_sum(out + d, x, left);
    }
}

FOR_EACH_KIND void sum_typed(float *out, const void *const *in, ordo_dtype dtype, int count,
                             int64_t at, int n)
{
    switch (count) {
    case 1: sum_few(out, in, dtype, 1, at, n); break;
    case 2: sum_few(out, in, dtype, 2, at, n); break;
    case 4: sum_few(out, in, dtype, 4, at, n); break;
    case 8: sum_few(out, in, dtype, 8, at, n); break;
    default: break;
    }
}

static void tree_sum(float *out, const void *const *in, ordo_dtype dtype, int count, int64_t at,
                     int n, float *scratch)
{
    if (count <= 8 && (count & (count - 1)) == 0) {
        switch (dtype) {
        case ORDO_F32: sum_typed(out, in, ORDO_F32, count, at, n); break;
        case ORDO_BF16: sum_typed(out, in, ORDO_BF16, count, at, n); break;
        case ORDO_F16: sum_typed(out, in, ORDO_F16, count, at, n); break;
        }
        return;
    }
    int half = 1;
    while (2 * half < count)
        half *= 2;
    float *left = scratch, *right = left + ORDO_SUM_CHUNK, *rest = right + ORDO_SUM_CHUNK;
    tree_sum(left, in, dtype, half, at, n, right);
    tree_sum(right, in + half, dtype, count - half, at, n, rest);
    for (int d = 0; d < n; d += 16)
        put_sum(out + d, v_add(v_load(left + d), v_load(right + d)), n - d);
}

#endif
