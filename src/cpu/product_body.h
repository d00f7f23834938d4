/* product_body.h: products of panels by register blocks, for one target; kernels_body.h includes it
 * after the target's vec_TARGET.h, which says how large a block is and may bring its own. */
#ifndef CPU_PRODUCT_BODY_H
#define CPU_PRODUCT_BODY_H

#include "cpu/kernels.h"

/* Written once, compiled for each kind of tile that its constant arguments name. */
#define FOR_EACH_KIND static inline __attribute__((always_inline))

/* A register block: `rows` x 16 `width`, all of k. A term is added by a fused multiply-add, or is
 * rounded before. All three are constants, and every loop over them is unrolled, so that the sums
 * are registers. */
FOR_EACH_KIND void block(bool fused, int rows, int width, int k, const float *a, int a_row, int a_k,
                         const float *b, int ldb, float *c, int ldc, bool add)
{
    enum { MOST_ROWS = BLOCK_ROWS > 4 ? BLOCK_ROWS : 4, MOST_PARTS = 16 / LANES * BLOCK_WIDTH };
    const int parts = 16 / LANES * width;
    lanes sum[MOST_ROWS][MOST_PARTS], column[MOST_PARTS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < parts; j++)
            sum[i][j] = add ? ln_load(c + (ptrdiff_t)i * ldc + j * LANES) : ln_all(0);
    for (int x = 0; x < k; x++, a += a_k, b += ldb) {
#pragma GCC unroll 16
        for (int j = 0; j < parts; j++)
            column[j] = ln_load(b + j * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const lanes scalar = ln_all(a[(ptrdiff_t)i * a_row]);
#pragma GCC unroll 16
            for (int j = 0; j < parts; j++)
                sum[i][j] = fused ? ln_fma(scalar, column[j], sum[i][j])
                                  : ln_add(sum[i][j], ln_mul(scalar, column[j]));
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < parts; j++)
            ln_store(c + (ptrdiff_t)i * ldc + j * LANES, sum[i][j]);
}

/* What is left to ask for, and how much of it before each block. */
typedef struct fetching {
    const char *at, *end;
    ptrdiff_t step;
} fetching;

static inline fetching fetch_over(const ordo_ahead *ahead, int blocks)
{
    enum { LINE = 64 };
    if (!ahead || ahead->bytes == 0)
        return (fetching) { 0 };
    const ptrdiff_t lines = (ptrdiff_t)(ahead->bytes + LINE - 1) / LINE;
    return (fetching) { .at = ahead->from,
                        .end = (const char *)ahead->from + ahead->bytes,
                        .step = (lines / (blocks + 1) + 1) * LINE };
}

static inline void fetch_some(fetching *f)
{
    const char *end = f->end - f->at > f->step ? f->at + f->step : f->end;
    for (; f->at < end; f->at += 64)
        __builtin_prefetch(f->at, 0, 2);
}

/* All rows of 16 `width` columns: the largest blocks, then what fits. */
FOR_EACH_KIND void strip(bool fused, int width, int m, int k, const float *a, int a_row, int a_k,
                         const float *b, int ldb, float *c, int ldc, bool add, fetching *f)
{
    for (int i = 0, rows; i < m; i += rows) {
        const int left = m - i; /* 8: two fours are better than six and two */
        const float *from = a + (ptrdiff_t)i * a_row;
        float *to = c + (ptrdiff_t)i * ldc;
        rows = left >= BLOCK_ROWS && left != 8 ? BLOCK_ROWS : left >= 4 ? 4 : 1;
        fetch_some(f);
        if (rows == BLOCK_ROWS)
            block(fused, BLOCK_ROWS, width, k, from, a_row, a_k, b, ldb, to, ldc, add);
        else if (rows == 4)
            block(fused, 4, width, k, from, a_row, a_k, b, ldb, to, ldc, add);
        else
            block(fused, 1, width, k, from, a_row, a_k, b, ldb, to, ldc, add);
    }
}

#ifdef TARGET_BLOCK
/* Whole blocks by the target's own code, which wants the scalars of a step side by side: where
 * their rows lie apart they are put so first, once for all of n. */
static int own_blocks(int m, int n, int k, const float *a, int a_row, int a_k, const float *b,
                      int ldb, float *c, int ldc, bool add, fetching *f)
{
    enum { STEPS = 128 };
    float side[STEPS * BLOCK_ROWS];
    const int whole = m / BLOCK_ROWS * BLOCK_ROWS;
    if (a_row == 1) {
        for (int j = 0; j < n; j += 16)
            for (int i = 0; i < whole; i += BLOCK_ROWS) {
                fetch_some(f);
                target_block(k, a + i, a_k, b + j, ldb, c + (ptrdiff_t)i * ldc + j, ldc, add);
            }
        return whole;
    }
    for (int x = 0; x < k; x += STEPS)
        for (int i = 0; i < whole; i += BLOCK_ROWS) {
            const int steps = k - x < STEPS ? k - x : STEPS;
            target_gather(side, steps, a + (ptrdiff_t)i * a_row + (ptrdiff_t)x * a_k, a_row, a_k);
            for (int j = 0; j < n; j += 16) {
                fetch_some(f);
                target_block(steps, side, BLOCK_ROWS, b + (ptrdiff_t)x * ldb + j, ldb,
                             c + (ptrdiff_t)i * ldc + j, ldc, add || x > 0);
            }
        }
    return whole;
}
#endif

/* All strips. */
FOR_EACH_KIND void strips(bool fused, int m, int n, int k, const float *a, int a_row, int a_k,
                          const float *b, int ldb, float *c, int ldc, bool add, fetching *f)
{
    for (int j = 0, width; m > 0 && j < n; j += 16 * width) {
        const int left = (n - j + 15) / 16;
        width = left >= 4 && BLOCK_WIDTH >= 4 ? 4 : left >= 2 && BLOCK_WIDTH >= 2 ? 2 : 1;
        if (width == 4)
            strip(fused, BLOCK_WIDTH >= 4 ? 4 : 1, m, k, a, a_row, a_k, b + j, ldb, c + j, ldc, add,
                  f);
        else if (width == 2)
            strip(fused, BLOCK_WIDTH >= 2 ? 2 : 1, m, k, a, a_row, a_k, b + j, ldb, c + j, ldc, add,
                  f);
        else
            strip(fused, 1, m, k, a, a_row, a_k, b + j, ldb, c + j, ldc, add, f);
    }
}

static void product(int m, int n, int k, const float *a, int a_row, int a_k, const float *b,
                    int ldb, float *c, int ldc, bool add, const ordo_ahead *ahead)
{
    fetching f = fetch_over(ahead, m / BLOCK_ROWS * (n / (16 * BLOCK_WIDTH)));
#ifdef TARGET_BLOCK
    const int done = own_blocks(m, n, k, a, a_row, a_k, b, ldb, c, ldc, add, &f);
    m -= done;
    a += (ptrdiff_t)done * a_row;
    c += (ptrdiff_t)done * ldc;
#endif
    strips(true, m, n, k, a, a_row, a_k, b, ldb, c, ldc, add, &f);
}

static void rounded_product(int m, int n, int k, const float *a, int a_row, int a_k, const float *b,
                            int ldb, float *c, int ldc, bool add)
{
    fetching nothing = { 0 };
    strips(false, m, n, k, a, a_row, a_k, b, ldb, c, ldc, add, &nothing);
}

#endif
