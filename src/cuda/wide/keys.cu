/* wide/keys.cu: dK and dV of head sizes 129 to 256: the instances. */
#include "cuda/wide/keys.h"

template <ordo_keep_source SOURCE> static ordo_wide_kernel instance(bool f16)
{
    return { f16 ? (const void *)backward_wide_keys<true, SOURCE>
                 : (const void *)backward_wide_keys<false, SOURCE>,
             wide_keys_shape<SOURCE>::BYTES };
}

ordo_wide_kernel ordo_wide_keys(bool f16, ordo_keep_source source)
{
    return source == ORDO_KEEP_NONE    ? instance<ORDO_KEEP_NONE>(f16)
           : source == ORDO_KEEP_GIVEN ? instance<ORDO_KEEP_GIVEN>(f16)
                                       : instance<ORDO_KEEP_MADE>(f16);
}
