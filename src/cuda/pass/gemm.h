/* pass/gemm.h: one checked matrix product, C = A B, as plain numbers and pointers. Plain C.
 *
 * Every element of C is computed alike, whatever m, n, tiles, strides and transpositions are:
 *
 *   sum    of a section: one chain of steps of 16 products (emulator/dot.h), ascending in k. The
 *          first begins at +0; where k ends within a step, zeros fill it. The sum of no products
 *          is +0. Of e4m3: a chain of four steps of 32 products for each 128 of k, each of which
 *          begins at +0; the chains are added in ascending k, the first to +0; then the sum is
 *          multiplied by `scale`, if there is one and k is not 0
 *   tree   the sections' sums by f32 additions: ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
 *   bias   x = tree + bias[column], bias converted to f32, if there is one
 *   add    x = c + x, if asked for
 *   store  x, rounded to nearest even once if `out` is bf16 or f16
 *
 * These additions and products are IEEE f32, not fused. Every NaN that is written is 0x7fffffff
 * (f32) or 0x7fff. Rows and columns of C alone are written: what lies between rows of n elements
 * stays. */
#ifndef CUDA_PASS_GEMM_H
#define CUDA_PASS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hd.h"
#include "ordo/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ORDO_GEMM_SECTIONS = 8 }; /* at most */

typedef struct ordo_cuda_gemm {
    int64_t m, n, k;    /* C is m x n, k the number of products, of e4m3 even; 0 to 2^31 - 1 */
    int32_t sections;   /* 1, 2, 4 or 8 of k / sections, which is a multiple of 16, of e4m3 of
                         * 128, if there is more than one */
    ordo_dtype in, out; /* A and B: bf16, f16, e4m3; C: f32 or `in`, of e4m3 any that is wider */
    const void *a, *b;  /* 16-byte aligned; not read, and any pointer, where they are empty */
    int64_t a_stride;   /* elements from a row in memory to the next, a multiple of 16 bytes */
    int64_t b_stride;   /* likewise */
    bool a_rows_are_k;  /* A is stored as k rows of m elements (dW), else as m rows of k */
    bool b_rows_are_k; /* B as k rows of n (dX, dW), else as n rows of k (weights); e4m3: neither */
    bool add;          /* C, an f32 one, is added to */
    void *c;           /* m rows of n; 16-byte aligned */
    int64_t c_stride;  /* elements from a row of C to the next; a multiple of 16 bytes */
    const void *bias;  /* n elements of type `out`, aligned as such; or NULL */
    const float *scale; /* one, for e4m3; or NULL */
    void *workspace;    /* ordo_gemm_workspace() bytes, 16-byte aligned */
    void *stream;
    int32_t capability; /* compute capability of the plan's family, 10 major + minor */
    int32_t kernels;    /* the set that runs it: ordo_kernel_set */
} ordo_cuda_gemm;

/* Columns of a row of partial sums. */
ORDO_HD int64_t ordo_gemm_columns(int64_t n)
{
    return (n + 3) / 4 * 4;
}

/* Bytes of workspace: the sections' sums in f32, (section, row, column). */
ORDO_HD int64_t ordo_gemm_workspace(int64_t m, int64_t n, int32_t sections)
{
    return sections > 1 ? sections * m * ordo_gemm_columns(n) * 4 : 0;
}

#ifdef __cplusplus
}
#endif
#endif
