/* backward_fixed.cu: a unit for every row, the chains, dQ from integers to bf16. */
#include "cuda/backward_fixed.h"

#include <cuda_runtime.h>
#include <math.h>

#include "cuda/backward_kernel.h"
#include "cuda/backward_rows.h"
#include "cuda/launch.h"

typedef struct fixed_args {
    ordo_band band;
    int32_t heads, group_heads, q_tiles; /* q_tiles: of one head */
    int32_t key_parts;                   /* of one key head */
    int64_t rows;                        /* of all heads, padded */
    ordo_cuda_tensor k, v, dout;
    const float *lse2, *delta;
    float *row_units, *key_bounds;
} fixed_args;

enum { FIXED_THREADS = 256 };

/* Eight bf16 of a row: `part` counts eights. */
static __device__ __forceinline__ uint4 eight(const ordo_cuda_tensor &x, int32_t sequence,
                                              int32_t head, int32_t row, int part)
{
    const int64_t at = sequence * x.sequence + head * x.head + row * x.row;
    return ((const uint4 *)((const char *)x.data + 2 * at))[part];
}

/* In f64, where the square of no bf16 overflows; NaN and inf stay what they are. */
static __device__ __forceinline__ double squares(uint4 x)
{
    const uint32_t pairs[4] = { x.x, x.y, x.z, x.w };
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < 4; i++) { /* bf16 is the upper half of an f32 */
        const double low = (double)__uint_as_float(pairs[i] << 16);
        const double high = (double)__uint_as_float(pairs[i] & 0xffff0000u);
        sum = fma(low, low, sum);
        sum = fma(high, high, sum);
    }
    return sum;
}

/* Bits of an f32 that is not negative order like the number, with inf and NaN above all: so a
 * maximum of bits keeps them, which fmaxf does not. */
static __device__ __forceinline__ uint32_t largest(uint4 x)
{
    const uint32_t pairs[4] = { x.x, x.y, x.z, x.w };
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        most = max(most, max(pairs[i] << 16 & 0x7fff0000u, pairs[i] & 0x7fff0000u));
    return most;
}

template <int EACH> static __device__ __forceinline__ double sum_of(double x)
{
#pragma unroll
    for (int d = EACH / 2; d; d /= 2)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}

template <int EACH> static __device__ __forceinline__ uint32_t most_of(uint32_t x)
{
#pragma unroll
    for (int d = EACH / 2; d; d /= 2)
        x = max(x, __shfl_xor_sync(~0u, x, d));
    return x;
}

/* A block for ORDO_FIXED_KEYS keys of one key head; D / 8 threads a key. */
template <int D>
static __global__ void __launch_bounds__(FIXED_THREADS)
    keys_kernel(const __grid_constant__ fixed_args args)
{
    enum { EACH = D / 8, AT_ONCE = FIXED_THREADS / EACH };
    __shared__ uint32_t bounds[2];
    const int32_t kv_heads = args.heads / args.group_heads;
    const int32_t all = (int32_t)(blockIdx.x / args.key_parts);
    const int32_t first = (int32_t)(blockIdx.x % args.key_parts) * ORDO_FIXED_KEYS;
    const int part = threadIdx.x % EACH;
    if (threadIdx.x < 2)
        bounds[threadIdx.x] = 0;
    __syncthreads();
    uint32_t most[2] = { 0, 0 };
#pragma unroll
    for (int n = 0; n < ORDO_FIXED_KEYS; n += AT_ONCE) {
        const int32_t key = first + n + (int32_t)threadIdx.x / EACH;
        double norm = 0.0;
        uint32_t widest = 0;
        if (key < args.band.kv_len) {
            norm = squares(eight(args.v, all / kv_heads, all % kv_heads, key, part));
            widest = largest(eight(args.k, all / kv_heads, all % kv_heads, key, part));
        }
        norm = sqrt(sum_of<EACH>(norm));
        widest = most_of<EACH>(widest);
        const float product = (float)(norm * (double)__uint_as_float(widest));
        most[0] = max(most[0], __float_as_uint(product) & 0x7fffffffu); /* a NaN may be negative */
        most[1] = max(most[1], widest);
    }
    for (int i = 0; i < 2; i++) {
        most[i] = most_of<32>(most[i]);
        if (threadIdx.x % 32 == 0)
            atomicMax(bounds + i, most[i]);
    }
    __syncthreads();
    if (threadIdx.x < 2)
        args.key_bounds[2 * (int64_t)blockIdx.x + threadIdx.x] =
            __uint_as_float(bounds[threadIdx.x]);
}

/* The largest power of two in whose units |dQ| <= 2^30, if P sums to 1 and `bound` holds exactly.
 * Neither does: dS is rounded to bf16, hence the 1.03; and with |lse2| in the millions, its own
 * rounding lets P sum to a power of two of that rounding, hence the bits set aside. The factor of
 * two up to 2^31 takes the rest. */
static __device__ __forceinline__ float unit_of(double bound, float lse2)
{
    if (lse2 == INFINITY) /* no such row, or it sees nothing */
        return 1.0f;
    if (!(bound < 0x1p126) || isnan(lse2))
        return NAN;
    const int aside = (int)fminf(fabsf(lse2) * 0x1p-21f, 200.0f);
    const int width = bound > 0.0 ? ilogb(bound * 1.03) + 1 : -200;
    const int power = min(30 - width - aside, 126);
    return power < -126 ? NAN : __uint_as_float((uint32_t)(power + 127) << 23);
}

/* D / 8 threads a row. */
template <int D>
static __global__ void __launch_bounds__(FIXED_THREADS)
    rows_kernel(const __grid_constant__ fixed_args args)
{
    enum { EACH = D / 8 };
    const int64_t place = ((int64_t)blockIdx.x * FIXED_THREADS + threadIdx.x) / EACH;
    const int part = threadIdx.x % EACH, padded = args.q_tiles * args.band.bq;
    if (place >= args.rows) /* whole warps */
        return;
    const int32_t all = (int32_t)(place / padded), row = (int32_t)(place % padded);
    const int32_t head = all % args.heads, sequence = all / args.heads;
    const int32_t kv_all = sequence * (args.heads / args.group_heads) + head / args.group_heads;
    double norm = 0.0;
    uint32_t most[2] = { 0, 0 };
    if (row < args.band.q_len) {
        norm = squares(eight(args.dout, sequence, head, row, part));
        const int32_t seen = min(args.band.kv_len, row + args.band.high + 1);
        const uint2 *bounds = (const uint2 *)args.key_bounds + (int64_t)kv_all * args.key_parts;
        for (int32_t i = part; i * ORDO_FIXED_KEYS < seen; i += EACH) {
            const uint2 bound = bounds[i];
            most[0] = max(most[0], bound.x);
            most[1] = max(most[1], bound.y);
        }
    }
    norm = sqrt(sum_of<EACH>(norm));
    most[0] = most_of<EACH>(most[0]);
    most[1] = most_of<EACH>(most[1]);
    if (part != 0)
        return;
    const int64_t stat = place - row % 16 + ordo_stat_place(row % 16);
    const double bound = norm * (double)__uint_as_float(most[0]) +
                         fabs((double)args.delta[stat]) * (double)__uint_as_float(most[1]);
    args.row_units[place] = unit_of(bound, args.lse2[stat]);
}

/* ---- launch ---- */

template <int D>
static ordo_status units(const ordo_cuda_pass *pass, const ordo_fixed_work *work, char *why,
                         size_t why_size)
{
    const ordo_run *run = &pass->run;
    fixed_args args;
    args.band = run->band;
    args.heads = run->kv_heads * run->group_heads;
    args.group_heads = run->group_heads;
    args.q_tiles = ordo_band_query_tiles(&args.band);
    args.key_parts = (args.band.kv_len + ORDO_FIXED_KEYS - 1) / ORDO_FIXED_KEYS;
    args.rows = (int64_t)args.q_tiles * args.band.bq * args.heads * run->sequences;
    args.k = pass->k;
    args.v = pass->v;
    args.dout = pass->dout;
    args.lse2 = pass->lse2;
    args.delta = pass->delta;
    args.row_units = work->row_units;
    args.key_bounds = work->key_bounds;
    const cudaStream_t stream = (cudaStream_t)pass->stream;
    const int64_t parts = (int64_t)args.key_parts * run->kv_heads * run->sequences;
    const int64_t threads = args.rows * (D / 8);
    keys_kernel<D><<<(unsigned)parts, FIXED_THREADS, 0, stream>>>(args);
    CUDA_CALL(cudaGetLastError());
    rows_kernel<D>
        <<<(unsigned)((threads + FIXED_THREADS - 1) / FIXED_THREADS), FIXED_THREADS, 0, stream>>>(
            args);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

template <int D>
static ordo_status launch(const ordo_cuda_pass *pass, const ordo_fixed_work *work, char *why,
                          size_t why_size)
{
    using Z = backward_shape<D>;
    ordo_backward_args args;
    int blocks = 0;
    CUDA_TRY(ordo_backward_arguments(pass, Z::ROWS, Z::KEYS, &args, &blocks, why, why_size));
    args.row_units = work->row_units;
    CUDA_CALL(cudaFuncSetAttribute(backward_kernel<D, ORDO_DQ_FIXED>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, Z::BYTES));
    CUDA_TRY(ordo_backward_begin(pass, true, why, why_size));
    CUDA_TRY(units<D>(pass, work, why, why_size));
    backward_kernel<D, ORDO_DQ_FIXED>
        <<<blocks, Z::THREADS, Z::BYTES, (cudaStream_t)pass->stream>>>(args);
    CUDA_CALL(cudaGetLastError());
    return ordo_backward_end_fixed(pass, work->row_units, why, why_size);
}

ordo_status ordo_sm90_backward_fixed(const ordo_cuda_pass *pass, const ordo_fixed_work *work,
                                     char *why, size_t why_size)
{
    return pass->head_dim == 64 ? launch<64>(pass, work, why, why_size)
                                : launch<128>(pass, work, why, why_size);
}
