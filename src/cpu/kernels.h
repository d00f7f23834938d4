/* kernels.h: the tile operations of the CPU backend, one table of functions per target.
 *
 * All targets give the same bits, because each order of operations is fixed:
 *
 *   - an element of a product is one chain of fused multiply-adds over k, ascending, or for
 *     matrix products (gemm.h) one of multiplications and additions;
 *   - a row of a tile is summed in ascending order;
 *   - a sum over a head goes through 16 lanes and one tree;
 *   - exp2 is ordo_exp2().
 *
 * Which elements a target computes at the same time is its own choice.
 *
 * Panels are f32, row-major and 64-byte aligned, with columns padded to 16. Values in padding
 * columns are never read. */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ordo/problem.h"

/* How the raw products of a tile become logits, and which of them are visible. Tiles are stored
 * transposed, element (r, c) at c * ld + r: a vector holds 16 rows of one column, so that the
 * maximum and the sum of a row need no operation across lanes. */
typedef struct ordo_scores {
    int rows, cols;       /* size of the tile; rows are padded to 16 */
    int ld;               /* floats between columns */
    bool partial;         /* some element is invisible; (r, c) is visible if low <= c - r <= high */
    int low, high;        /* in the tile's coordinates */
    const uint32_t *seen; /* unless NULL, (r, c) is visible if its bit is set instead: column */
    int seen_rows;        /* C = c + origin, bit C % 32 of word C / 32 * seen_rows + r */
    int origin;
    float scale2;      /* scale * log2(e): logits in base 2 */
    float softcap2;    /* softcap * log2(e); 0 = off */
    float to_cap;      /* scale / softcap */
    float slope2;      /* ALiBi slope * log2(e); 0 = off */
    int distance;      /* i + delta - j of element (0, 0) */
    const float *bias; /* element (r, c) at c * bias_ld + r, added to its logit; what hides
                        * (base/bias.h) makes it invisible; NULL: none */
    int bias_ld;
    bool of_logits;       /* dS is the gradient of logits, not of what goes into a soft cap */
    float keep_scale;     /* 2^bits / T; 1 without dropout */
    const uint32_t *keep; /* words (block of 128 columns, group of 16 rows, quad, row), or NULL */
    int keep_groups;      /* groups of rows per block */
    int keep_column;      /* position of column 0 in the first block */
} ordo_scores;

/* Elements of a sum that are added at once, and floats for the partial sums of up to ORDO_SUM_MOST
 * inputs: two chunks for each of the 7 levels from 256 down to 3 inputs. */
enum { ORDO_SUM_CHUNK = 1024, ORDO_SUM_SCRATCH = 14 * ORDO_SUM_CHUNK };

/* Memory to prefetch. */
typedef struct ordo_ahead {
    const void *from;
    size_t bytes;
} ordo_ahead;

typedef struct ordo_kernels {
    const char *name;

    /* Convert `rows` x `dim` elements to a panel and zero its padding columns. Returns false if
     * some element is not finite. load_transposed() writes dim x rows instead. */
    bool (*load)(float *panel, int ld, const void *data, ordo_dtype dtype, int64_t row_stride,
                 int rows, int dim);
    bool (*load_transposed)(float *panel, int ld, const void *data, ordo_dtype dtype,
                            int64_t row_stride, int rows, int dim);

    /* c = a b, or c += a b if `add`: m x n x k. a(i, x) = a[i a_row + x a_k], b(x, j) =
     * b[x ldb + j]. m and k are exact, n is rounded up to 16. All of `ahead` is prefetched
     * meanwhile, a little at a time; NULL: nothing is. */
    void (*product)(int m, int n, int k, const float *a, int a_row, int a_k, const float *b,
                    int ldb, float *c, int ldc, bool add, const ordo_ahead *ahead);

    /* The same with a rounded product and a rounded addition for each term. */
    void (*rounded_product)(int m, int n, int k, const float *a, int a_row, int a_k, const float *b,
                            int ldb, float *c, int ldc, bool add);

    /* Forward: turn raw products into probabilities relative to the running maximum, zero where
     * dropped. Per row: the maximum m and the sum l are updated, and alpha is the factor for the
     * results of earlier tiles. The arrays are padded to 16 rows. */
    void (*softmax)(const ordo_scores *scores, float *s, float *m, float *l, float *alpha);

    /* Multiply each row of o by its alpha. */
    void (*rescale)(int rows, int n, float *o, int ld, const float *alpha);

    /* Backward: turn raw products s into P (dropped and scaled), and dp into dS. lse2 is lse in
     * base 2, and +inf for rows without a visible column; delta is subtracted from dP. */
    void (*gradients)(const ordo_scores *scores, float *s, float *dp, const float *lse2,
                      const float *delta);

    /* Row sums of a * b. */
    void (*row_dot)(int rows, int n, const float *a, const float *b, int ld, float *sums);

    /* sum = part if `first`, else sum += part; a whole panel. */
    void (*accumulate)(int rows, int n, float *sum, int ld_sum, const float *part, int ld_part,
                       bool first);

    /* Write rows of a panel, multiplied by `factor` and by one factor per row (NULL: 1) and rounded
     * once. NaN becomes the canonical NaN. */
    void (*store)(void *data, ordo_dtype dtype, int64_t row_stride, const float *panel, int ld,
                  int rows, int dim, float factor, const float *row_factor);

    /* out[x] = the sum of element at + x of `count` arrays, x < n <= ORDO_SUM_CHUNK, by the tree of
     * ordo/sum.h. `scratch` has ORDO_SUM_SCRATCH floats. */
    void (*tree_sum)(float *out, const void *const *inputs, ordo_dtype dtype, int count, int64_t at,
                     int n, float *scratch);
} ordo_kernels;

/* Get the table for this machine, or the one that the variable ORDO_CPU names. The choice is made
 * once per process. */
ordo_status ordo_cpu_kernels(const ordo_kernels **kernels);

/* Return a table by name, for tests; NULL if this build or this machine lacks it. */
const ordo_kernels *ordo_cpu_kernels_named(const char *name);

/* Use this table in every later call, for tests; NULL: that of the machine again. */
void ordo_cpu_kernels_force(const ordo_kernels *kernels);

extern const ordo_kernels ordo_kernels_generic;
#if defined(__aarch64__)
extern const ordo_kernels ordo_kernels_neon;
#elif defined(__x86_64__)
extern const ordo_kernels ordo_kernels_avx2;
extern const ordo_kernels ordo_kernels_avx512;
#endif

#endif
