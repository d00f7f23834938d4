/* backward/sums.h: sums of dK and dV that a chain continues, or leaves for the next pass
 * (common/carry.h). */
#ifndef CUDA_BACKWARD_SUMS_H
#define CUDA_BACKWARD_SUMS_H

#include "cuda/backward/math.h"
#include "cuda/common/carry.h"

/* The 64 keys of consumer warpgroup `mine` of a chain, and the thread in it. */
struct chain_sums {
    const ordo_cuda_carry &carry;
    carry_tile k, v; /* of dK and dV */
    int x;

    __device__ __forceinline__ chain_sums(const ordo_backward_args &args, const chain_place &at,
                                          int mine, int thread)
        : carry(args.carry), k { ordo_carry_row(args.kv_rows, args.run.kv_heads, at.sequence,
                                                at.key + mine * 64, at.head),
                                 args.run.kv_heads, at.keys - mine * 64, args.head_dim },
          v(k), x((int)opaque((uint32_t)thread) % 128)
    {
        v.columns = args.v_head_dim;
    }

    template <int N> __device__ __forceinline__ void load(float (&dk)[N], float (&dv)[N]) const
    {
        carry_load(dv, carry.dv, v, x);
        carry_load(dk, carry.dk, k, x);
    }

    /* What keys that no query sees have, whatever was computed: zeros, or the sums that came in. */
    template <int N> __device__ __forceinline__ void forget(float (&dk)[N], float (&dv)[N]) const
    {
        if (carry.in) {
            carry_reload(dv, carry.dv, v, x);
            carry_reload(dk, carry.dk, k, x);
        } else {
            clear(dk);
            clear(dv);
        }
    }

    /* Nonzero if this thread has a row that is not finite. */
    template <int N>
    __device__ __forceinline__ uint32_t store(const float (&dk)[N], const float (&dv)[N]) const
    {
        return carry_store(dv, carry.dv, carry.dv_broken, v, x) |
               carry_store(dk, carry.dk, carry.dk_broken, k, x);
    }
};

#endif
