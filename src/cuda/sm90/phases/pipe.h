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
#include "cuda/sm90/pipeline.h"
#include "cuda/sm90/wgmma.h"
#include "cuda/tile/mask.h"
#include "cuda/tile/swizzle.h"

enum {
    PHASE_BOX_BYTES = PHASE_STEP * ORDO_LINE_BYTES,
    PHASE_CONSUMER_REGISTERS = 240,
    PHASE_PRODUCER_REGISTERS = 24,
    PHASE_RECORD_BYTES = 32 /* a unit's record, at most */
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
        END = RECORD + RECORDS * PHASE_RECORD_BYTES,
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");

    static __device__ __forceinline__ uint32_t record(uint32_t n)
    {
        return RECORD + n % RECORDS * PHASE_RECORD_BYTES;
    }
};

/* A record, word by word, between one thread and all threads of the consumers. */
template <class RECORD> ORDO_DEVICE void store_record(uint32_t at, const RECORD &record)
{
#pragma unroll
    for (int i = 0; i < (int)sizeof record / 4; i++)
        store_shared(at + 4 * i, ((const int32_t *)&record)[i]);
}

template <class RECORD> ORDO_DEVICE RECORD load_record(uint32_t at)
{
    RECORD record;
#pragma unroll
    for (int i = 0; i < (int)sizeof record / 4; i++)
        ((int32_t *)&record)[i] = load_shared(at + 4 * i);
    return record;
}

/* ---- loads: one thread ---- */

/* The next unit of a kernel. Drawn when the loads of the one before have been issued, not earlier:
 * a unit drawn ahead waits for a long one while other blocks are idle. */
ORDO_DEVICE int64_t phase_draw(const ordo_phase_common &all)
{
    return atomicAdd(all.next, 1);
}

template <int N> struct phase_loader {
    using Z = phase_shape<N>;
    const uint64_t reused = policy_evict_last(); /* L2: of inputs, which many units read; */
    uint64_t once = policy_evict_first();        /* for loads of P and dS */
    pipeline_state<Z::STAGES> ring = {};
    uint32_t records = 0;

    /* Wait until the next stage is empty. */
    __device__ __forceinline__ void take(void) const
    {
        mbar_wait(Z::EMPTY + 8 * ring.stage, ring.parity ^ 1);
    }

    /* The record of a unit that begins with the next stage. */
    template <class RECORD> __device__ __forceinline__ void tell(const RECORD &record)
    {
        static_assert(sizeof record <= PHASE_RECORD_BYTES, "room for records");
        take();
        store_record(Z::record(records++), record);
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
        ring.advance();
    }
};

/* A query tile of a panel: tile i of a sequence, of a query head. */
struct phase_query_tile {
    ordo_cuda_sequence s;
    int32_t sequence, i, tile, head, part;
};

/* unit(phase_query_tile) for what this block draws of the query tiles of a panel, of all heads and
 * in `parts` parts each. LAST_FIRST: from the last tile on, which is the longest under a causal
 * mask. */
template <bool LAST_FIRST, class UNIT>
ORDO_DEVICE void phase_query_tiles(const ordo_phase_common &all, int32_t parts, UNIT unit)
{
    const int32_t tiles = ordo_phase_tiles(&all.batch, &all.panel);
    const int32_t heads = all.panel.heads * all.run.group_heads;
    const int64_t total = (int64_t)tiles * heads * parts;
    for (int64_t ticket = phase_draw(all); ticket < total; ticket = phase_draw(all)) {
        const ordo_phase_unit x = ordo_phase_issue(tiles, heads, all.together, parts, ticket);
        phase_query_tile at;
        at.tile = all.panel.tile + (LAST_FIRST ? tiles - 1 - x.tile : x.tile);
        at.head = all.panel.head * all.run.group_heads + x.head;
        at.part = x.part;
        at.sequence = ordo_batch_find(&all.batch, ORDO_BEFORE_QUERY, at.tile);
        at.s = ordo_batch_sequence(&all.batch, at.sequence);
        at.i = at.tile - at.s.query_tile;
        unit(at);
    }
}

/* ---- consumers ---- */

template <int N> struct phase_consumer {
    using Z = phase_shape<N>;
    const int mine, x; /* which of the two warpgroups; thread of this one */
    pipeline_state<Z::STAGES> ring = {};
    uint32_t records = 0;

    __device__ __forceinline__ void release(uint32_t stage) const
    {
        mbar_arrive_warp(Z::EMPTY + 8 * stage, (uint32_t)x % 32);
    }

    /* The record of the next unit, which is there with its first stage. */
    template <class RECORD> __device__ __forceinline__ RECORD told(void)
    {
        mbar_wait(Z::FULL + 8 * ring.stage, ring.parity);
        return load_record<RECORD>(Z::record(records++));
    }

    /* A stage without data. */
    __device__ __forceinline__ void pass(void)
    {
        release(ring.stage);
        ring.advance();
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
            ring.advance();
        }
        wgmma_wait<0>();
        wgmma_pin(d);
        if (stages > 0)
            release(last);
    }
};

/* ---- ends ---- */

/* ALiBi's slope of a query head; 0 without ALiBi. */
ORDO_DEVICE float phase_slope(const ordo_phase_common &all, int sequence, int head)
{
    return all.slopes ? all.slopes[sequence * all.slopes_sequence + head] : 0.0f;
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

    template <int N> __device__ __forceinline__ void hide(float (&d)[N], float value) const
    {
        mask_window(d, from, to, value);
    }
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

/* ---- the kernels ---- */

/* One thread calls load(), two warpgroups call compute(consumer). */
template <int N, class LOAD, class COMPUTE> ORDO_DEVICE void phase_roles(LOAD load, COMPUTE compute)
{
    using Z = phase_shape<N>;
    block_begin([] {
        for (int s = 0; s < Z::STAGES; s++) {
            mbar_init(Z::FULL + 8 * s, 1);
            mbar_init(Z::EMPTY + 8 * s, 8);
        }
    });
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == 0) {
        registers_down<PHASE_PRODUCER_REGISTERS>();
        if (threadIdx.x < 32 && elect_one())
            load();
        return;
    }
    registers_up<PHASE_CONSUMER_REGISTERS>();
    compute(phase_consumer<N> { warpgroup - 1, (int)threadIdx.x % 128 });
}

#endif
