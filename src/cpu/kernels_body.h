/* kernels_body.h: the tile kernels, written once on the virtual vector of 16 floats. Included by
 * one small file per target, after its vec_TARGET.h; see kernels.h for what each computes. */
#include "base/bias.h"
#include "base/constants.h"
#include "base/half.h"
#include "base/keep.h"
#include "cpu/kernels.h"
#include "cpu/product_body.h"
#include "cpu/vec.h"

/* ---- elements in and out ---- */

/* `count` elements from `at` on as f32, zeros after them. */
FOR_EACH_KIND v16 elements(const void *data, ordo_dtype dtype, int64_t at, int count)
{
    const size_t width = dtype == ORDO_F32 ? 4 : 2;
    const void *from = (const char *)data + (size_t)at * width;
    union {
        float f32[16];
        uint16_t half[16];
    } few = { .f32 = { 0 } };
    if (count < 16) { /* what follows may be another's memory */
        memcpy(&few, from, (size_t)count * width);
        from = &few;
    }
    switch (dtype) {
    case ORDO_F32: return v_load(from);
    case ORDO_BF16: return v_from_bf16(from);
    case ORDO_F16: return v_from_f16(from);
    }
    return v_all(0);
}

/* Zero as long as all x are finite: 0 times an inf or NaN is NaN, and stays. */
static inline v16 note_finite(v16 x, v16 noted)
{
    return v_fma(x, v_all(0), noted);
}

FOR_EACH_KIND bool load_typed(float *panel, int ld, const void *data, ordo_dtype dtype,
                              int64_t row_stride, int rows, int dim)
{
    v16 noted = v_all(0);
    for (int r = 0; r < rows; r++)
        for (int d = 0; d < dim; d += 16) {
            const v16 x = elements(data, dtype, r * row_stride + d, dim - d);
            noted = note_finite(x, noted);
            v_store(panel + (ptrdiff_t)r * ld + d, x);
        }
    return v_sum(noted) == 0;
}

static bool load(float *panel, int ld, const void *data, ordo_dtype dtype, int64_t row_stride,
                 int rows, int dim)
{
    switch (dtype) {
    case ORDO_F32: return load_typed(panel, ld, data, ORDO_F32, row_stride, rows, dim);
    case ORDO_BF16: return load_typed(panel, ld, data, ORDO_BF16, row_stride, rows, dim);
    case ORDO_F16: return load_typed(panel, ld, data, ORDO_F16, row_stride, rows, dim);
    }
    return false;
}

/* By squares of 16 x 16. */
FOR_EACH_KIND bool load_transposed_typed(float *panel, int ld, const void *data, ordo_dtype dtype,
                                         int64_t row_stride, int rows, int dim)
{
    float square[16 * 16];
    v16 noted = v_all(0);
    for (int r = 0; r < rows; r += 16)
        for (int d = 0; d < dim; d += 16) {
            for (int x = 0; x < 16; x++) {
                v16 row = v_all(0);
                if (r + x < rows)
                    row = elements(data, dtype, (r + x) * row_stride + d, dim - d);
                noted = note_finite(row, noted);
                v_store(square + 16 * x, row);
            }
            float *to = panel + (ptrdiff_t)d * ld + r;
            if (d + 16 <= dim)
                ln_transpose(square, to, ld);
            else /* panels have no rows after dim */
                for (int x = 0; x < (dim - d) * 16; x++)
                    to[(ptrdiff_t)(x / 16) * ld + x % 16] = square[x % 16 * 16 + x / 16];
        }
    return v_sum(noted) == 0;
}

static bool load_transposed(float *panel, int ld, const void *data, ordo_dtype dtype,
                            int64_t row_stride, int rows, int dim)
{
    switch (dtype) {
    case ORDO_F32: return load_transposed_typed(panel, ld, data, ORDO_F32, row_stride, rows, dim);
    case ORDO_BF16: return load_transposed_typed(panel, ld, data, ORDO_BF16, row_stride, rows, dim);
    case ORDO_F16: return load_transposed_typed(panel, ld, data, ORDO_F16, row_stride, rows, dim);
    }
    return false;
}

static inline void put(void *data, ordo_dtype dtype, int64_t at, float x)
{
    switch (dtype) {
    case ORDO_F32: ((float *)data)[at] = x == x ? x : ordo_f32_of_bits(ORDO_F32_NAN); break;
    case ORDO_BF16: ((uint16_t *)data)[at] = ordo_bf16_from_f32(x); break;
    case ORDO_F16: ((uint16_t *)data)[at] = ordo_f16_from_f32(x); break;
    }
}

FOR_EACH_KIND void store_typed(void *data, ordo_dtype dtype, int64_t row_stride, const float *panel,
                               int ld, int rows, int dim, float factor, const float *row_factor)
{
    for (int r = 0; r < rows; r++) {
        const float f = row_factor ? factor * row_factor[r] : factor;
        const float *from = panel + (ptrdiff_t)r * ld;
        int d = 0;
        for (; dtype == ORDO_F16 && d + 16 <= dim; d += 16)
            v_to_f16((uint16_t *)data + r * row_stride + d, v_mul(v_load(from + d), v_all(f)));
        for (; d < dim; d++)
            put(data, dtype, r * row_stride + d, from[d] * f);
    }
}

static void store(void *data, ordo_dtype dtype, int64_t row_stride, const float *panel, int ld,
                  int rows, int dim, float factor, const float *row_factor)
{
    switch (dtype) {
    case ORDO_F32:
        store_typed(data, ORDO_F32, row_stride, panel, ld, rows, dim, factor, row_factor);
        break;
    case ORDO_BF16:
        store_typed(data, ORDO_BF16, row_stride, panel, ld, rows, dim, factor, row_factor);
        break;
    case ORDO_F16:
        store_typed(data, ORDO_F16, row_stride, panel, ld, rows, dim, factor, row_factor);
        break;
    }
}

/* ---- logits ---- */

static const float ramp[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

/* softcap tanh(y), y = s scale / softcap, in powers of two, and its derivative 1 - tanh^2, both
 * with a small relative error for every cap and score.
 *
 * Near zero tanh(y) = y g(y^2) by a polynomial (minimax, relative error 4.4e-9), and softcap drops
 * out: the logit is scale s g, which tends to scale s however large the cap, even if y underflows.
 * Elsewhere tanh |y| = (1 - e) / (1 + e), e = exp(-2 |y|), where 1 - e does not cancel, and
 * 1 - tanh^2 = 4 e / (1 + e)^2 does not either. NaN takes the second way and stays. */
static inline v16 capped(const ordo_scores *z, v16 s, v16 *slope)
{
    const v16 zero = v_all(0), one = v_all(1), bend = v_all(0.625f);
    const v16 y = v_mul(s, v_all(z->to_cap)), size = v_abs(y), yy = v_mul(y, y);
    v16 g = v_all(-0x1.75e10cp-8f);
    g = v_fma(g, yy, v_all(0x1.52266ep-6f));
    g = v_fma(g, yy, v_all(-0x1.b83c52p-5f));
    g = v_fma(g, yy, v_all(0x1.110726p-3f));
    g = v_fma(g, yy, v_all(-0x1.555532p-2f));
    g = v_fma(g, yy, one);
    const v16 t = v_mul(y, g), near = v_mul(v_mul(s, v_all(z->scale2)), g);
    const v16 e = v_exp2(v_mul(size, v_all(-2 * (float)ORDO_LOG2_E))),
              over = v_div(one, v_add(one, e));
    const v16 far = v_mul(v_mul(v_sub(one, e), over), v_all(z->softcap2));
    const v16 bent = v_mul(v_mul(v_mul(e, v_all(4)), over), over);
    *slope = v_less(size, bend, v_fma(v_sub(zero, t), t, one), bent);
    return v_less(size, bend, near, v_less(y, zero, v_sub(zero, far), far));
}

/* All of rows r .. r+15 see column c; not known of rows with bits or a bias. */
static inline bool all_see(const ordo_scores *z, int r, int c)
{
    if (z->seen || z->bias)
        return false;
    return c - (r + 15) >= z->low && c - r <= z->high;
}

/* The bias of rows r .. r+15 in column c. */
static inline v16 bias_at(const ordo_scores *z, int r, int c)
{
    return v_load(z->bias + (ptrdiff_t)c * z->bias_ld + r);
}

/* Lanes of x whose rows r .. r+15 see column c, `other` elsewhere. Limits far outside a tile are
 * clamped to what a float holds exactly. */
static inline v16 only(const ordo_scores *z, v16 x, v16 other, int r, int c)
{
    enum { FAR = 1 << 22 };
    if (z->bias)
        x = v_less(bias_at(z, r, c), v_all(ORDO_BIAS_LEAST), other, x);
    if (z->seen) {
        const int at = c + z->origin;
        const uint32_t *words = z->seen + (ptrdiff_t)(at / 32) * z->seen_rows + r;
        return v_less(v_all(0), v_keep(v_all(1), words, 1u << at % 32), x, other);
    }
    const int low = z->low < -FAR ? -FAR : z->low > FAR ? FAR : z->low;
    const int high = z->high < -FAR ? -FAR : z->high > FAR ? FAR : z->high;
    const v16 row = v_load(ramp), column = v_all((float)(c - r));
    const v16 above = v_less(column, v_add(row, v_all((float)low)), other, x);
    return v_less(v_add(row, v_all((float)high)), column, other, above);
}

/* Logits with a soft cap, ALiBi or a bias, in powers of two; *slope is d logit / d capped, for
 * gradients.
 */
static inline v16 logits(const ordo_scores *z, v16 s, int r, int c, v16 *slope)
{
    v16 x;
    *slope = v_all(1);
    if (z->softcap2 > 0)
        x = capped(z, s, slope);
    else
        x = v_mul(s, v_all(z->scale2));
    if (z->slope2 != 0) {
        const v16 away = v_add(v_load(ramp), v_all((float)(z->distance + r - c)));
        x = v_fma(v_abs(away), v_all(-z->slope2), x);
    }
    return z->bias ? v_fma(bias_at(z, r, c), v_all((float)ORDO_LOG2_E), x) : x;
}

#define KEEP_2(c)  1u << ORDO_KEEP_BIT(c), 1u << ORDO_KEEP_BIT((c) + 1)
#define KEEP_8(c)  KEEP_2(c), KEEP_2((c) + 2), KEEP_2((c) + 4), KEEP_2((c) + 6)
#define KEEP_32(c) KEEP_8(c), KEEP_8((c) + 8), KEEP_8((c) + 16), KEEP_8((c) + 24)
static const uint32_t keep_bits[ORDO_KEEP_COLS] = { KEEP_32(0), KEEP_32(32), KEEP_32(64),
                                                    KEEP_32(96) };

/* What dropout leaves of x, rows r .. r+15 in column c: x or 0. */
static inline v16 kept(const ordo_scores *z, v16 x, int r, int c)
{
    const uint32_t column = (uint32_t)(c + z->keep_column);
    const uint32_t group = column / ORDO_KEEP_COLS * (uint32_t)z->keep_groups + (uint32_t)r / 16;
    const uint32_t *words = z->keep + (group * 4 + ordo_keep_quad(column)) * 16;
    return v_keep(x, words, keep_bits[column % ORDO_KEEP_COLS]);
}

/* Plain: logits are s * scale2 and one fused multiply-add gives the exponent. */
static inline bool is_plain(const ordo_scores *z)
{
    return z->softcap2 == 0 && z->slope2 == 0 && !z->bias && z->scale2 > 0;
}

/* Logits of rows r .. r+15 in column c, -inf where not visible; s is rewritten by them unless they
 * are plain. */
FOR_EACH_KIND v16 visible(const ordo_scores *z, bool plain, bool partial, float *s, int r, int c)
{
    float *at = s + (ptrdiff_t)c * z->ld + r;
    v16 x = v_load(at), slope;
    if (!plain) {
        x = logits(z, x, r, c, &slope);
        v_store(at, x);
    }
    if (partial && !all_see(z, r, c))
        x = only(z, x, v_all(-INFINITY), r, c);
    return x;
}

/* Largest logits of rows r .. r+15. In as many chains as there are lanes to hide their latency. */
FOR_EACH_KIND v16 row_tops(const ordo_scores *z, bool plain, bool partial, float *s, int r)
{
    enum { CHAINS = LANES > 4 ? LANES / 4 : 1 };
    v16 top[CHAINS];
    int c = 0;
#pragma GCC unroll 4
    for (int x = 0; x < CHAINS; x++)
        top[x] = v_all(-INFINITY);
    for (; c + CHAINS <= z->cols; c += CHAINS)
#pragma GCC unroll 4
        for (int x = 0; x < CHAINS; x++)
            top[x] = v_max(visible(z, plain, partial, s, r, c + x), top[x]);
    for (; c < z->cols; c++)
        top[0] = v_max(visible(z, plain, partial, s, r, c), top[0]);
#pragma GCC unroll 4
    for (int x = 1; x < CHAINS; x++)
        top[0] = v_max(top[x], top[0]);
    return plain ? v_mul(top[0], v_all(z->scale2)) : top[0];
}

/* From here on the maximum of a row may be 64 or more away from the product that it was rounded
 * from, and weights relative to it outside the range of exp2. */
#define HUGE_LOGIT 0x1p30f

/* Whether one of 16 maxima is huge. -inf, a row that sees nothing yet, is not. */
static inline bool any_huge(const float *tops)
{
    bool any = false;
    for (int x = 0; x < 16; x++)
        any |= tops[x] > HUGE_LOGIT || (tops[x] < -HUGE_LOGIT && tops[x] > -INFINITY);
    return any;
}

/* The exponents s factor + minus, rounded once; in rows of huge logits twice, so that the largest
 * gives exactly 0. It depends on a row alone. */
static inline v16 exponents(v16 s, v16 factor, v16 minus, bool huge)
{
    const v16 once = v_fma(s, factor, minus);
    if (!huge)
        return once;
    return v_less(v_all(HUGE_LOGIT), v_abs(minus), v_add(v_mul(s, factor), minus), once);
}

/* A column's probabilities: hidden, summed, dropped, stored. */
FOR_EACH_KIND void put_weights(const ordo_scores *z, bool partial, bool keep, v16 p, v16 *sum,
                               float *s, int r, int c)
{
    if (partial && !all_see(z, r, c))
        p = only(z, p, v_all(0), r, c);
    *sum = v_add(*sum, p);
    if (keep)
        p = kept(z, p, r, c);
    v_store(s + (ptrdiff_t)c * z->ld + r, p);
}

FOR_EACH_KIND void softmax_rows(const ordo_scores *scores, bool plain, bool partial, bool keep,
                                float *s, float *m, float *l, float *alpha)
{
    const ordo_scores own = *scores, *z = &own; /* which no store of a float can change */
    const int rows = z->rows, cols = z->cols, ld = z->ld;
    const v16 factor = v_all(plain ? z->scale2 : 1), zero = v_all(0), nothing = v_all(-INFINITY);
    for (int r = 0; r < rows; r += 16) {
        const v16 before = v_load(m + r), now = v_max(row_tops(z, plain, partial, s, r), before);
        const v16 base = v_less(nothing, now, now, zero); /* nothing visible yet: all become 0 */
        const v16 minus = v_sub(zero, base);
        v_store(m + r, now);
        const bool huge = plain && any_huge(m + r);
        v16 sum = zero;
        for (int c = 0; c < cols; c += 2) {
            const float *at = s + (ptrdiff_t)c * ld + r, *next = c + 1 < cols ? at + ld : at;
            const v32 p = v_exp2_below((v32) { exponents(v_load(at), factor, minus, huge),
                                               exponents(v_load(next), factor, minus, huge) });
            put_weights(z, partial, keep, p.a, &sum, s, r, c);
            if (c + 1 < cols)
                put_weights(z, partial, keep, p.b, &sum, s, r, c + 1);
        }
        const v16 shrink = v_exp2(v_sub(before, base));
        v_store(alpha + r, shrink);
        v_store(l + r, v_fma(v_load(l + r), shrink, sum));
    }
}

static void softmax(const ordo_scores *z, float *s, float *m, float *l, float *alpha)
{
    if (!is_plain(z))
        softmax_rows(z, false, true, z->keep != NULL, s, m, l, alpha);
    else if (z->keep && z->partial)
        softmax_rows(z, true, true, true, s, m, l, alpha);
    else if (z->keep)
        softmax_rows(z, true, false, true, s, m, l, alpha);
    else if (z->partial)
        softmax_rows(z, true, true, false, s, m, l, alpha);
    else
        softmax_rows(z, true, false, false, s, m, l, alpha);
}

static void rescale(int rows, int n, float *o, int ld, const float *alpha)
{
    for (int r = 0; r < rows; r++, o += ld)
        if (alpha[r] != 1)
            for (int d = 0; d < n; d += 16)
                v_store(o + d, v_mul(v_load(o + d), v_all(alpha[r])));
}

/* A column's P and dS, hidden and dropped, in place of its raw products. */
FOR_EACH_KIND void put_gradients(const ordo_scores *z, bool partial, bool keep, v16 p, v16 slope,
                                 bool caps, float *s, float *dp, v16 shift, int r, int c)
{
    float *at = s + (ptrdiff_t)c * z->ld + r, *dp_at = dp + (ptrdiff_t)c * z->ld + r;
    v16 g = v_load(dp_at), pd = p;
    if (keep) {
        const v16 kept_rate = kept(z, v_all(z->keep_scale), r, c);
        pd = v_mul(p, kept_rate);
        g = v_mul(g, kept_rate);
    }
    v16 ds = v_mul(p, v_sub(g, shift));
    if (caps)
        ds = v_mul(ds, slope);
    if (partial && !all_see(z, r, c)) {
        pd = only(z, pd, v_all(0), r, c);
        ds = only(z, ds, v_all(0), r, c);
    }
    v_store(at, pd);
    v_store(dp_at, ds);
}

FOR_EACH_KIND void gradient_rows(const ordo_scores *scores, bool plain, bool partial, bool keep,
                                 float *s, float *dp, const float *lse2, const float *delta)
{
    const ordo_scores own = *scores, *z = &own; /* which no store of a float can change */
    const int rows = z->rows, cols = z->cols, ld = z->ld;
    const v16 scale2 = v_all(z->scale2);
    const bool caps = !plain && z->softcap2 > 0 && !z->of_logits;
    for (int r = 0; r < rows; r += 16) {
        const v16 minus = v_sub(v_all(0), v_load(lse2 + r)), shift = v_load(delta + r);
        for (int c = 0; c < cols; c += 2) {
            const int second = c + 1 < cols ? c + 1 : c;
            const float *at = s + (ptrdiff_t)c * ld + r, *next = s + (ptrdiff_t)second * ld + r;
            v16 x = v_load(at), y = v_load(next), slope_x = v_all(1), slope_y = v_all(1);
            x = plain ? v_fma(x, scale2, minus) : v_add(logits(z, x, r, c, &slope_x), minus);
            y = plain ? v_fma(y, scale2, minus) : v_add(logits(z, y, r, second, &slope_y), minus);
            const v32 p = v_exp2_two(x, y);
            put_gradients(z, partial, keep, p.a, slope_x, caps, s, dp, shift, r, c);
            if (c + 1 < cols)
                put_gradients(z, partial, keep, p.b, slope_y, caps, s, dp, shift, r, c + 1);
        }
    }
}

static void gradients(const ordo_scores *z, float *s, float *dp, const float *lse2,
                      const float *delta)
{
    if (!is_plain(z))
        gradient_rows(z, false, true, z->keep != NULL, s, dp, lse2, delta);
    else if (z->keep && z->partial)
        gradient_rows(z, true, true, true, s, dp, lse2, delta);
    else if (z->keep)
        gradient_rows(z, true, false, true, s, dp, lse2, delta);
    else if (z->partial)
        gradient_rows(z, true, true, false, s, dp, lse2, delta);
    else
        gradient_rows(z, true, false, false, s, dp, lse2, delta);
}

/* ---- rows ---- */

static void row_dot(int rows, int n, const float *a, const float *b, int ld, float *sums)
{
    for (int r = 0; r < rows; r++, a += ld, b += ld) {
        v16 sum = v_all(0);
        for (int d = 0; d < n; d += 16)
            sum = v_fma(v_load(a + d), v_load(b + d), sum);
        sums[r] = v_sum(sum);
    }
}

static void accumulate(int rows, int n, float *sum, int ld_sum, const float *part, int ld_part,
                       bool first)
{
    for (int r = 0; r < rows; r++, sum += ld_sum, part += ld_part)
        for (int d = 0; d < n; d += 16)
            v_store(sum + d, first ? v_load(part + d) : v_add(v_load(sum + d), v_load(part + d)));
}

/* ---- sums of arrays ---- */

#include "cpu/sum_body.h"

#define KERNELS(label)                                                                             \
    {                                                                                              \
        .name = label, .load = load, .load_transposed = load_transposed, .product = product,       \
        .rounded_product = rounded_product, .softmax = softmax, .rescale = rescale,                \
        .gradients = gradients, .row_dot = row_dot, .accumulate = accumulate, .store = store,      \
        .tree_sum = tree_sum                                                                       \
    }
