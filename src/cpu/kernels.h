/* kernels.h: the tile operations of the CPU backend, one table of functions per target.
 *
 * All targets give the same bits, whichever elements they compute together:
 *   - each element of a product is one chain of fused multiply-adds over k, in ascending order;
 *   - a row of a tile is summed in ascending order;
 *   - sums over a head go by 16 lanes and one fixed tree;
 *   - exp2 is ordo_exp2().
 *
 * Panels are f32, row-major, 64-byte aligned, columns padded to 16: what is computed in padding
 * columns is never looked at. */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ordo/problem.h"

/* A tile of logits: how raw products become them, and which of them are visible. Tiles are held
 * transposed, element (r, c) at c * ld + r: a vector is 16 rows of one column, so that a row's
 * maximum and sum need no work across lanes. */
typedef struct ordo_scores {
    int rows, cols;       /* of the tile; rows are padded to 16 */
    int ld;               /* floats from column to column */
    bool cut;             /* some element is invisible: row r sees low <= c - r <= high */
    int low, high;        /* in the tile's coordinates */
    float scale2;         /* scale * log2(e): plain logits, in powers of two */
    float softcap2;       /* softcap * log2(e); 0 = off */
    float to_cap;         /* scale / softcap */
    float slope2;         /* ALiBi slope * log2(e); 0 = off */
    int distance;         /* i + delta - j of element (0, 0) */
    float keep_scale;     /* 2^bits / T; 1 without dropout */
    const uint32_t *keep; /* words (block of 128 columns, group of 16 rows, quad, row), or NULL */
    int keep_groups;      /* groups of rows a block */
    int keep_column;      /* place of column 0 in the first block */
} ordo_scores;

/* Memory that is wanted soon. */
typedef struct ordo_ahead {
    const void *from;
    size_t bytes;
} ordo_ahead;

typedef struct ordo_kernels {
    const char *name;

    /* Convert `rows` x `dim` elements to a panel, padding columns to zero; false if some element
     * is not finite. `transposed` writes dim x rows instead. */
    bool (*load)(float *panel, int ld, const void *data, ordo_dtype dtype, int64_t row_stride,
                 int rows, int dim);
    bool (*load_transposed)(float *panel, int ld, const void *data, ordo_dtype dtype,
                            int64_t row_stride, int rows, int dim);

    /* c = a b, or c += a b: m x n x k. a(i, x) = a[i a_row + x a_k], b(x, j) = b[x ldb + j]. m
     * and k are exact, n is rounded up to 16. On the way all of `ahead` is asked for, a little at a
     * time; NULL: nothing. */
    void (*product)(int m, int n, int k, const float *a, int a_row, int a_k, const float *b,
                    int ldb, float *c, int ldc, bool add, const ordo_ahead *ahead);

    /* Forward: from raw products to probabilities (times keep bits) under the running maximum;
     * per row: m and l are updated, alpha is what earlier results must be multiplied by. The
     * arrays are padded to 16 rows. */
    void (*softmax)(const ordo_scores *scores, float *s, float *m, float *l, float *alpha);

    /* rows of o *= alpha */
    void (*rescale)(int rows, int n, float *o, int ld, const float *alpha);

    /* Backward: s raw -> P (kept and scaled), dp raw -> dS. lse2 in powers of two, +inf for rows
     * that see nothing; delta as subtracted from dP. */
    void (*gradients)(const ordo_scores *scores, float *s, float *dp, const float *lse2,
                      const float *delta);

    /* Row sums of a * b. */
    void (*row_dot)(int rows, int n, const float *a, const float *b, int ld, float *sums);

    /* sum (+)= part, a whole panel. */
    void (*accumulate)(int rows, int n, float *sum, int ld_sum, const float *part, int ld_part,
                       bool first);

    /* Write rows of a panel, times `factor` and a factor a row (NULL: 1), rounded once; NaN
     * canonical. */
    void (*store)(void *data, ordo_dtype dtype, int64_t row_stride, const float *panel, int ld,
                  int rows, int dim, float factor, const float *row_factor);
} ordo_kernels;

/* The table for this machine, or the one ORDO_CPU names; the choice is made once. */
ordo_status ordo_cpu_kernels(const ordo_kernels **kernels);

/* By name, for tests: NULL if this build or this machine lacks it. */
const ordo_kernels *ordo_cpu_kernels_named(const char *name);

/* Have every later call run on this table, for tests; NULL = the machine's again. */
void ordo_cpu_kernels_force(const ordo_kernels *kernels);

extern const ordo_kernels ordo_kernels_generic;
#if defined(__aarch64__)
extern const ordo_kernels ordo_kernels_neon;
#elif defined(__x86_64__)
extern const ordo_kernels ordo_kernels_avx2;
extern const ordo_kernels ordo_kernels_avx512;
#endif

#endif
