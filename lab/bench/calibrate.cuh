/* calibrate.cuh: the kernels of calibrate.cu. Each stamps its own begin and end, so that a launch
 * costs nothing, and counts cycles and nanoseconds, since the clock moves with the load. */
#ifndef BENCH_CALIBRATE_CUH
#define BENCH_CALIBRATE_CUH

#include "cuda/sm90/wgmma.h"
#include "cuda/tile/swizzle.h"

enum {
    TILE_BYTES = 32768,      /* what a store warp of the backward kernel adds at a time */
    ALONE_BYTES = 120 * 1024 /* shared memory of which an SM has not twice: one block each */
};

typedef struct stamp {
    uint64_t begin_ns, end_ns, clk;
} stamp;

ORDO_DEVICE uint64_t now_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

/* By all threads of a block. */
ORDO_DEVICE stamp begin_stamp(void)
{
    __syncthreads();
    stamp s;
    s.begin_ns = now_ns();
    s.clk = clock64();
    return s;
}

ORDO_DEVICE void end_stamp(stamp s, stamp *out)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        s.clk = clock64() - s.clk;
        s.end_ns = now_ns();
        out[blockIdx.x] = s;
    }
}

ORDO_DEVICE uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* Random data, since zeros draw less power: pairs of bf16, or a float, of size about one. */
ORDO_DEVICE void fill_shared(uint32_t bytes)
{
    for (uint32_t x = threadIdx.x; x < bytes / 4; x += blockDim.x)
        store_shared(ORDO_SMEM_BASE + 4 * x,
                     (mix(x + 65537 * blockIdx.x) & 0x807f807fu) | 0x3f003f00u);
    fence_shared_to_async();
    __syncthreads();
}

/* ---- clock: one block spins ---- */

__global__ void spin_kernel(uint64_t ns, stamp *out)
{
    const stamp s = begin_stamp();
    while (now_ns() - s.begin_ns < ns)
        continue;
    end_stamp(s, out);
}

/* ---- bulk adds and stores ---- */

ORDO_DEVICE void bulk_add_s32(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], %2;" ::"l"(to),
        "r"(from), "r"(bytes)
        : "memory");
}

typedef enum bulk_kind { BULK_ADD_F32, BULK_ADD_S32, BULK_STORE } bulk_kind;

template <bulk_kind KIND> ORDO_DEVICE void bulk_write(char *to, uint32_t from, uint32_t bytes)
{
    if (KIND == BULK_ADD_F32)
        bulk_add_f32(to, from, bytes);
    else if (KIND == BULK_ADD_S32)
        bulk_add_s32(to, from, bytes);
    else
        bulk_store(to, from, bytes);
    bulk_commit();
    bulk_wait();
}

/* Two warps a block, a buffer each, as the backward kernel has them. */
template <bulk_kind KIND>
__global__ void bulk_kernel(char *target, int tiles, int rounds, stamp *out)
{
    fill_shared(2 * TILE_BYTES);
    const stamp s = begin_stamp();
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0)
        for (int x = 0, tile = blockIdx.x * 2 + warp; x < rounds; x++, tile += gridDim.x * 2)
            bulk_write<KIND>(target + (size_t)(tile % tiles) * TILE_BYTES,
                             ORDO_SMEM_BASE + warp * TILE_BYTES, TILE_BYTES);
    end_stamp(s, out);
}

/* One block, one add at a time: cycles of each. */
__global__ void add_latency_kernel(char *target, int tiles, uint32_t bytes, int rounds,
                                   uint32_t *clk)
{
    fill_shared(bytes);
    if (threadIdx.x == 0)
        for (int x = 0; x < rounds; x++) {
            const int64_t begin = clock64();
            bulk_write<BULK_ADD_F32>(target + (size_t)(x % tiles) * bytes, ORDO_SMEM_BASE, bytes);
            clk[x] = (uint32_t)(clock64() - begin);
        }
}

/* ---- flags between SMs ---- */

ORDO_DEVICE void await(const int32_t *flag, int32_t value)
{
    ordo_watch watch;
    for (uint32_t spins = 0; load_acquire(flag) != value; spins++)
        watch.look(ORDO_WAIT_COUNTER, (uint64_t)flag, (uint32_t)value);
}

enum { FLAG_STRIDE = 64 }; /* a flag each in cache lines of their own */

/* Block 0 and `partner` bounce a flag: `trips` there and back. */
__global__ void flag_kernel(int32_t *flags, uint32_t partner, int trips, stamp *out)
{
    if (blockIdx.x != 0 && blockIdx.x != partner)
        return;
    const bool first = blockIdx.x == 0;
    int32_t *mine = flags + (first ? 0 : FLAG_STRIDE), *other = flags + (first ? FLAG_STRIDE : 0);
    const stamp s = begin_stamp();
    for (int x = 1; x <= trips && threadIdx.x == 0; x++) {
        if (first)
            add_release(other, 1);
        await(mine, x);
        if (!first)
            add_release(other, 1);
    }
    end_stamp(s, out);
}

/* `blocks` blocks add to one tile in turn, `laps` times: the ordered add of the backward kernel. */
__global__ void hop_kernel(char *target, int32_t *turn, uint32_t bytes, int laps, stamp *out)
{
    fill_shared(bytes);
    const stamp s = begin_stamp();
    if (threadIdx.x == 0)
        for (int lap = 0; lap < laps; lap++) {
            await(turn, lap * gridDim.x + blockIdx.x);
            fence_global_to_async();
            bulk_write<BULK_ADD_F32>(target, ORDO_SMEM_BASE, bytes);
            fence_global_to_async();
            add_release(turn, 1);
        }
    end_stamp(s, out);
}

__global__ void grid_barrier_kernel(int32_t *arrived, int rounds, stamp *out)
{
    const stamp s = begin_stamp();
    for (int x = 1; x <= rounds; x++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            add_release(arrived, 1);
            ordo_watch watch;
            for (uint32_t spins = 0; load_acquire(arrived) < x * (int)gridDim.x; spins++)
                watch.look(ORDO_WAIT_COUNTER, (uint64_t)arrived, x * gridDim.x);
        }
        __syncthreads();
    }
    end_stamp(s, out);
}

/* ---- matrix products: GROUPS warpgroups, K = 128 a round, A 64 x 128 each, B N x 128 for all ----
 */

template <int N, bool REGISTERS, int GROUPS>
__global__ void __launch_bounds__(GROUPS * 128, 1)
    product_kernel(int rounds, stamp *out, float *sink)
{
    fill_shared(GROUPS * 16384 + N * 256);
    const uint32_t at_a = ORDO_SMEM_BASE + threadIdx.x / 128 * 16384;
    const uint32_t low_a = ordo_descriptor_low(at_a, 64 * ORDO_LINE_BYTES);
    const uint32_t low_b =
        ordo_descriptor_low(ORDO_SMEM_BASE + GROUPS * 16384, N * ORDO_LINE_BYTES);
    uint32_t a[4];
    for (int x = 0; x < 4; x++)
        a[x] = (mix(threadIdx.x * 4 + x) & 0x807f807fu) | 0x3f003f00u;
    float d[N / 2];
    for (int i = 0; i < N / 2; i++)
        d[i] = 0;
    const stamp s = begin_stamp();
    for (int x = 0; x < rounds; x++) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint64_t b = wgmma_by_columns(low_b, N, k);
            if (REGISTERS)
                wgmma_rs<false, 0>(d, a, b, 1);
            else
                wgmma_ss<false, 0, 0>(d, wgmma_by_columns(low_a, 64, k), b, 1);
        }
        wgmma_commit();
        wgmma_wait<1>();
    }
    wgmma_wait<0>();
    wgmma_pin(d);
    end_stamp(s, out);
    float sum = 0;
    for (int i = 0; i < N / 2; i++)
        sum += d[i];
    if (sum == 1.2345f) /* never, but the compiler cannot know */
        *sink = sum;
}

/* ---- special functions ---- */

typedef enum special { EXP2, FLOAT_TO_INT } special;

/* The result's bits as they are: no second conversion in the chain. */
ORDO_DEVICE float float_to_int(float x)
{
    int32_t y;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __int_as_float(y);
}

enum { CHAINS = 8, SPECIAL_THREADS = 1024 };

template <special FUNCTION>
__global__ void __launch_bounds__(SPECIAL_THREADS, 1)
    special_kernel(int rounds, stamp *out, float *sink)
{
    float x[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        x[c] = 0.001f * (float)(threadIdx.x + c);
    const stamp s = begin_stamp();
    for (int round = 0; round < rounds; round++)
#pragma unroll
        for (int c = 0; c < CHAINS; c++)
            x[c] = FUNCTION == EXP2 ? exp2_approx(x[c]) : float_to_int(x[c]);
    end_stamp(s, out);
    float sum = 0;
    for (int c = 0; c < CHAINS; c++)
        sum += x[c];
    if (sum == 1.2345f)
        *sink = sum;
}

/* ---- reading ---- */

enum { READ_THREADS = 1024, READ_UNROLL = 8 };

/* Loads of 16 bytes past L1: each thread READ_UNROLL * rounds, all threads round `count` of them.
 */
__global__ void __launch_bounds__(READ_THREADS, 1)
    read_kernel(const uint4 *from, uint32_t count, int rounds, stamp *out, uint32_t *sink)
{
    const uint32_t step = gridDim.x * READ_THREADS;
    uint32_t x = blockIdx.x * READ_THREADS + threadIdx.x, seen = 0;
    const stamp s = begin_stamp();
    for (int round = 0; round < rounds; round++) {
        uint4 v[READ_UNROLL];
#pragma unroll
        for (int u = 0; u < READ_UNROLL; u++) {
            v[u] = __ldcg(from + x);
            x += step;
            x -= x >= count ? count : 0;
        }
#pragma unroll
        for (int u = 0; u < READ_UNROLL; u++)
            seen ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
    }
    end_stamp(s, out);
    if (seen == 0x12345678u)
        *sink = seen;
}

enum { BULK_STAGES = 6, BULK_BARS = ORDO_SMEM_BASE + BULK_STAGES * TILE_BYTES };

/* Bulk copies into shared memory, BULK_STAGES in flight. */
__global__ void bulk_read_kernel(const char *from, int tiles, int rounds, stamp *out)
{
    if (threadIdx.x == 0) {
        for (int b = 0; b < BULK_STAGES; b++)
            mbar_init(BULK_BARS + 8 * b, 1);
        mbar_init_fence();
    }
    const stamp s = begin_stamp();
    if (threadIdx.x == 0)
        for (int x = 0; x < rounds + BULK_STAGES; x++) {
            const uint32_t b = x % BULK_STAGES, bar = BULK_BARS + 8 * b;
            if (x >= BULK_STAGES)
                mbar_wait(bar, (x / BULK_STAGES & 1) ^ 1);
            if (x >= rounds)
                continue;
            const int tile = (int)((blockIdx.x + (size_t)x * gridDim.x) % tiles);
            mbar_expect(bar, TILE_BYTES);
            bulk_load(ORDO_SMEM_BASE + b * TILE_BYTES, from + (size_t)tile * TILE_BYTES, TILE_BYTES,
                      bar);
        }
    end_stamp(s, out);
}

#endif
