/* The ring between the warp that loads and the warps that compute: full and empty barriers, one
 * arrival a warp, 100,000 rounds with random delays on both sides; every word is checked.
 * Without a device: compiled, and skipped. */
#define ORDO_WATCHDOG
#include "cuda/sm90/ptx.h"
#include "on_device.h"

enum {
    ROUNDS = 100000,
    BLOCKS = 264,
    STAGES = 3,
    CONSUMERS = 8, /* warps */
    STAGE_BYTES = 1024,
    STAGE_WORDS = STAGE_BYTES / 4,
    SOURCES = 4096,
    STAGE = ORDO_SMEM_BASE,
    FULL = STAGE + STAGES * STAGE_BYTES,
    EMPTY = FULL + 8 * STAGES,
    SHARED_BYTES = EMPTY + 8 * STAGES - ORDO_SMEM_BASE
};

__host__ __device__ static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

__device__ static void delay(uint32_t h)
{
    if (h % 16 == 0)
        __nanosleep(h >> 22);
}

__device__ static uint32_t source_of(uint32_t round)
{
    return mix(round * 977u + blockIdx.x) % SOURCES;
}

/* A round is two copies on one barrier, as Q and its statistics are. */
__device__ static void produce(const uint32_t *table)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t s = round % STAGES, parity = round / STAGES & 1;
        const uint32_t to = STAGE + s * STAGE_BYTES, half = STAGE_BYTES / 2;
        const uint32_t *from = table + source_of(round) * STAGE_WORDS;
        delay(mix(round * 31u + blockIdx.x));
        mbar_wait(EMPTY + 8 * s, parity ^ 1);
        mbar_expect(FULL + 8 * s, STAGE_BYTES);
        bulk_load(to, from, half, FULL + 8 * s);
        bulk_load(to + half, from + half / 4, half, FULL + 8 * s);
    }
}

__device__ static int consume(uint32_t warp, uint32_t lane)
{
    int wrong = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t s = round % STAGES, parity = round / STAGES & 1;
        const uint32_t word = lane * CONSUMERS + warp;
        mbar_wait(FULL + 8 * s, parity);
        delay(mix(round * 131u + warp * 7919u + blockIdx.x));
        const uint32_t got = load_shared(STAGE + s * STAGE_BYTES + word * 4);
        wrong += got != mix(source_of(round) * STAGE_WORDS + word);
        mbar_arrive_warp(EMPTY + 8 * s, lane);
    }
    return wrong;
}

__global__ void ring_kernel(const uint32_t *table, int32_t *wrong_words)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbar_init(FULL + 8 * s, 1);
            mbar_init(EMPTY + 8 * s, CONSUMERS);
        }
        mbar_init_fence();
    }
    __syncthreads();
    if (warp == CONSUMERS) {
        if (elect_one())
            produce(table);
    } else {
        const int wrong = consume(warp, lane);
        if (wrong)
            atomicAdd(wrong_words, wrong);
    }
}

int main()
{
    if (device_is_missing())
        return 77;
    static uint32_t table[SOURCES * STAGE_WORDS];
    for (uint32_t x = 0; x < SOURCES * STAGE_WORDS; x++)
        table[x] = mix(x);
    uint32_t *there = to_device(table, SOURCES * STAGE_WORDS);
    int32_t *wrong_words = device_array<int32_t>(1, 0), wrong;
    ring_kernel<<<BLOCKS, (CONSUMERS + 1) * 32, SHARED_BYTES>>>(there, wrong_words);
    from_device(&wrong, wrong_words, 1);
    report("ring, 264 blocks x 100,000 rounds, words", wrong, (long)BLOCKS * ROUNDS * STAGE_WORDS);
    return report_all();
}
