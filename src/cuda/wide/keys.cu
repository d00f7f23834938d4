/* wide/keys.cu: dK and dV of head sizes 129 to 256: the instances. */
#include "cuda/wide/keys.h"

template <int DROP> static ordo_wide_kernel instance(bool f16)
{
    return { f16 ? (const void *)backward_wide_keys<true, DROP>
                 : (const void *)backward_wide_keys<false, DROP>,
             wide_keys_shape<DROP>::BYTES };
}

ordo_wide_kernel ordo_wide_keys(bool f16, int drop)
{
    return drop == WIDE_KEEP_ALL     ? instance<WIDE_KEEP_ALL>(f16)
           : drop == WIDE_KEEP_GIVEN ? instance<WIDE_KEEP_GIVEN>(f16)
                                     : instance<WIDE_KEEP_MADE>(f16);
}
