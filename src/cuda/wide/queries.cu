/* wide/queries.cu: dQ of head sizes 129 to 256: the instances. */
#include "cuda/wide/queries.h"

template <ordo_keep_source SOURCE> static ordo_wide_kernel instance(bool f16)
{
    return { f16 ? (const void *)backward_wide_queries<true, SOURCE>
                 : (const void *)backward_wide_queries<false, SOURCE>,
             wide_queries_shape::BYTES };
}

ordo_wide_kernel ordo_wide_queries(bool f16, ordo_keep_source source)
{
    return source == ORDO_KEEP_NONE    ? instance<ORDO_KEEP_NONE>(f16)
           : source == ORDO_KEEP_GIVEN ? instance<ORDO_KEEP_GIVEN>(f16)
                                       : instance<ORDO_KEEP_MADE>(f16);
}
