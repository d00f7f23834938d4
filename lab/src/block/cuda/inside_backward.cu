/* inside_backward.cu: the backward pass with keep bits of experiments made inside. */
#include "block/cuda/inside.cuh"
#include "cuda/sm90/backward/kernel.h"
#include "cuda/sm90/backward/rows.h"

template <int ROUNDS> struct sliced_inside {
    static __device__ __forceinline__ uint32_t word(const ordo_backward_args &,
                                                    const ordo_keep &keep, uint32_t bh,
                                                    uint32_t row, uint32_t block, uint32_t quad)
    {
        return keep_word_unrolled<ROUNDS, 8, false>(keep, bh, row, block, quad);
    }
};

template <int ROUNDS> struct compared_inside {
    static __device__ __forceinline__ uint32_t word(const ordo_backward_args &args,
                                                    const ordo_keep &, uint32_t bh, uint32_t row,
                                                    uint32_t block, uint32_t quad)
    {
        return compare_inside<ROUNDS>(args.keep, args.run.band, bh, row, block, quad);
    }
};

template <class MAKER> static ordo_backward_instance instance(void)
{
    using Z = backward_shape<128, ORDO_KEEP_MADE>;
    return { (const void *)backward_kernel<128, ORDO_DQ_ORDERED, ORDO_KEEP_MADE, false, false,
                                           false, false, false, BIAS_NONE, MAKER>,
             Z::ROWS, Z::KEYS, Z::THREADS, Z::BYTES };
}

ordo_status block_cuda_backward_inside(const ordo_cuda_pass *pass, ordo_generator generator)
{
    const int rounds = pass->keep.rounds;
    if (generator == ORDO_GENERATOR_COMPARE)
        return ordo_backward_run(pass, rounds == 3   ? instance<compared_inside<3>>()
                                       : rounds == 5 ? instance<compared_inside<5>>()
                                       : rounds == 7 ? instance<compared_inside<7>>()
                                                     : instance<compared_inside<10>>());
    return ordo_backward_run(pass, rounds == 3 ? instance<sliced_inside<3>>()
                                               : instance<sliced_inside<5>>());
}
