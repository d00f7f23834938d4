/* inside_forward.cu: the forward pass with keep bits of experiments made inside. The branches,
 * which are always taken, keep the compiler from moving both draws of a tile to after the
 * exponentials. */
#include "block/cuda/inside.cuh"
#include "cuda/sm90/forward/dense.h"
#include "cuda/sm90/forward/run.h"

template <int ROUNDS> struct sliced_inside {
    static __device__ __forceinline__ void draw(uint2 &kept, const ordo_forward_args &args,
                                                const ordo_keep &keep, const ordo_keep_keys &keys,
                                                const ordo_keep_product (&lines)[2], uint32_t bh,
                                                uint32_t, uint32_t block, int number)
    {
        if (keep.rounds == ROUNDS)
            keep_draw<ROUNDS>(kept, keys, (uint32_t)keep.offset, lines, bh, block, args.select,
                              number);
    }
};

/* A draw is the word of a row. */
template <int ROUNDS> struct compared_inside {
    static __device__ __forceinline__ void draw(uint2 &kept, const ordo_forward_args &args,
                                                const ordo_keep &keep, const ordo_keep_keys &,
                                                const ordo_keep_product (&)[2], uint32_t bh,
                                                uint32_t row, uint32_t block, int number)
    {
        if (keep.rounds == ROUNDS)
            (number ? kept.y : kept.x) = compare_inside<ROUNDS>(
                args.keep, args.issue.band, bh, row + 8 * (uint32_t)number, block, threadIdx.x % 4);
    }
};

template <class MAKER> static ordo_forward_instance instance(void)
{
    return forward_dense_instance<128, ORDO_KEEP_MADE, false, MAKER>();
}

ordo_status block_cuda_forward_inside(const ordo_cuda_pass *pass, ordo_generator generator)
{
    const int rounds = pass->keep.rounds;
    if (generator == ORDO_GENERATOR_COMPARE)
        return ordo_forward_run(pass, rounds == 3   ? instance<compared_inside<3>>()
                                      : rounds == 5 ? instance<compared_inside<5>>()
                                      : rounds == 7 ? instance<compared_inside<7>>()
                                                    : instance<compared_inside<10>>());
    return ordo_forward_run(pass, rounds == 3 ? instance<sliced_inside<3>>()
                                              : instance<sliced_inside<5>>());
}
