/* backward/sums.h: sums of dK and dV that a chain continues, or leaves for the next pass
 * (common/carry.h). */
#ifndef CUDA_BACKWARD_SUMS_H
#define CUDA_BACKWARD_SUMS_H

#include "cuda/backward/math.h"
#include "cuda/common/carry.h"

/* The 16 keys of a warp, all of which exist and have D columns: between accumulators and memory by
 * way of the buffers of dS, eight keys at a time. Between two chains the buffers are free, and a
 * warp uses a piece of either where only its own warpgroup writes dS and stages dK and dV. */
template <int D, class Z> struct warp_sums {
    enum {
        ROW_BYTES = D * 4,
        THREADS = D / 4,     /* per row */
        EACH = 32 / THREADS, /* rows per access */
        COUNT = 8 / EACH     /* accesses of eight rows */
    };
    const carry_tile &tile;
    uint32_t pairs_at, rows_at;
    int64_t first; /* of this thread's elements in memory */

    __device__ __forceinline__ warp_sums(const carry_tile &tile_, int mine, uint32_t x)
        : tile(tile_)
    {
        const uint32_t lane = x % 32, warp = x / 32 % 4;
        const uint32_t at =
            Z::DS + mine * (Z::DS_BYTES / 2) + warp * 4 * ROW_BYTES; /* as ds_at of backward_math */
        pairs_at = at + ordo_sums_offset(ROW_BYTES, Z::DS_BYTES, lane / 4, lane % 4 * 8);
        rows_at =
            at + ordo_sums_offset(ROW_BYTES, Z::DS_BYTES, lane / THREADS, lane % THREADS * 16);
        first = (tile.first + (int64_t)(warp * 16 + lane / THREADS) * tile.step) * D +
                lane % THREADS * 4;
    }

    __device__ __forceinline__ float *row(float *sums, int n) const
    {
        return sums + first + (int64_t)(n * EACH) * tile.step * D;
    }

    __device__ __forceinline__ uint32_t staged(int n) const
    {
        return ordo_sums_row(ROW_BYTES, Z::DS_BYTES, rows_at, n % COUNT * EACH);
    }

    __device__ __forceinline__ void fetch(int4 (&rows)[2 * COUNT], float *sums) const
    {
#pragma unroll
        for (int n = 0; n < 2 * COUNT; n++)
            rows[n] = __ldcg((const int4 *)row(sums, n));
    }

    __device__ __forceinline__ void take(float (&d)[D / 2], const int4 (&rows)[2 * COUNT]) const
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
#pragma unroll
            for (int n = r * COUNT; n < (r + 1) * COUNT; n++)
                store_shared_int4(staged(n), rows[n]);
            __syncwarp();
#pragma unroll
            for (int c = 0; c < D / 8; c++)
                load_shared_pair(ordo_sums_pair(pairs_at, c), d[4 * c + 2 * r],
                                 d[4 * c + 2 * r + 1]);
            __syncwarp();
        }
    }

    __device__ __forceinline__ void leave(const float (&d)[D / 2], float *sums) const
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
#pragma unroll
            for (int c = 0; c < D / 8; c++)
                store_shared_pair(ordo_sums_pair(pairs_at, c), d[4 * c + 2 * r],
                                  d[4 * c + 2 * r + 1]);
            __syncwarp();
#pragma unroll
            for (int n = r * COUNT; n < (r + 1) * COUNT; n++)
                *(int4 *)row(sums, n) = load_shared_int4(staged(n));
            __syncwarp();
        }
    }
};

/* The 64 keys of a consumer warpgroup of a chain. */
template <int D, class Z> struct chain_sums {
    const ordo_cuda_carry &carry;
    carry_tile k, v; /* of dK and dV */
    int mine, x;     /* the warpgroup, and the thread in it */

    /* `thread` of the block: hidden from the optimizer, or what is made of it here is kept in
     * registers from chain to chain. */
    __device__ __forceinline__ chain_sums(const ordo_backward_args &args, const chain_place &at,
                                          int thread)
        : carry(args.carry)
    {
        x = (int)opaque((uint32_t)thread);
        mine = x / 128 - 1;
        x %= 128;
        k.first = ordo_carry_row(args.kv_rows, args.run.kv_heads, at.sequence, at.key + mine * 64,
                                 at.head);
        k.step = args.run.kv_heads;
        k.rows = at.keys - mine * 64;
        k.columns = args.head_dim;
        v = k;
        v.columns = args.v_head_dim;
    }

    /* Whether this warp's keys all exist, with D columns. */
    __device__ __forceinline__ bool whole(void) const
    {
        return k.columns == D && v.columns == D && k.rows >= x / 32 * 16 + 16;
    }

    /* Into registers; the buffers of dS must be free. */
    __device__ __forceinline__ void load(float (&dk)[D / 2], float (&dv)[D / 2]) const
    {
        if (whole()) {
            const warp_sums<D, Z> sums(k, mine, (uint32_t)x);
            int4 dk_rows[2 * sums.COUNT], dv_rows[2 * sums.COUNT];
            sums.fetch(dv_rows, carry.dv);
            sums.fetch(dk_rows, carry.dk);
            sums.take(dv, dv_rows);
            sums.take(dk, dk_rows);
        } else {
            carry_load(dv, carry.dv, v, x);
            carry_load(dk, carry.dk, k, x);
        }
    }

    /* Nonzero if this thread has a row that is not finite. The buffers of dS must be free. */
    __device__ __forceinline__ uint32_t store(const float (&dk)[D / 2],
                                              const float (&dv)[D / 2]) const
    {
        if (whole() && __all_sync(~0u, carry_taint(dk) + carry_taint(dv) == 0.0f)) {
            const warp_sums<D, Z> sums(k, mine, (uint32_t)x);
            sums.leave(dv, carry.dv);
            sums.leave(dk, carry.dk);
            return 0;
        }
        return carry_store(dv, carry.dv, carry.dv_broken, v, x) |
               carry_store(dk, carry.dk, carry.dk_broken, k, x);
    }
};

#endif
