/* wide/queries.cu: dQ of head sizes 129 to 256: the instances. */
#include "cuda/wide/queries.h"

template <int DROP> static ordo_wide_kernel instance(bool f16)
{
    return { f16 ? (const void *)backward_wide_queries<true, DROP>
                 : (const void *)backward_wide_queries<false, DROP>,
             wide_queries_shape::BYTES };
}

ordo_wide_kernel ordo_wide_queries(bool f16, int drop)
{
    return drop == WIDE_KEEP_ALL     ? instance<WIDE_KEEP_ALL>(f16)
           : drop == WIDE_KEEP_GIVEN ? instance<WIDE_KEEP_GIVEN>(f16)
                                     : instance<WIDE_KEEP_MADE>(f16);
}
