/* sm90/phases/pipe.h: the pipeline that the kernels of the passes by phases share: one thread that
 * loads, two consumer warpgroups that multiply.
 *
 * A stage holds 64 of the sum of 128 x N products: A of 128 x 64 elements and B of N x 64, as boxes
 * of 64 x 64, two of A and N / 64 of B. The boxes of an operand lie one after the other, so they
 * are one tile of 128 or N rows if the sum runs over their columns, and a row of panels of 64
 * columns if it runs over their rows. A consumer warpgroup has 64 of the 128 rows of the result,
 * all columns. Each unit has a record, which arrives with the unit's first stage. */
#ifndef CUDA_SM90_PHASES_PIPE_H
#define CUDA_SM90_PHASES_PIPE_H

#include "cuda/sm90/descriptor.h"
#include "cuda/sm90/phases/args.h"
#include "cuda/sm90/ptx.h"
#include "cuda/sm90/wgmma.h"
#include "cuda/sm90/zero_rows.h"
#include "cuda/tile/fragment.h"
#include "cuda/tile/swizzle.h"

enum {
    PHASE_BOX_BYTES = PHASE_STEP * ORDO_LINE_BYTES,
    PHASE_CONSUMER_REGISTERS = 240,
    PHASE_PRODUCER_REGISTERS = 24,
    PHASE_WORDS = 8 /* of a record */
};
static_assert(256 * PHASE_CONSUMER_REGISTERS + 128 * PHASE_PRODUCER_REGISTERS <=
                  PHASE_THREADS * 168,
              "setmaxnreg would wait for ever");
static_assert((int)PHASE_STEP == (int)ORDO_PANEL_COLUMNS, "a box is a panel of 64 rows");

/* Named barriers, one per consumer warpgroup: all its threads have arrived. */
enum { PHASE_OWN = 1 };

template <int N> struct phase_shape {
    enum {
        STAGES = N > 192 ? 4 : 5,
        A_BYTES = 2 * PHASE_BOX_BYTES,
        STAGE_BYTES = A_BYTES + N / PHASE_STEP * PHASE_BOX_BYTES,
        RECORDS = 8, /* a unit has a stage at least, so no more than STAGES are in use */
        /* shared memory */
        RING = ORDO_SMEM_BASE,
        FULL = RING + STAGES * STAGE_BYTES, /* barriers, 8 bytes each */
        EMPTY = FULL + 8 * STAGES,
        VALID = EMPTY + 8 * STAGES, /* rows of B that belong to its sequence, one word per stage */
        RECORD = VALID + 32,
        END = RECORD + RECORDS * 4 * PHASE_WORDS,
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");
};

/* A place in the ring. */
struct phase_ring {
    uint32_t stage, parity;
};

template <int N> ORDO_DEVICE void phase_advance(phase_ring &ring)
{
    if (++ring.stage == phase_shape<N>::STAGES) {
        ring.stage = 0;
        ring.parity ^= 1;
    }
}

template <int N> ORDO_DEVICE void phase_begin(void)
{
    using Z = phase_shape<N>;
    extern __shared__ __align__(1024) char smem[];
    if (threadIdx.x == 0) {
        if ((uint32_t)__cvta_generic_to_shared(smem) != ORDO_SMEM_BASE)
            ordo_fault();
        for (int s = 0; s < Z::STAGES; s++) {
            mbar_init(Z::FULL + 8 * s, 1);
            mbar_init(Z::EMPTY + 8 * s, 8);
        }
        mbar_init_fence();
    }
    __syncthreads();
}

/* ---- loads: one thread ---- */

/* The next unit of a kernel. Drawn when the loads of the one before have been issued, not earlier:
 * a unit drawn ahead waits for a long one while other blocks are idle. */
ORDO_DEVICE int64_t phase_draw(const ordo_phase_common &all)
{
    return atomicAdd(all.ticket, 1);
}

template <int N> struct phase_loader {
    using Z = phase_shape<N>;
    phase_ring ring;
    uint32_t records;
    uint64_t reused, once; /* L2 policies: of inputs, which many units read; of P and dS */

    static __device__ __forceinline__ phase_loader make(void)
    {
        return { { 0, 0 }, 0, policy_evict_last(), policy_evict_first() };
    }

    /* Wait until the next stage is empty. */
    __device__ __forceinline__ void take(void) const
    {
        mbar_wait(Z::EMPTY + 8 * ring.stage, ring.parity ^ 1);
    }

    /* Word `place` of the record of the unit whose first stage has been taken. */
    __device__ __forceinline__ void tell(int place, int32_t value) const
    {
        store_shared(Z::RECORD + (records % Z::RECORDS * PHASE_WORDS + place) * 4, value);
    }

    __device__ __forceinline__ uint32_t full(void) const
    {
        return Z::FULL + 8 * ring.stage;
    }

    __device__ __forceinline__ uint32_t a(void) const
    {
        return Z::RING + ring.stage * Z::STAGE_BYTES;
    }

    /* A stage without data: of a unit that only has a record. */
    __device__ __forceinline__ void pass(void)
    {
        mbar_arrive(full());
        phase_advance<N>(ring);
    }
};

/* ---- consumers ---- */

template <int N> struct phase_consumer {
    using Z = phase_shape<N>;
    const int mine, x; /* of the two warpgroups; thread of this one */
    phase_ring ring;
    uint32_t records;

    __device__ __forceinline__ void release(uint32_t stage) const
    {
        mbar_arrive_warp(Z::EMPTY + 8 * stage, (uint32_t)x % 32);
    }

    /* Wait for a unit's first stage: then its record can be read. */
    __device__ __forceinline__ void wait(void) const
    {
        mbar_wait(Z::FULL + 8 * ring.stage, ring.parity);
    }

    __device__ __forceinline__ int32_t told(int place) const
    {
        return load_shared(Z::RECORD + (records % Z::RECORDS * PHASE_WORDS + place) * 4);
    }

    /* A stage without data. */
    __device__ __forceinline__ void pass(void)
    {
        release(ring.stage);
        phase_advance<N>(ring);
    }

    /* This thread's first row of the tile. */
    __device__ __forceinline__ int row(void) const
    {
        return mine * 64 + ordo_accumulator_row(x, 0);
    }

    /* d = A B^T, or with `add` d += A B^T, over the next `stages` stages. A_ROWS, B_ROWS: the sum
     * runs over the rows of the operand, else over its columns. RAGGED: rows of B that are not of
     * its sequence become zero first. A stage is released when the product of the next has been
     * issued. */
    template <bool F16, bool A_ROWS, bool B_ROWS>
    __device__ __forceinline__ void multiply(float (&d)[N / 2], int stages, bool add, bool ragged)
    {
        uint32_t last = 0;
        wgmma_pin(d);
#pragma unroll 1
        for (int n = 0; n < stages; n++) {
            const uint32_t a = Z::RING + ring.stage * Z::STAGE_BYTES + mine * PHASE_BOX_BYTES;
            const uint32_t b = Z::RING + ring.stage * Z::STAGE_BYTES + Z::A_BYTES;
            const uint32_t a_low = ordo_descriptor_low(a, A_ROWS ? PHASE_BOX_BYTES : 16);
            const uint32_t b_low = ordo_descriptor_low(b, B_ROWS ? PHASE_BOX_BYTES : 16);
            mbar_wait(Z::FULL + 8 * ring.stage, ring.parity);
            if (B_ROWS && ragged) {
                const int valid = load_shared(Z::VALID + 4 * ring.stage);
                if (valid < PHASE_STEP)
                    zero_rows(b, PHASE_STEP, N / PHASE_STEP, max(valid, 0), x, PHASE_OWN + mine);
            }
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < PHASE_STEP / 16; k++)
                wgmma_ss<F16, A_ROWS, B_ROWS>(
                    d, A_ROWS ? wgmma_by_rows(a_low, k) : wgmma_by_columns(a_low, PHASE_ROWS, k),
                    B_ROWS ? wgmma_by_rows(b_low, k) : wgmma_by_columns(b_low, N, k),
                    add || n > 0 || k > 0);
            wgmma_commit();
            wgmma_wait<1>();
            if (n > 0)
                release(last);
            last = ring.stage;
            phase_advance<N>(ring);
        }
        wgmma_wait<0>();
        wgmma_pin(d);
        if (stages > 0)
            release(last);
    }
};

/* ---- ends ---- */

/* ALiBi's slope of a query head; 0 without ALiBi. */
ORDO_DEVICE float phase_slope(const float *slopes, int64_t across, int sequence, int head)
{
    return slopes ? slopes[sequence * across + head] : 0.0f;
}

/* Index of a row of a query tile in the row statistics. */
ORDO_DEVICE int64_t phase_stat(const ordo_phase_common &all, int head, int tile, int row)
{
    return ((int64_t)head * all.batch.tiles + tile) * PHASE_ROWS + ordo_stat_place(row);
}

/* Columns of rows r of a tile of scores that a thread's two rows see: from[r] .. to[r], counted
 * from the thread's first column. */
struct phase_window {
    int from[2], to[2];
};

ORDO_DEVICE phase_window phase_window_of(const ordo_cuda_sequence &s, int row, int column)
{
    phase_window w;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int at = row + 8 * r;
        w.from[r] = at + s.low - column;
        w.to[r] = at < s.q_len ? min(at + s.high, s.kv_len - 1) - column : -1;
        if (at >= s.q_len)
            w.from[r] = 0;
    }
    return w;
}

/* The comparisons are part of one statement per element, so that the results of many are not kept
 * in registers. */
template <int N> ORDO_DEVICE void phase_hide(float (&d)[N], const phase_window &w, float value)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("{.reg .pred p; setp.lt.s32 p, %1, %2; setp.gt.or.s32 p, %1, %3, p; "
                     "@p mov.b32 %0, %4;}"
                     : "+f"(d[i])
                     : "r"(ordo_accumulator_column(0, i)), "r"(w.from[i / 2 % 2]),
                       "r"(w.to[i / 2 % 2]), "f"(value));
}

#endif
