/* sm90/wide/queries.cu: dQ of head sizes 193 to 256: the instances. */
#include "cuda/sm90/wide/queries.h"

ordo_wide_kernel ordo_wide_queries(const ordo_cuda_pass *pass)
{
    return wide_queries_of<256, 256>(pass);
}
