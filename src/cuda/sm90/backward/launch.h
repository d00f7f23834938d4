/* sm90/backward/launch.h: what the lines of sm90/backward/instances.h call: the instance for keep
 * bits of a source. */
#ifndef CUDA_SM90_BACKWARD_LAUNCH_H
#define CUDA_SM90_BACKWARD_LAUNCH_H

#include "cuda/sm90/backward/instances.h"
#include "cuda/sm90/backward/kernel.h"

template <int D, int MODE, ordo_keep_source SOURCE, bool VARLEN, bool F16, bool CARRY = VARLEN,
          bool BLOCKS = false, bool ELEMENTS = false, backward_bias BIAS = BIAS_NONE>
static ordo_backward_instance backward_instance(void)
{
    using Z = backward_shape<D, SOURCE, VARLEN, BLOCKS, BIAS>;
    return {
        (const void *)backward_kernel<D, MODE, SOURCE, VARLEN, F16, CARRY, BLOCKS, ELEMENTS, BIAS>,
        Z::ROWS, Z::KEYS, Z::THREADS, Z::BYTES
    };
}

/* Dense passes. Those that carry sums do not make bits: ordo_backward_dense(). */
template <int D, bool F16, bool CARRY>
static ordo_backward_instance backward_dense(ordo_keep_source source)
{
    if constexpr (!CARRY)
        if (source == ORDO_KEEP_MADE)
            return backward_instance<D, ORDO_DQ_ORDERED, ORDO_KEEP_MADE, false, F16>();
    return source == ORDO_KEEP_GIVEN
               ? backward_instance<D, ORDO_DQ_ORDERED, ORDO_KEEP_GIVEN, false, F16, CARRY>()
               : backward_instance<D, ORDO_DQ_ORDERED, ORDO_KEEP_NONE, false, F16, CARRY>();
}

template <bool F16, bool CARRY>
static ordo_backward_instance backward_dense_of(int32_t bucket, ordo_keep_source source)
{
    return bucket == 64 ? backward_dense<64, F16, CARRY>(source)
                        : backward_dense<128, F16, CARRY>(source);
}

/* Dense passes without dropout, in every order. */
template <bool F16>
static ordo_backward_instance backward_any_order(int32_t bucket, ordo_keep_source)
{
    return bucket == 64 ? backward_instance<64, ORDO_DQ_ANY_ORDER, ORDO_KEEP_NONE, false, F16>()
                        : backward_instance<128, ORDO_DQ_ANY_ORDER, ORDO_KEEP_NONE, false, F16>();
}

/* A bucket, all sources of keep bits. */
template <int D, int MODE, bool F16, bool BLOCKS, bool ELEMENTS, backward_bias BIAS>
static ordo_backward_instance backward_sources(ordo_keep_source source)
{
    const bool carry = MODE != ORDO_DQ_ALONE; /* dQ has no sums to carry */
    return source == ORDO_KEEP_NONE ? backward_instance<D, MODE, ORDO_KEEP_NONE, true, F16, carry,
                                                        BLOCKS, ELEMENTS, BIAS>()
           : source == ORDO_KEEP_GIVEN ? backward_instance<D, MODE, ORDO_KEEP_GIVEN, true, F16,
                                                           carry, BLOCKS, ELEMENTS, BIAS>()
                                       : backward_instance<D, MODE, ORDO_KEEP_MADE, true, F16,
                                                           carry, BLOCKS, ELEMENTS, BIAS>();
}

/* Buckets 64 and 128. */
template <int MODE, bool F16, bool BLOCKS = false, bool ELEMENTS = false,
          backward_bias BIAS = BIAS_NONE>
static ordo_backward_instance backward_varlen(int32_t bucket, ordo_keep_source source)
{
    return bucket == 64 ? backward_sources<64, MODE, F16, BLOCKS, ELEMENTS, BIAS>(source)
                        : backward_sources<128, MODE, F16, BLOCKS, ELEMENTS, BIAS>(source);
}

/* A bias that is copied: without dropout, head size 128; elsewhere room or registers do not
 * suffice. */
template <bool F16> static ordo_backward_instance backward_staged(int32_t, ordo_keep_source)
{
    return backward_instance<128, ORDO_DQ_ORDERED, ORDO_KEEP_NONE, true, F16, true, false, false,
                             BIAS_STAGED>();
}

#define ORDO_INSTANCE(NAME, ...)                                                                   \
    ordo_backward_instance ordo_backward_##NAME(int32_t bucket, ordo_keep_source source)           \
    {                                                                                              \
        return __VA_ARGS__(bucket, source);                                                        \
    }

#endif
