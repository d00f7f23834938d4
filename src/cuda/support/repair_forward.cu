/* support/repair_forward.cu: rows of o that came out NaN or infinite, and their lse.
 *
 * A score of NaN or +inf makes the whole row NaN, so the row is not summed then. */
#include "cuda/support/repair_rows.h"

/* A pass whose keys are in pages. */
struct in_pages : ordo_cuda_pass {
    ordo_cuda_pages pages;
};

/* The first stored column of a sequence. */
ORDO_DEVICE int32_t start_of(const ordo_cuda_pass &, const head_place &)
{
    return 0;
}

ORDO_DEVICE int32_t start_of(const in_pages &pass, const head_place &at)
{
    return pass.pages.starts ? pass.pages.starts[at.b] : 0;
}

/* Whether a key is there. */
ORDO_DEVICE bool has_key(const ordo_cuda_pass &, const head_place &, int64_t)
{
    return true;
}

ORDO_DEVICE bool has_key(const in_pages &pass, const head_place &at, int64_t key)
{
    return ordo_page_row_of(&pass.pages, at.b, (int32_t)key).page >= 0;
}

/* A row of keys or of values; `base`: key_rows() of the tensor. */
ORDO_DEVICE const uint16_t *key_row(const ordo_cuda_pass &, const head_place &,
                                    const ordo_cuda_tensor &x, const uint16_t *base, int64_t key)
{
    return base + key * x.row;
}

ORDO_DEVICE const uint16_t *key_row(const in_pages &pass, const head_place &at,
                                    const ordo_cuda_tensor &x, const uint16_t *, int64_t key)
{
    const ordo_page_row from = ordo_page_row_of(&pass.pages, at.b, (int32_t)key);
    return (const uint16_t *)x.data + from.page * x.sequence + from.row * x.row +
           at.head / pass.run.group_heads * x.head;
}

template <bool F16, class PASS>
ORDO_DEVICE double score_of(const PASS &pass, const head_place &at, int32_t row, int64_t key,
                            int32_t last, const uint16_t *k, const float *q)
{
    if (key > last || !listed(at, at.head, row, key))
        return -INFINITY;
    if (!has_key(pass, at, key))
        return NAN;
    return logit_of_product(
        at, at.head, dot<F16>(key_row(pass, at, pass.k, k, key), q, pass.head_dim), row, key);
}

template <bool F16, class PASS>
ORDO_DEVICE void repair_output(const PASS &pass, const head_place &at, int32_t row, float *q)
{
    ordo_span keys = ordo_band_meets(row, row, at.s.low, at.s.high, at.s.kv_len, 1);
    keys.first = max(keys.first, start_of(pass, at));
    const int32_t kv_head = at.head / pass.run.group_heads;
    const uint16_t *k = key_rows(at, pass.k, kv_head), *v = key_rows(at, pass.v, kv_head);
    double sum[EACH], largest = -INFINITY, weights = 0;
    double lse = pass.sink ? (double)pass.sink[at.head] : -INFINITY; /* for rows without keys */
    bool lost = false; /* a score of NaN or +inf: the row is NaN */
    share<F16>(at, q, query_rows(at, pass.q, at.head) + row * pass.q.row, pass.head_dim);
    for (int32_t first = keys.first; first <= keys.last && !lost; first += 32) {
        const double score = score_of<F16>(pass, at, row, first + at.lane, keys.last, k, q);
        lost = __any_sync(~0u, !(score < INFINITY));
        largest = fmax(largest, score);
    }
    for (int x = 16; x; x /= 2)
        largest = fmax(largest, __shfl_xor_sync(~0u, largest, x));
    fill(sum, 0);
    const bool sees = lost || largest > -INFINITY;
    lost = lost || (sees && !(lse < INFINITY)); /* a sink of NaN or +inf */
    if (!lost && sees) {
        const double sink = lse;
        largest = fmax(largest, sink);
        for (int32_t first = keys.first; first <= keys.last; first += 32) {
            const int32_t key = first + at.lane;
            double weight = exp(score_of<F16>(pass, at, row, key, keys.last, k, q) - largest);
            weights += weight;
            const bool seen = key <= keys.last && listed(at, at.head, row, key);
            if (seen)
                weight *= keep_of(at, at.head, row, key);
            for (uint32_t left = __ballot_sync(~0u, seen); left; left &= left - 1) {
                const int n = __ffs((int)left) - 1;
                add<F16>(at, sum, __shfl_sync(~0u, weight, n),
                         key_row(pass, at, pass.v, v, first + n), pass.v_head_dim);
            }
        }
        for (int x = 16; x; x /= 2)
            weights += __shfl_xor_sync(~0u, weights, x);
        weights += exp(sink - largest);
#pragma unroll
        for (int w = 0; w < EACH; w++)
            sum[w] /= weights;
        lse = largest + log(weights);
    }
    if (lost) {
        fill(sum, NAN);
        lse = NAN;
    }
    write<F16>(at, query_rows(at, pass.o, at.head) + row * pass.o.row, sum, pass.v_head_dim);
    if (at.lane == 0)
        pass.lse[lse_place(at, at.head) + row] = ordo_f32_from_f64(lse);
    __syncwarp(); /* q may be overwritten */
}

template <bool F16, class PASS>
static __global__ void __launch_bounds__(THREADS, 1)
    repair_forward_kernel(const __grid_constant__ PASS pass)
{
    __shared__ float q[WARPS][MOST];
    const int warp = threadIdx.x / 32;
    grid_wait();
    if (load_acquire(pass.ticket + ORDO_NOT_FINITE) == 0)
        return;
    const int64_t tiles = ordo_batch_before(&pass.batch, ORDO_BEFORE_QUERY, pass.batch.sequences);
    for (int64_t unit = blockIdx.x; unit < heads_of(pass) * tiles; unit += gridDim.x) {
        ordo_rows rows;
        const head_place at = tile_at(pass, ORDO_BEFORE_QUERY, unit, tiles, &rows);
        for (int32_t x = warp; x < rows.count; x += WARPS) {
            const int32_t row = rows.first + x;
            if (broken<F16>(at, query_rows(at, pass.o, at.head) + row * pass.o.row,
                            pass.v_head_dim))
                repair_output<F16>(pass, at, row, q[warp]);
        }
    }
}

ordo_status ordo_repair_forward(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages)
{
    in_pages all;
    if (!pages)
        return launch_repair(pass, pass,
                             pass->f16
                                 ? (const void *)repair_forward_kernel<true, ordo_cuda_pass>
                                 : (const void *)repair_forward_kernel<false, ordo_cuda_pass>);
    (ordo_cuda_pass &)all = *pass;
    all.pages = *pages;
    return launch_repair(pass, &all,
                         pass->f16 ? (const void *)repair_forward_kernel<true, in_pages>
                                   : (const void *)repair_forward_kernel<false, in_pages>);
}
