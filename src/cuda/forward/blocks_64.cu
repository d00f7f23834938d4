/* forward/blocks_64.cu: the forward kernel for block masks, for head sizes of this bucket; without
 * keep bits made inside, for which it has no registers. */
#include "cuda/forward/kernel.h"

template <bool F16> static ordo_forward_instance instance(ordo_keep_source source)
{
    return source == ORDO_KEEP_GIVEN ? forward_instance<64, 64, ORDO_KEEP_GIVEN, true, F16, true>()
                                     : forward_instance<64, 64, ORDO_KEEP_NONE, true, F16, true>();
}

ordo_forward_instance ordo_forward_blocks_64(bool f16, ordo_keep_source source)
{
    return f16 ? instance<true>(source) : instance<false>(source);
}
