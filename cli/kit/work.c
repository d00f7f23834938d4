/* work.c: memory and operations of a problem. */
#include "kit/work.h"

#include "kit/seen.h"

static double or_else(int64_t value, int64_t otherwise)
{
    return (double)(value > 0 ? value : otherwise);
}

double cli_work_bytes(const ordo_problem *p)
{
    const double kv_len = or_else(p->kv_len, p->q_len);
    const bool packed = p->layout == ORDO_PACKED;
    const double rows = packed ? (double)p->total_q : (double)p->batch * (double)p->q_len;
    const double columns = packed ? (double)p->total_kv : (double)p->batch * kv_len;
    const double d = (double)p->head_dim, dv = or_else(p->v_head_dim, p->head_dim);
    const double heads = (double)p->heads, kv_heads = or_else(p->kv_heads, p->heads);
    const double width = p->dtype == ORDO_F32 ? 4 : 2;
    /* q, dq, o, dout; k, dk, v, dv; lse; and as much again as f32 for the workspace */
    return (width + 4) * (rows * heads * 2 * (d + dv) + columns * kv_heads * 2 * (d + dv)) +
           rows * heads * 4;
}

static double between(double low, double x, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* Columns before i + from, summed over rows i: clamp(i + from, 0, kv). */
static double columns_before(double from, double q, double kv)
{
    const double some = between(0, -from, q);       /* first row with any */
    const double all = between(some, kv - from, q); /* first row with all */
    return (all - some) * from + (all * (all - 1) - some * (some - 1)) / 2 + (q - all) * kv;
}

/* Row i sees columns from i + delta - left to i + delta + right, of those there are. */
typedef struct limits {
    double delta, left, right;
} limits;

static limits limits_of(const ordo_problem *p, double q, double kv)
{
    const double delta = (double)ordo_mask_diagonal(p->mask, (int64_t)q, (int64_t)kv);
    const double open = q + kv;
    double left = open, right = p->mask == ORDO_MASK_FULL ? open : 0;
    if (p->window.on && p->window.left >= 0)
        left = (double)p->window.left;
    if (p->window.on && p->window.right >= 0 && (double)p->window.right < right)
        right = (double)p->window.right;
    return (limits) { delta, left, right };
}

static double lesser(double x, double y)
{
    return x < y ? x : y;
}

/* Columns that the mask shows in each row, of those that `mask` leaves. */
static double pairs_masked(const ordo_problem *p, const ordo_block_mask *mask, double q, double kv)
{
    const limits seen = limits_of(p, q, kv);
    double pairs = 0;
    for (int64_t i = 0; i < (int64_t)q; i++) {
        const double at = (double)i + seen.delta;
        pairs += cli_mask_columns(mask, i, at - seen.left, lesser(at + seen.right, kv - 1));
    }
    return pairs;
}

static double pairs_of(const ordo_problem *p, const ordo_block_mask *mask, double q, double kv)
{
    const limits seen = limits_of(p, q, kv);
    if (mask)
        return pairs_masked(p, mask, q, kv);
    return columns_before(seen.delta + seen.right + 1, q, kv) -
           columns_before(seen.delta - seen.left, q, kv);
}

double cli_work_pairs(const ordo_problem *p, const int32_t *q_numbers, const int32_t *kv_numbers,
                      const ordo_block_mask *mask)
{
    if (p->layout == ORDO_DENSE || q_numbers == NULL || kv_numbers == NULL)
        return (double)p->batch * pairs_of(p, mask, (double)p->q_len, or_else(p->kv_len, p->q_len));
    double pairs = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        const bool packed = p->layout == ORDO_PACKED;
        const int32_t q = packed ? q_numbers[b + 1] - q_numbers[b] : q_numbers[b];
        const int32_t kv = packed ? kv_numbers[b + 1] - kv_numbers[b] : kv_numbers[b];
        pairs += pairs_of(p, mask, q, kv);
    }
    return pairs;
}

double cli_work_nominal_pairs(const ordo_problem *p, const int32_t *q_numbers,
                              const int32_t *kv_numbers)
{
    if (p->layout != ORDO_DENSE || p->window.on)
        return cli_work_pairs(p, q_numbers, kv_numbers, NULL);
    const double all = (double)p->batch * (double)p->q_len * or_else(p->kv_len, p->q_len);
    return p->mask == ORDO_MASK_FULL ? all : all / 2;
}

double cli_work_forward(const ordo_problem *p, double pairs)
{
    const double d = (double)p->head_dim, dv = or_else(p->v_head_dim, p->head_dim);
    return 2 * pairs * (double)p->heads * (d + dv);
}

double cli_work_backward(const ordo_problem *p, double pairs)
{
    const double d = (double)p->head_dim, dv = or_else(p->v_head_dim, p->head_dim);
    return 2 * pairs * (double)p->heads * (3 * d + 2 * dv);
}
