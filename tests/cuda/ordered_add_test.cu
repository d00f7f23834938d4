/* Sums in the plan's order, made by the store warps of the backward kernel and their protocol:
 *
 *   wait for the turn (acquire), proxy fence, buffer full, bulk add (turn 0: bulk store),
 *   wait until it is complete, proxy fence, count the turn (release), buffer empty
 *
 * Key blocks add 32 KiB tiles whose floats spread over 19 powers of two, so that another order
 * gives other bits; every run is compared with the sequential sum, bit by bit. Quiet, with the
 * remaining blocks hammering L2 or memory, and with random delays around every turn.
 *
 * Two variants are wrong and must show it: no turns at all, or the test could not see a swap; and
 * turns counted without release, which goes wrong only under load, so that "not observed" is
 * reported and does not fail. Without a device: compiled, and skipped. */
#define ORDO_WATCHDOG
#include "cuda/sm90/ptx.h"
#include "on_device.h"
#include "plan/issue.h"

enum {
    TILES = 32, /* query tiles and key blocks of a head */
    RUNS = 10000,
    MATH_WARPS = 4,
    THREADS = (MATH_WARPS + 2) * 32,
    TILE_BYTES = 32768,
    TILE_WORDS = TILE_BYTES / 4,
    BUFFERS = ORDO_SMEM_BASE,
    FULL = BUFFERS + 2 * TILE_BYTES,
    EMPTY = FULL + 16,
    SHARED_BYTES = 120 * 1024, /* more than half of an SM: one block each */
    HEADS_MAX = 8
};

typedef enum protocol {
    PLAN_ORDER,
    READ_WAIT, /* waits only until the buffer was read, then releases */
    RELAXED,   /* counts its turn without release */
    NO_TURNS   /* adds at once, to zeros */
} protocol;

typedef struct setup {
    ordo_walk walk;
    int32_t heads; /* the blocks past theirs hammer, if they are given memory for it */
    protocol how;
    uint32_t delays; /* seed; 0: none */
    float *sums;
    int32_t *turns, *done;
    char *hammered;
    int32_t hammered_tiles;
} setup;

__host__ __device__ static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* What a block adds: its own exponents, with sign and mantissa changed at every step. */
__device__ static uint32_t base_bits(int block, int word)
{
    const uint32_t h = mix((uint32_t)word * 977u + (uint32_t)block * 131071u);
    return (h & 0x807fffffu) | (118 + (h >> 23) % 19) << 23;
}

__device__ static uint32_t step_bits(int step)
{
    return mix((uint32_t)step + 1) & 0x807fffffu;
}

__device__ static void delay(const setup &s, uint32_t salt)
{
    const uint32_t h = mix(s.delays ^ mix(salt * 4096u + blockIdx.x));
    if (s.delays && h % 8 == 0)
        __nanosleep(h >> 21);
}

__device__ static void add_relaxed(int32_t *to, int32_t value)
{
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

/* ---- roles ---- */

__device__ static void math_warps(const setup &s)
{
    const int t = threadIdx.x, steps = ordo_walk_steps(&s.walk, blockIdx.x % TILES);
    uint32_t base[TILE_WORDS / 128];
#pragma unroll
    for (int x = 0; x < TILE_WORDS / 128; x++)
        base[x] = base_bits(blockIdx.x, (x / 4 * 128 + t) * 4 + x % 4);
    for (int step = 0; step < steps; step++) {
        const uint32_t b = step % 2, change = step_bits(step);
        mbar_wait(EMPTY + 8 * b, (step / 2 & 1) ^ 1);
#pragma unroll
        for (int x = 0; x < TILE_WORDS / 128; x += 4)
            store_shared4(BUFFERS + b * TILE_BYTES + (x / 4 * 128 + t) * 16,
                          __uint_as_float(base[x] ^ change), __uint_as_float(base[x + 1] ^ change),
                          __uint_as_float(base[x + 2] ^ change),
                          __uint_as_float(base[x + 3] ^ change));
        fence_shared_to_async();
        mbar_arrive_warp(FULL + 8 * b, t % 32);
    }
}

__device__ static void take_turn(const setup &s, int32_t *counter, int32_t turn)
{
    if (s.how == NO_TURNS)
        return;
    ordo_watch watch;
    for (uint32_t spins = 0; load_acquire(counter) != turn; spins++)
        watch.look(ORDO_WAIT_COUNTER, (uint64_t)counter, (uint32_t)turn);
    fence_global_to_async();
}

__device__ static void pass_turn(const setup &s, int32_t *counter)
{
    if (s.how == READ_WAIT)
        bulk_wait_read();
    else
        bulk_wait();
    if (s.how == RELAXED)
        add_relaxed(counter, 1);
    if (s.how == PLAN_ORDER || s.how == READ_WAIT) {
        fence_global_to_async();
        add_release(counter, 1);
    }
}

/* Buffer b, every second step. */
__device__ static void store_warp(const setup &s, uint32_t b)
{
    const int head = blockIdx.x / TILES, key = blockIdx.x % TILES;
    const int steps = ordo_walk_steps(&s.walk, key);
    for (int step = b; step < steps; step += 2) {
        const int query = ordo_walk_visit(&s.walk, key, step);
        const int32_t turn = ordo_walk_turn(&s.walk, query, key);
        int32_t *counter = s.turns + head * TILES + query;
        float *sum = s.sums + (size_t)(head * TILES + query) * TILE_WORDS;
        delay(s, step * 3);
        take_turn(s, counter, turn);
        delay(s, step * 3 + 1);
        mbar_wait(FULL + 8 * b, step / 2 & 1);
        if (turn == 0 && s.how != NO_TURNS)
            bulk_store(sum, BUFFERS + b * TILE_BYTES, TILE_BYTES);
        else
            bulk_add_f32(sum, BUFFERS + b * TILE_BYTES, TILE_BYTES);
        bulk_commit();
        pass_turn(s, counter);
        delay(s, step * 3 + 2);
        mbar_arrive(EMPTY + 8 * b);
    }
    bulk_wait();
    add_release(s.done, 1);
}

/* Adds all over `hammered` until every store warp is done. */
__device__ static void hammer(const setup &s, uint32_t b)
{
    uint32_t x = mix(blockIdx.x * 2 + b);
    ordo_watch watch;
    for (uint32_t spins = 0; load_acquire(s.done) < s.heads * TILES * 2; spins++) {
        x = mix(x + 1);
        bulk_add_f32(s.hammered + (size_t)(x % s.hammered_tiles) * TILE_BYTES,
                     BUFFERS + b * TILE_BYTES, TILE_BYTES);
        bulk_commit();
        bulk_wait_read();
        watch.look(ORDO_WAIT_COUNTER, (uint64_t)s.done, (uint32_t)(s.heads * TILES * 2));
    }
    bulk_wait();
}

__global__ void __launch_bounds__(THREADS, 1) add_kernel(const __grid_constant__ setup s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool hammers = blockIdx.x >= s.heads * TILES;
    if (threadIdx.x == 0) {
        for (int b = 0; b < 2; b++) {
            mbar_init(FULL + 8 * b, MATH_WARPS);
            mbar_init(EMPTY + 8 * b, 1);
        }
        mbar_init_fence();
    }
    if (hammers)
        for (int x = threadIdx.x; x < 2 * TILE_WORDS; x += THREADS)
            store_shared(BUFFERS + 4 * x, 0x3f800000);
    fence_shared_to_async();
    __syncthreads();
    if (hammers) {
        if (warp >= MATH_WARPS && lane == 0 && s.hammered)
            hammer(s, warp - MATH_WARPS);
    } else if (warp < MATH_WARPS) {
        math_warps(s);
    } else if (lane == 0) {
        store_warp(s, warp - MATH_WARPS);
    }
}

/* ---- reference and comparison ---- */

/* Which key block adds at a turn of a query tile, and at which of its steps. */
typedef struct contribution {
    int32_t key, step;
} contribution;

__global__ void reference_kernel(const contribution *order, int32_t heads, float *sums)
{
    const int words = heads * TILES * TILE_WORDS;
    for (int x = blockIdx.x * blockDim.x + threadIdx.x; x < words; x += gridDim.x * blockDim.x) {
        const int tile = x / TILE_WORDS, head = tile / TILES;
        float sum = 0;
        for (int turn = 0; turn < TILES; turn++) {
            const contribution c = order[tile % TILES * TILES + turn];
            const uint32_t bits = base_bits(head * TILES + c.key, x % TILE_WORDS);
            sum = __fadd_rn(sum, __uint_as_float(bits ^ step_bits(c.step)));
        }
        sums[x] = sum;
    }
}

/* Counts words that differ and turns not taken, and makes all ready for the next run. */
__global__ void compare_kernel(const setup s, const uint32_t *expected, uint32_t poison,
                               unsigned long long *wrong_words, int32_t *wrong_runs, int run)
{
    const int words = s.heads * TILES * TILE_WORDS, first = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t *got = (uint32_t *)s.sums;
    int wrong = 0;
    for (int x = first; x < words; x += gridDim.x * blockDim.x) {
        wrong += got[x] != expected[x];
        got[x] = poison;
    }
    if (first < s.heads * TILES) {
        wrong += s.turns[first] != (s.how == NO_TURNS ? 0 : TILES);
        s.turns[first] = 0;
    }
    if (first == 0)
        *s.done = 0;
    if (wrong) {
        atomicAdd(wrong_words, (unsigned long long)wrong);
        wrong_runs[run] = 1;
    }
}

/* ---- cases ---- */

static int sm_count(void)
{
    int count;
    MUST(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
    return count;
}

static ordo_walk walk_of(ordo_order order)
{
    ordo_run run = {};
    run.band.bq = 64;
    run.band.bk = 128;
    run.band.q_len = TILES * run.band.bq;
    run.band.kv_len = TILES * run.band.bk;
    run.band.low = -ORDO_BAND_OPEN;
    run.band.high = ORDO_BAND_OPEN;
    run.sequences = run.kv_heads = run.group_heads = 1;
    run.order = order;
    run.group = TILES;
    return ordo_run_walk(&run, 0);
}

static void list_turns(const ordo_walk *walk, contribution *order)
{
    for (int key = 0; key < TILES; key++)
        for (int step = 0; step < TILES; step++) {
            const int query = ordo_walk_visit(walk, key, step);
            const contribution c = { key, step };
            order[query * TILES + ordo_walk_turn(walk, query, key)] = c;
        }
}

typedef struct memory {
    float *sums, *expected;
    int32_t *turns, *done, *wrong_runs;
    unsigned long long *wrong_words;
    char *hammered;
} memory;

typedef struct outcome {
    unsigned long long words;
    int runs;
    double seconds;
} outcome;

static void make_reference(const memory *m, const setup *s)
{
    contribution order[TILES * TILES], *there;
    list_turns(&s->walk, order);
    there = to_device(order, TILES * TILES);
    reference_kernel<<<512, 256>>>(there, s->heads, m->expected);
    MUST(cudaDeviceSynchronize());
    MUST(cudaFree(there));
}

static outcome repeat(const memory *m, setup s, int runs, bool delays)
{
    static int32_t wrong_runs[RUNS];
    const uint32_t poison = s.how == NO_TURNS ? 0 : 0xffffffffu;
    const uint32_t blocks = s.hammered ? sm_count() : s.heads * TILES;
    cudaEvent_t start, stop;
    MUST(cudaEventCreate(&start));
    MUST(cudaEventCreate(&stop));
    MUST(cudaMemset(m->sums, (int)(poison & 0xff), sizeof(float) * HEADS_MAX * TILES * TILE_WORDS));
    MUST(cudaMemset(m->turns, 0, sizeof(int32_t) * HEADS_MAX * TILES));
    MUST(cudaMemset(m->done, 0, sizeof(int32_t)));
    MUST(cudaMemset(m->wrong_runs, 0, sizeof wrong_runs));
    MUST(cudaMemset(m->wrong_words, 0, sizeof(unsigned long long)));
    MUST(cudaEventRecord(start));
    for (int run = 0; run < runs; run++) {
        s.delays = delays ? mix(run + 1) | 1 : 0;
        void *arguments[] = { &s };
        MUST(cudaLaunchCooperativeKernel((const void *)add_kernel, dim3(blocks), dim3(THREADS),
                                         arguments, SHARED_BYTES, NULL));
        compare_kernel<<<512, 256>>>(s, (const uint32_t *)m->expected, poison, m->wrong_words,
                                     m->wrong_runs, run);
    }
    MUST(cudaEventRecord(stop));
    MUST(cudaEventSynchronize(stop));
    float ms;
    MUST(cudaEventElapsedTime(&ms, start, stop));
    outcome o = { 0, 0, ms * 1e-3 };
    from_device(&o.words, m->wrong_words, 1);
    from_device(wrong_runs, m->wrong_runs, RUNS);
    for (int run = 0; run < runs; run++)
        o.runs += wrong_runs[run];
    MUST(cudaEventDestroy(start));
    MUST(cudaEventDestroy(stop));
    return o;
}

/* mb: hammered megabytes, 0 for quiet, which has blocks for more heads. */
static outcome measure(const memory *m, protocol how, ordo_order order, int mb, int runs,
                       bool delays)
{
    setup s = {};
    s.walk = walk_of(order);
    s.heads = sm_count() / (mb ? 2 * TILES : TILES);
    s.heads = s.heads < HEADS_MAX ? s.heads : HEADS_MAX;
    s.how = how;
    s.sums = m->sums;
    s.turns = m->turns;
    s.done = m->done;
    s.hammered = mb ? m->hammered : NULL;
    s.hammered_tiles = mb * 1000000 / TILE_BYTES;
    make_reference(m, &s);
    const outcome o = repeat(m, s, runs, delays);
    printf("     %d runs of %d tile adds in %.1f s: %d wrong, %llu words\n", runs,
           s.heads * TILES * TILES, o.seconds, o.runs, o.words);
    return o;
}

static void must_hold(const memory *m, const char *name, ordo_order order, int mb, bool delays)
{
    report(name, measure(m, PLAN_ORDER, order, mb, RUNS, delays).runs, RUNS);
}

static void must_fail(const memory *m)
{
    const outcome o = measure(m, NO_TURNS, ORDO_ORDER_ASCENDING, 0, 100, false);
    printf("%s without turns the sums differ\n", o.runs ? "ok  " : "FAIL");
    tests_passed += o.runs > 0;
    tests_failed += o.runs == 0;
}

static void should_fail(const memory *m, protocol how, const char *name)
{
    const outcome o = measure(m, how, ORDO_ORDER_SHIFT, 76, RUNS / 2, false);
    printf("info %s: %s\n", name, o.runs ? "wrong sums observed" : "not observed");
}

int main()
{
    if (device_is_missing())
        return 77;
    if (sm_count() < 2 * TILES) {
        printf("skip: %d multiprocessors, expected %d or more\n0 passed, 0 failed, 1 skipped\n",
               sm_count(), 2 * TILES);
        return 77;
    }
    const size_t words = (size_t)HEADS_MAX * TILES * TILE_WORDS;
    memory m;
    m.sums = device_array<float>(words, 0);
    m.expected = device_array<float>(words, 0);
    m.turns = device_array<int32_t>(HEADS_MAX * TILES, 0);
    m.done = device_array<int32_t>(1, 0);
    m.wrong_runs = device_array<int32_t>(RUNS, 0);
    m.wrong_words = device_array<unsigned long long>(1, 0);
    m.hammered = device_array<char>(80000000, 0);
    MUST(cudaFuncSetAttribute(add_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              SHARED_BYTES));
    must_fail(&m);
    must_hold(&m, "shift, quiet", ORDO_ORDER_SHIFT, 0, false);
    must_hold(&m, "ascending, all begin at one tile", ORDO_ORDER_ASCENDING, 0, false);
    must_hold(&m, "shift, 16 MB hammered", ORDO_ORDER_SHIFT, 16, false);
    must_hold(&m, "shift, 76 MB hammered", ORDO_ORDER_SHIFT, 76, false);
    must_hold(&m, "shift, random delays", ORDO_ORDER_SHIFT, 0, true);
    must_hold(&m, "shift, random delays, 76 MB hammered", ORDO_ORDER_SHIFT, 76, true);
    should_fail(&m, RELAXED, "turns counted without release");
    should_fail(&m, READ_WAIT, "waiting only for the read, then release");
    return report_all();
}
