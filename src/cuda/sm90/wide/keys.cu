/* sm90/wide/keys.cu: dK and dV of head sizes 193 to 256: the instances. */
#include "cuda/sm90/wide/keys.h"

ordo_wide_kernel ordo_wide_keys(const ordo_cuda_pass *pass)
{
    return wide_keys_of<256, 256>(pass);
}
