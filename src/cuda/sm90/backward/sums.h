/* sm90/backward/sums.h: sums of dK and dV that a chain continues, or leaves for the next pass
 * (tile/carry.h). */
#ifndef CUDA_SM90_BACKWARD_SUMS_H
#define CUDA_SM90_BACKWARD_SUMS_H

#include "cuda/sm90/backward/math.h"
#include "cuda/tile/carry.h"

/* The 16 keys of a warp, all of which exist and have D columns, straight between accumulators and
 * memory: four threads have 32 bytes of a row, a sector. This runs once per chain, so the number of
 * instructions counts (docs/design/hopper-backward.md): one for each pair of accumulators. */
template <int D> struct warp_sums {
    int64_t first, below; /* floats to this thread's first pair, and on to the row 8 below */

    __device__ __forceinline__ warp_sums(const carry_tile &tile, int x)
        : first((tile.first + (int64_t)ordo_accumulator_row(x, 0) * tile.step) * D +
                ordo_accumulator_column(x, 0)),
          below((int64_t)8 * D * tile.step)
    {
    }

    __device__ __forceinline__ void take(float (&d)[D / 2], const float *sums) const
    {
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int c = 0; c < D / 8; c++) {
                const float2 x = __ldcg((const float2 *)(sums + first + r * below + 8 * c));
                d[4 * c + 2 * r] = x.x;
                d[4 * c + 2 * r + 1] = x.y;
            }
    }

    __device__ __forceinline__ void leave(const float (&d)[D / 2], float *sums) const
    {
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int c = 0; c < D / 8; c++)
                *(float2 *)(sums + first + r * below + 8 * c) =
                    make_float2(d[4 * c + 2 * r], d[4 * c + 2 * r + 1]);
    }
};

/* The 64 keys of a consumer warpgroup of a chain. */
template <int D> struct chain_sums {
    const ordo_cuda_carry &carry;
    carry_tile k, v; /* tiles of dK and dV */
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

    /* Into registers. */
    __device__ __forceinline__ void load(float (&dk)[D / 2], float (&dv)[D / 2]) const
    {
        if (whole()) {
            const warp_sums<D> sums(k, x);
            sums.take(dv, carry.dv);
            sums.take(dk, carry.dk);
        } else {
            carry_load(dv, carry.dv, v, x);
            carry_load(dk, carry.dk, k, x);
        }
    }

    /* Nonzero if this thread has a row that is not finite. */
    __device__ __forceinline__ uint32_t store(const float (&dk)[D / 2],
                                              const float (&dv)[D / 2]) const
    {
        if (whole() && __all_sync(~0u, carry_taint(dk) + carry_taint(dv) == 0.0f)) {
            const warp_sums<D> sums(k, x);
            sums.leave(dv, carry.dv);
            sums.leave(dk, carry.dk);
            return 0;
        }
        return carry_store(dv, carry.dv, carry.dv_broken, v, x) |
               carry_store(dk, carry.dk, carry.dk_broken, k, x);
    }
};

#endif
