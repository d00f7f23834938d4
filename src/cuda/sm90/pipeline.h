/* sm90/pipeline.h: what a producer and its consumers share: barriers, stages that they fill and
 * empty in turn, and records of what is in them. */
#ifndef CUDA_SM90_PIPELINE_H
#define CUDA_SM90_PIPELINE_H

#include "cuda/sm90/ptx.h"
#include "cuda/tile/swizzle.h"

/* A kernel begins: one thread checks the address of shared memory and initialises barriers. */
template <class BARRIERS> ORDO_DEVICE void block_begin(BARRIERS barriers)
{
    extern __shared__ __align__(1024) char smem[];
    if (threadIdx.x == 0) {
        if ((uint32_t)__cvta_generic_to_shared(smem) != ORDO_SMEM_BASE)
            ordo_fault();
        barriers();
        mbar_init_fence();
    }
    __syncthreads();
}

/* Loads a tile of COLUMNS columns: a box of `rows` rows for each panel. */
template <int COLUMNS>
ORDO_DEVICE void tma_load_tile(uint32_t to, const CUtensorMap *map, uint32_t bar, int rows, int row,
                               int head, int sequence, uint64_t policy)
{
#pragma unroll
    for (int p = 0; p < COLUMNS / ORDO_PANEL_COLUMNS; p++)
        tma_load(to + p * rows * ORDO_LINE_BYTES, map, bar, p * ORDO_PANEL_COLUMNS, row, head,
                 sequence, policy);
}

/* Zeros in those rows of a loaded tile that lie beyond its sequence: padding, or rows of the next
 * one. They are only ever multiplied by zero, but a NaN there would spread. Every consumer
 * warpgroup does it before its own products read the tile: all write the same zeros, so none waits
 * for another.
 *
 * Rows `valid` .. rows - 1 of a tile of `panels` panels, by the 128 threads of a warpgroup that
 * meet at `barrier`. A line of a panel stays itself under the swizzle. */
ORDO_DEVICE void zero_rows(uint32_t tile, int rows, int panels, int valid, int thread, int barrier)
{
    enum { CHUNKS = ORDO_LINE_BYTES / 16 };
    const int bad = rows - valid, count = bad * panels * CHUNKS;
#pragma unroll 1 /* rarely run: keep the code small */
    for (int x = thread % 128; x < count; x += 128) {
        const int line = x / CHUNKS;
        store_shared4(tile + (uint32_t)(line / bad * rows + valid + line % bad) * ORDO_LINE_BYTES +
                          (uint32_t)(x % CHUNKS) * 16,
                      0.0f, 0.0f, 0.0f, 0.0f);
    }
    fence_shared_to_async();
    named_sync((uint32_t)barrier, 128);
}

/* The stage at hand, and the parity to wait for at its barrier: a consumer begins with parity 0 at
 * full barriers, a producer with parity 1 at empty ones. */
template <int STAGES> struct pipeline_state {
    uint32_t stage = 0, parity = 0;

    __device__ __forceinline__ void advance(void)
    {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* COUNT records in shared memory from address AT on; the n-th one that is written takes the place
 * of the one COUNT before it. Fields are found by offsetof. */
template <class RECORD, int COUNT, int AT> struct shared_ring {
    static_assert(AT % alignof(RECORD) == 0, "records");
    enum { END = AT + COUNT * (int)sizeof(RECORD) };

    static __device__ __forceinline__ uint32_t at(uint32_t n)
    {
        return AT + n % COUNT * (uint32_t)sizeof(RECORD);
    }

    /* The same, where shared memory is at hand as a pointer. */
    static __device__ __forceinline__ RECORD *of(char *smem, uint32_t n)
    {
        return (RECORD *)(smem + (AT - ORDO_SMEM_BASE)) + n % COUNT;
    }
};

#endif
