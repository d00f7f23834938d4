/* repair.cu: a warp a row. Scores and their gradients a lane each, 32 at a time; then the lanes
 * share the columns of the row that is summed, in ascending order, as the definition in f64 does.
 *
 * A NaN among the weights makes all of a row NaN: then there is nothing left to add. */
#include "cuda/repair.h"

#include <math.h>

#include "base/half.h"
#include "base/keep.h"
#include "cuda/launch.h"
#include "cuda/ptx.h"

enum { WARPS = 8, THREADS = 32 * WARPS };

typedef struct repair_args {
    ordo_band band;
    int32_t heads, group_heads; /* query heads, and how many share a key head */
    int64_t rows, keys;         /* of all heads and sequences */
    double scale, keep_scale;   /* keep_scale 0: no dropout */
    const uint32_t *keep_bits;
    ordo_cuda_tensor q, k, v, o, dout, dq, dk, dv;
    float *lse;
    const int32_t *flag;
} repair_args;

/* One row of a tensor. A lane has the pairs of columns lane, lane + 32, .. of it. */
typedef struct row_place {
    int32_t sequence, head, row;
} row_place;

ORDO_DEVICE row_place place_of(int64_t index, int32_t heads, int32_t rows)
{
    const int32_t all = (int32_t)(index / rows);
    return { all / heads, all % heads, (int32_t)(index % rows) };
}

ORDO_DEVICE uint16_t *row_of(const ordo_cuda_tensor &x, int32_t sequence, int32_t head, int32_t row)
{
    return (uint16_t *)x.data + sequence * x.sequence + head * x.head + row * x.row;
}

ORDO_DEVICE double low_of(uint32_t pair) /* bf16 is the upper half of an f32 */
{
    return (double)__uint_as_float(pair << 16);
}

ORDO_DEVICE double high_of(uint32_t pair)
{
    return (double)__uint_as_float(pair & 0xffff0000u);
}

/* Whether a row holds NaN or infinity. It was written by the kernel before: not from L1. */
template <int D> ORDO_DEVICE bool broken(const uint16_t *row, int lane)
{
    uint32_t taint = 0;
#pragma unroll
    for (int w = 0; w < D / 64; w++)
        taint |= not_finite<false>(__ldcg((const uint32_t *)row + lane + 32 * w));
    return __any_sync(~0u, taint != 0);
}

template <int D> ORDO_DEVICE void write(uint16_t *row, const double (&x)[D / 32], int lane)
{
#pragma unroll
    for (int w = 0; w < D / 64; w++)
        ((uint32_t *)row)[lane + 32 * w] =
            (uint32_t)ordo_bf16_from_f64(x[2 * w + 1]) << 16 | ordo_bf16_from_f64(x[2 * w]);
}

/* A row that every lane multiplies by rows of its own. */
template <int D> ORDO_DEVICE void share(float *to, const uint16_t *row, int lane)
{
#pragma unroll
    for (int w = 0; w < D / 32; w++)
        to[lane + 32 * w] = __uint_as_float((uint32_t)row[lane + 32 * w] << 16);
    __syncwarp();
}

template <int D> ORDO_DEVICE double dot(const uint16_t *row, const float *shared)
{
    double sum = 0;
#pragma unroll 4
    for (int c = 0; c < D / 8; c++) {
        const uint4 eight = ((const uint4 *)row)[c];
        const uint32_t pairs[4] = { eight.x, eight.y, eight.z, eight.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum = fma(low_of(pairs[i]), (double)shared[8 * c + 2 * i], sum);
            sum = fma(high_of(pairs[i]), (double)shared[8 * c + 2 * i + 1], sum);
        }
    }
    return sum;
}

template <int D> ORDO_DEVICE double dot_rows(const uint16_t *a, const uint16_t *b)
{
    double sum = 0;
#pragma unroll 4
    for (int c = 0; c < D / 2; c++) {
        const uint32_t x = ((const uint32_t *)a)[c], y = ((const uint32_t *)b)[c];
        sum = fma(low_of(x), low_of(y), sum);
        sum = fma(high_of(x), high_of(y), sum);
    }
    return sum;
}

/* sum += weight * row */
template <int D>
ORDO_DEVICE void add(double (&sum)[D / 32], double weight, const uint16_t *row, int lane)
{
#pragma unroll
    for (int w = 0; w < D / 64; w++) {
        const uint32_t pair = ((const uint32_t *)row)[lane + 32 * w];
        sum[2 * w] = fma(weight, low_of(pair), sum[2 * w]);
        sum[2 * w + 1] = fma(weight, high_of(pair), sum[2 * w + 1]);
    }
}

template <int D> ORDO_DEVICE void fill(double (&sum)[D / 32], double value)
{
#pragma unroll
    for (int w = 0; w < D / 32; w++)
        sum[w] = value;
}

/* What dropout makes of an element: 0, or what kept ones are multiplied by. */
ORDO_DEVICE double keep_of(const repair_args &args, int32_t sequence, int32_t head, int64_t row,
                           int64_t key)
{
    if (args.keep_scale == 0)
        return 1;
    const int64_t all = (int64_t)sequence * args.heads + head;
    const uint32_t *bits =
        args.keep_bits +
        all * ordo_keep_blocks(args.band.q_len, args.band.kv_len) * ORDO_KEEP_WORDS;
    return ordo_keep_stored(bits, args.band.kv_len, row, key) ? args.keep_scale : 0;
}

/* ---- forward ---- */

template <int D>
ORDO_DEVICE void repair_output(const repair_args &args, row_place at, float *q, int lane)
{
    const ordo_band &band = args.band;
    const ordo_span keys = ordo_band_meets(at.row, at.row, band.low, band.high, band.kv_len, 1);
    const int32_t kv_head = at.head / args.group_heads;
    const uint16_t *k = row_of(args.k, at.sequence, kv_head, 0);
    const uint16_t *v = row_of(args.v, at.sequence, kv_head, 0);
    double sum[D / 32], largest = -INFINITY, weights = 0, lse = -INFINITY;
    bool lost = false; /* a score of NaN or +inf: the row is NaN */
    share<D>(q, row_of(args.q, at.sequence, at.head, at.row), lane);
    for (int32_t first = keys.first; first <= keys.last && !lost; first += 32) {
        double score = -INFINITY;
        if (first + lane <= keys.last)
            score = args.scale * dot<D>(k + (first + lane) * args.k.row, q);
        lost = __any_sync(~0u, !(score < INFINITY));
        largest = fmax(largest, score);
    }
    for (int x = 16; x; x /= 2)
        largest = fmax(largest, __shfl_xor_sync(~0u, largest, x));
    fill<D>(sum, 0);
    if (!lost && largest > -INFINITY) {
        for (int32_t first = keys.first; first <= keys.last; first += 32) {
            double weight = 0;
            if (first + lane <= keys.last)
                weight = exp(args.scale * dot<D>(k + (first + lane) * args.k.row, q) - largest);
            weights += weight;
            if (first + lane <= keys.last)
                weight *= keep_of(args, at.sequence, at.head, at.row, first + lane);
            const int32_t count = min(32, keys.last - first + 1);
            for (int n = 0; n < count; n++)
                add<D>(sum, __shfl_sync(~0u, weight, n), v + (first + n) * args.v.row, lane);
        }
        for (int x = 16; x; x /= 2)
            weights += __shfl_xor_sync(~0u, weights, x);
#pragma unroll
        for (int w = 0; w < D / 32; w++)
            sum[w] /= weights;
        lse = largest + log(weights);
    }
    if (lost) {
        fill<D>(sum, NAN);
        lse = NAN;
    }
    write<D>(row_of(args.o, at.sequence, at.head, at.row), sum, lane);
    if (lane == 0)
        args.lse[((int64_t)at.sequence * args.heads + at.head) * band.q_len + at.row] =
            ordo_f32_from_f64(lse);
    __syncwarp(); /* nobody reads q any more */
}

template <int D>
static __global__ void __launch_bounds__(THREADS, 1)
    repair_forward_kernel(const __grid_constant__ repair_args args)
{
    __shared__ float q[WARPS][D];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    grid_wait();
    if (load_acquire(args.flag) == 0)
        return;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + warp; row < args.rows;
         row += (int64_t)gridDim.x * WARPS) {
        const row_place at = place_of(row, args.heads, args.band.q_len);
        if (broken<D>(row_of(args.o, at.sequence, at.head, at.row), lane))
            repair_output<D>(args, at, q[warp], lane);
    }
}

/* ---- backward ---- */

/* P and scale * dS of one pair of row and key, from their products. */
typedef struct pair_gradient {
    double p, dx;
} pair_gradient;

ORDO_DEVICE pair_gradient gradient_of(double scale, double qk, double dp, double lse, double delta)
{
    const double p = exp(scale * qk - lse);
    return { p, scale * (p * (dp - delta)) };
}

template <int D>
ORDO_DEVICE void repair_query(const repair_args &args, row_place at, float *q, float *dout,
                              int lane)
{
    const ordo_band &band = args.band;
    const ordo_span keys = ordo_band_meets(at.row, at.row, band.low, band.high, band.kv_len, 1);
    const int32_t kv_head = at.head / args.group_heads;
    const uint16_t *k = row_of(args.k, at.sequence, kv_head, 0);
    const uint16_t *v = row_of(args.v, at.sequence, kv_head, 0);
    const uint16_t *dout_row = row_of(args.dout, at.sequence, at.head, at.row);
    const double lse =
        args.lse[((int64_t)at.sequence * args.heads + at.head) * band.q_len + at.row];
    const double delta = dot_rows<D>(dout_row, row_of(args.o, at.sequence, at.head, at.row));
    double sum[D / 32];
    bool lost = false;
    share<D>(q, row_of(args.q, at.sequence, at.head, at.row), lane);
    share<D>(dout, dout_row, lane);
    fill<D>(sum, 0);
    const int32_t last = lse == -INFINITY ? -1 : keys.last; /* saw nothing: 0 */
    for (int32_t first = keys.first; first <= last && !lost; first += 32) {
        const int64_t key = first + lane;
        double dx = 0;
        if (key <= last)
            dx = gradient_of(args.scale, dot<D>(k + key * args.k.row, q),
                             keep_of(args, at.sequence, at.head, at.row, key) *
                                 dot<D>(v + key * args.v.row, dout),
                             lse, delta)
                     .dx;
        lost = __any_sync(~0u, isnan(dx));
        const int32_t count = lost ? 0 : min(32, last - first + 1);
        for (int n = 0; n < count; n++)
            add<D>(sum, __shfl_sync(~0u, dx, n), k + (first + n) * args.k.row, lane);
    }
    if (lost)
        fill<D>(sum, NAN);
    write<D>(row_of(args.dq, at.sequence, at.head, at.row), sum, lane);
    __syncwarp();
}

/* Whether a key sees a row of which not even lse is a number: its dk and dv are NaN then. */
ORDO_DEVICE bool sees_nan(const float *lse, ordo_span rows, int lane)
{
    bool found = false;
    for (int32_t first = rows.first; first <= rows.last && !found; first += 32)
        found = __any_sync(~0u, first + lane <= rows.last && isnan(lse[first + lane]));
    return found;
}

/* dk and dv of one key, over the query heads that share it. */
template <int D>
ORDO_DEVICE void sum_key(const repair_args &args, row_place at, const float *k, const float *v,
                         int lane, double (&dk)[D / 32], double (&dv)[D / 32])
{
    const ordo_band &band = args.band;
    const ordo_span rows = ordo_band_meets(at.row, at.row, -band.high, -band.low, band.q_len, 1);
    const int32_t head0 = at.head * args.group_heads;
    const float *lse0 = args.lse + ((int64_t)at.sequence * args.heads + head0) * band.q_len;
    bool dk_lost = false, dv_lost = false;
    for (int g = 0; g < args.group_heads && !dv_lost; g++)
        dv_lost = sees_nan(lse0 + (int64_t)g * band.q_len, rows, lane);
    fill<D>(dk, 0);
    fill<D>(dv, 0);
    for (int g = 0; g < args.group_heads; g++) {
        const uint16_t *q = row_of(args.q, at.sequence, head0 + g, 0);
        const uint16_t *o = row_of(args.o, at.sequence, head0 + g, 0);
        const uint16_t *dout = row_of(args.dout, at.sequence, head0 + g, 0);
        for (int32_t first = rows.first; first <= rows.last && !dv_lost; first += 32) {
            const int64_t row = first + lane;
            pair_gradient x = { 0, 0 };
            bool seen = false;
            if (row <= rows.last) {
                const double lse = lse0[g * (int64_t)band.q_len + row];
                const uint16_t *dout_row = dout + row * args.dout.row;
                seen = lse != -INFINITY;
                if (seen) {
                    const double keep = keep_of(args, at.sequence, head0 + g, row, at.row);
                    x = gradient_of(args.scale, dot<D>(q + row * args.q.row, k),
                                    keep * dot<D>(dout_row, v), lse,
                                    dot_rows<D>(dout_row, o + row * args.o.row));
                    x.p *= keep;
                }
            }
            dk_lost |= __any_sync(~0u, isnan(x.dx)) != 0;
            dv_lost |= __any_sync(~0u, isnan(x.p)) != 0;
            const uint32_t take = dv_lost ? 0 : __ballot_sync(~0u, seen);
            for (int n = 0; n < 32; n++)
                if (take >> n & 1) { /* a row that saw nothing adds nothing, not zeros */
                    add<D>(dk, __shfl_sync(~0u, x.dx, n), q + (first + n) * args.q.row, lane);
                    add<D>(dv, __shfl_sync(~0u, x.p, n), dout + (first + n) * args.dout.row, lane);
                }
        }
    }
    if (dv_lost)
        fill<D>(dv, NAN);
    if (dk_lost || dv_lost) /* P of NaN is dS of NaN */
        fill<D>(dk, NAN);
}

template <int D>
ORDO_DEVICE void repair_key(const repair_args &args, row_place at, float *k, float *v, int lane)
{
    uint16_t *const dk = row_of(args.dk, at.sequence, at.head, at.row);
    uint16_t *const dv = row_of(args.dv, at.sequence, at.head, at.row);
    const bool dk_broken = broken<D>(dk, lane), dv_broken = broken<D>(dv, lane);
    if (!dk_broken && !dv_broken)
        return;
    double dk_sum[D / 32], dv_sum[D / 32];
    share<D>(k, row_of(args.k, at.sequence, at.head, at.row), lane);
    share<D>(v, row_of(args.v, at.sequence, at.head, at.row), lane);
    sum_key<D>(args, at, k, v, lane, dk_sum, dv_sum);
    if (dk_broken)
        write<D>(dk, dk_sum, lane);
    if (dv_broken)
        write<D>(dv, dv_sum, lane);
    __syncwarp();
}

template <int D>
static __global__ void __launch_bounds__(THREADS, 1)
    repair_backward_kernel(const __grid_constant__ repair_args args)
{
    __shared__ float a[WARPS][D], b[WARPS][D];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t step = (int64_t)gridDim.x * WARPS;
    grid_wait();
    if (load_acquire(args.flag) == 0)
        return;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + warp; row < args.rows; row += step) {
        const row_place at = place_of(row, args.heads, args.band.q_len);
        if (broken<D>(row_of(args.dq, at.sequence, at.head, at.row), lane))
            repair_query<D>(args, at, a[warp], b[warp], lane);
    }
    for (int64_t key = (int64_t)blockIdx.x * WARPS + warp; key < args.keys; key += step)
        repair_key<D>(args, place_of(key, args.heads / args.group_heads, args.band.kv_len), a[warp],
                      b[warp], lane);
}

/* ---- launch ---- */

static ordo_status launch(const ordo_cuda_pass *pass, const void *kernel, char *why,
                          size_t why_size)
{
    const ordo_run *run = &pass->run;
    repair_args args;
    args.band = run->band;
    args.heads = run->kv_heads * run->group_heads;
    args.group_heads = run->group_heads;
    args.rows = (int64_t)run->sequences * args.heads * run->band.q_len;
    args.keys = (int64_t)run->sequences * run->kv_heads * run->band.kv_len;
    args.scale = pass->scale;
    args.keep_scale = pass->keep_scale;
    args.keep_bits = pass->keep_bits;
    args.q = pass->q;
    args.k = pass->k;
    args.v = pass->v;
    args.o = pass->o;
    args.dout = pass->dout;
    args.dq = pass->dq;
    args.dk = pass->dk;
    args.dv = pass->dv;
    args.lse = pass->lse;
    args.flag = pass->ticket + ORDO_NOT_FINITE;
    int blocks = 0;
    CUDA_TRY(ordo_cuda_blocks(run->workers, (args.rows + args.keys + WARPS - 1) / WARPS, &blocks,
                              why, why_size));
    const ordo_cuda_grid grid = { (unsigned)blocks, THREADS, 0, ORDO_LAUNCH_EARLY };
    return ordo_cuda_launch(kernel, &args, grid, pass->stream, why, why_size);
}

ordo_status ordo_repair_forward(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return launch(pass,
                  pass->head_dim == 64 ? (const void *)repair_forward_kernel<64>
                                       : (const void *)repair_forward_kernel<128>,
                  why, why_size);
}

ordo_status ordo_repair_backward(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return launch(pass,
                  pass->head_dim == 64 ? (const void *)repair_backward_kernel<64>
                                       : (const void *)repair_backward_kernel<128>,
                  why, why_size);
}
