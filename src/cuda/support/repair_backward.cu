/* support/repair_backward.cu: rows of dq, dk and dv that came out NaN or infinite, and rows of
 * carried sums that a pass has marked.
 *
 * A NaN among the weights makes the whole row NaN, so the sum stops there. */
#include "cuda/support/repair_rows.h"

/* ---- carried sums: f32, in the units of the kernels' accumulators ---- */

ORDO_DEVICE int64_t carry_row_of(const head_place &at, int32_t key)
{
    return ordo_carry_row(at.pass.kv_rows, at.pass.run.kv_heads, at.s.batch, at.s.kv_row + key,
                          at.head);
}

/* sum = what came in; 0 if nothing did. Written by a kernel before: not from L1. */
ORDO_DEVICE void begin_sum(const head_place &at, double (&sum)[EACH], const float *sums,
                           int32_t key, float scale, int columns)
{
    const float *row = sums + carry_row_of(at, key) * columns;
#pragma unroll
    for (int w = 0; w < EACH / 2; w++) {
        sum[2 * w] = sum[2 * w + 1] = 0;
        if (!at.pass.carry.in || at.lane + 32 * w >= columns / 2)
            continue;
        const float2 pair = __ldcg((const float2 *)row + at.lane + 32 * w);
        sum[2 * w] = (double)pair.x * (double)scale;
        sum[2 * w + 1] = (double)pair.y * (double)scale;
    }
}

ORDO_DEVICE void leave_sum(const head_place &at, const double (&sum)[EACH], float *sums,
                           int32_t key, float scale, int columns)
{
    float *row = sums + carry_row_of(at, key) * columns;
#pragma unroll
    for (int w = 0; w < EACH / 2; w++)
        if (at.lane + 32 * w < columns / 2)
            ((float2 *)row)[at.lane + 32 * w] =
                make_float2(ordo_f32_from_f64(sum[2 * w] / (double)scale),
                            ordo_f32_from_f64(sum[2 * w + 1] / (double)scale));
}

/* ---- one element ---- */

template <bool F16> ORDO_DEVICE double dot_rows(const uint16_t *a, const uint16_t *b, int columns)
{
    double sum = 0;
    for (int c = 0; c < columns / 2; c++) {
        const uint32_t x = ((const uint32_t *)a)[c], y = ((const uint32_t *)b)[c];
        sum = fma((double)pair_low<F16>(x), (double)pair_low<F16>(y), sum);
        sum = fma((double)pair_high<F16>(x), (double)pair_high<F16>(y), sum);
    }
    return sum;
}

/* P and scale * dS of one pair of row and key, from their products; `dp` after dropout. */
typedef struct pair_gradient {
    double p, dx;
} pair_gradient;

ORDO_DEVICE pair_gradient gradient_of(const head_place &at, int32_t head, double qk, double dp,
                                      double lse, double delta, int64_t row, int64_t key)
{
    const double p = exp(logit_of_product(at, head, qk, row, key) - lse);
    double dx = (double)at.pass.scale * (p * (dp - delta));
    if (at.pass.softcap > 0) {
        const double c = cosh((double)at.pass.scale * qk / (double)at.pass.softcap);
        dx *= 1 / (c * c);
    }
    return { p, dx };
}

/* rowsum(dO * O) - dlse */
template <bool F16>
ORDO_DEVICE double delta_of(const head_place &at, int32_t head, int64_t row, const uint16_t *dout,
                            const uint16_t *o)
{
    const double sum = dot_rows<F16>(dout, o, at.pass.v_head_dim);
    return at.pass.dlse ? sum - (double)at.pass.dlse[lse_place(at, head) + row] : sum;
}

/* ---- dq ---- */

template <bool F16>
ORDO_DEVICE void repair_query(const head_place &at, int32_t row, float *q, float *dout)
{
    const ordo_cuda_pass &pass = at.pass;
    const ordo_span keys = ordo_band_meets(row, row, at.s.low, at.s.high, at.s.kv_len, 1);
    const int32_t kv_head = at.head / pass.run.group_heads;
    const uint16_t *k = key_rows(at, pass.k, kv_head), *v = key_rows(at, pass.v, kv_head);
    const uint16_t *dout_row = query_rows(at, pass.dout, at.head) + row * pass.dout.row;
    const double lse = pass.lse[lse_place(at, at.head) + row];
    const double delta = delta_of<F16>(at, at.head, row, dout_row,
                                       query_rows(at, pass.o, at.head) + row * pass.o.row);
    double sum[EACH];
    bool lost = false;
    share<F16>(at, q, query_rows(at, pass.q, at.head) + row * pass.q.row, pass.head_dim);
    share<F16>(at, dout, dout_row, pass.v_head_dim);
    fill(sum, 0);
    const int32_t last = lse == -INFINITY ? -1 : keys.last; /* saw nothing: 0 */
    for (int32_t first = keys.first; first <= last && !lost; first += 32) {
        const int64_t key = first + at.lane;
        const bool seen = key <= last && listed(at, at.head, row, key);
        double dx = 0;
        if (seen)
            dx = gradient_of(at, at.head, dot<F16>(k + key * pass.k.row, q, pass.head_dim),
                             keep_of(at, at.head, row, key) *
                                 dot<F16>(v + key * pass.v.row, dout, pass.v_head_dim),
                             lse, delta, row, key)
                     .dx;
        lost = __any_sync(~0u, isnan(dx));
        for (uint32_t left = __ballot_sync(~0u, seen && !lost); left; left &= left - 1) {
            const int n = __ffs((int)left) - 1;
            add<F16>(at, sum, __shfl_sync(~0u, dx, n), k + (first + n) * pass.k.row, pass.head_dim);
        }
    }
    if (lost)
        fill(sum, NAN);
    write<F16>(at, query_rows(at, pass.dq, at.head) + row * pass.dq.row, sum, pass.head_dim);
    __syncwarp();
}

/* ---- dk and dv ---- */

/* Whether a row that the key is visible to has an lse of NaN: its dk and dv are NaN then. */
ORDO_DEVICE bool sees_nan(const head_place &at, int32_t head, int32_t key, ordo_span rows)
{
    const float *const lse = at.pass.lse + lse_place(at, head);
    bool found = false;
    for (int32_t first = rows.first; first <= rows.last && !found; first += 32) {
        const int32_t row = first + at.lane;
        found = __any_sync(~0u, row <= rows.last && isnan(lse[row]) && listed(at, head, row, key));
    }
    return found;
}

/* What one row of one query head gives a key; `seen` false: nothing at all. */
template <bool F16>
ORDO_DEVICE pair_gradient row_gradient(const head_place &at, int32_t head, int64_t row, int32_t key,
                                       const float *k, const float *v, bool *seen)
{
    const ordo_cuda_pass &pass = at.pass;
    const double lse = pass.lse[lse_place(at, head) + row];
    const uint16_t *dout = query_rows(at, pass.dout, head) + row * pass.dout.row;
    const uint16_t *o = query_rows(at, pass.o, head) + row * pass.o.row;
    *seen = lse != -INFINITY && listed(at, head, row, key);
    if (!*seen)
        return { 0, 0 };
    const double keep = keep_of(at, head, row, key);
    pair_gradient x = gradient_of(
        at, head, dot<F16>(query_rows(at, pass.q, head) + row * pass.q.row, k, pass.head_dim),
        keep * dot<F16>(dout, v, pass.v_head_dim), lse, delta_of<F16>(at, head, row, dout, o), row,
        key);
    x.p *= keep;
    return x;
}

/* dk and dv of one key, over the query heads that share it. */
template <bool F16>
ORDO_DEVICE void sum_key(const head_place &at, int32_t key, const float *k, const float *v,
                         double (&dk)[EACH], double (&dv)[EACH])
{
    const ordo_cuda_pass &pass = at.pass;
    const ordo_span rows = ordo_band_meets(key, key, -at.s.high, -at.s.low, at.s.q_len, 1);
    const int32_t head0 = at.head * pass.run.group_heads, end = head0 + pass.run.group_heads;
    bool dk_lost = false, dv_lost = false;
    for (int32_t head = head0; head < end && !dv_lost; head++)
        dv_lost = sees_nan(at, head, key, rows);
    begin_sum(at, dk, pass.carry.dk, key, ordo_pass_dk_scale(&pass), pass.head_dim);
    begin_sum(at, dv, pass.carry.dv, key, ordo_pass_dv_scale(&pass), pass.v_head_dim);
    for (int32_t head = head0; head < end; head++) {
        const uint16_t *q = query_rows(at, pass.q, head);
        const uint16_t *dout = query_rows(at, pass.dout, head);
        for (int32_t first = rows.first; first <= rows.last && !dv_lost; first += 32) {
            pair_gradient x = { 0, 0 };
            bool seen = false;
            if (first + at.lane <= rows.last)
                x = row_gradient<F16>(at, head, first + at.lane, key, k, v, &seen);
            dk_lost |= __any_sync(~0u, isnan(x.dx)) != 0;
            dv_lost |= __any_sync(~0u, isnan(x.p)) != 0;
            const uint32_t take = dv_lost ? 0 : __ballot_sync(~0u, seen);
            for (int n = 0; n < 32; n++)
                if (take >> n & 1) { /* a row that saw nothing adds nothing, not zeros */
                    add<F16>(at, dk, __shfl_sync(~0u, x.dx, n), q + (first + n) * pass.q.row,
                             pass.head_dim);
                    add<F16>(at, dv, __shfl_sync(~0u, x.p, n), dout + (first + n) * pass.dout.row,
                             pass.v_head_dim);
                }
        }
    }
    if (dv_lost)
        fill(dv, NAN);
    if (dk_lost || dv_lost) /* P of NaN is dS of NaN */
        fill(dk, NAN);
}

/* One gradient of a key, dk or dv: where it goes, and whether it has to be computed again. */
typedef struct key_result {
    uint16_t *row; /* where it goes; NULL: its sums are carried out */
    float *sums;
    float scale;
    int columns;
    bool broken;
} key_result;

template <bool F16>
ORDO_DEVICE key_result result_of(const head_place &at, int32_t key, const ordo_cuda_tensor &x,
                                 float *sums, const uint8_t *broken_rows, float scale, int columns)
{
    if (at.pass.carry.out)
        return { NULL, sums, scale, columns, __ldcg(broken_rows + carry_row_of(at, key)) != 0 };
    uint16_t *const row = key_rows(at, x, at.head) + key * x.row;
    return { row, sums, scale, columns, broken<F16>(at, row, columns) };
}

template <bool F16>
ORDO_DEVICE void put_result(const head_place &at, int32_t key, const key_result &x,
                            const double (&sum)[EACH])
{
    if (x.broken && x.row)
        write<F16>(at, x.row, sum, x.columns);
    else if (x.broken)
        leave_sum(at, sum, x.sums, key, x.scale, x.columns);
}

template <bool F16>
ORDO_DEVICE void repair_key(const head_place &at, int32_t key, float *k, float *v)
{
    const ordo_cuda_pass &pass = at.pass;
    const ordo_cuda_carry &c = pass.carry;
    const key_result dk = result_of<F16>(at, key, pass.dk, c.dk, c.dk_broken,
                                         ordo_pass_dk_scale(&pass), pass.head_dim);
    const key_result dv = result_of<F16>(at, key, pass.dv, c.dv, c.dv_broken,
                                         ordo_pass_dv_scale(&pass), pass.v_head_dim);
    if (!dk.broken && !dv.broken)
        return;
    double dk_sum[EACH], dv_sum[EACH];
    share<F16>(at, k, key_rows(at, pass.k, at.head) + key * pass.k.row, pass.head_dim);
    share<F16>(at, v, key_rows(at, pass.v, at.head) + key * pass.v.row, pass.v_head_dim);
    sum_key<F16>(at, key, k, v, dk_sum, dv_sum);
    put_result<F16>(at, key, dk, dk_sum);
    put_result<F16>(at, key, dv, dv_sum);
    __syncwarp();
}

/* ---- the kernel ---- */

template <bool F16>
static __global__ void __launch_bounds__(THREADS, 1)
    repair_backward_kernel(const __grid_constant__ ordo_cuda_pass pass)
{
    __shared__ float a[WARPS][MOST], b[WARPS][MOST];
    const int warp = threadIdx.x / 32;
    grid_wait();
    if (load_acquire(pass.ticket + ORDO_NOT_FINITE) == 0)
        return;
    const int64_t tiles =
        pass.dq.data ? ordo_batch_before(&pass.batch, ORDO_BEFORE_QUERY, pass.batch.sequences) : 0;
    for (int64_t unit = blockIdx.x; unit < heads_of(pass) * tiles; unit += gridDim.x) {
        ordo_rows rows;
        const head_place at = tile_at(pass, ORDO_BEFORE_QUERY, unit, tiles, &rows);
        for (int32_t x = warp; x < rows.count; x += WARPS) {
            const int32_t row = rows.first + x;
            if (broken<F16>(at, query_rows(at, pass.dq, at.head) + row * pass.dq.row,
                            pass.head_dim))
                repair_query<F16>(at, row, a[warp], b[warp]);
        }
    }
    if (!pass.dk.data && !pass.carry.out)
        return;
    const int64_t key_tiles = ordo_batch_before(&pass.batch, ORDO_BEFORE_KEY, pass.batch.sequences);
    for (int64_t unit = blockIdx.x; unit < pass.run.kv_heads * key_tiles; unit += gridDim.x) {
        ordo_rows keys;
        const head_place at = tile_at(pass, ORDO_BEFORE_KEY, unit, key_tiles, &keys);
        for (int32_t x = warp; x < keys.count; x += WARPS)
            repair_key<F16>(at, keys.first + x, a[warp], b[warp]);
    }
}

ordo_status ordo_repair_backward(const ordo_cuda_pass *pass)
{
    return launch_repair(pass, pass,
                         pass->f16 ? (const void *)repair_backward_kernel<true>
                                   : (const void *)repair_backward_kernel<false>);
}
