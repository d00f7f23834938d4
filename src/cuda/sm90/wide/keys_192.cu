/* sm90/wide/keys_192.cu: dK and dV of head sizes 129 to 192, whose values have up to 128 columns or
 * as many as the keys: the instances. */
#include "cuda/sm90/wide/keys.h"

ordo_wide_kernel ordo_wide_keys_192(const ordo_cuda_pass *pass)
{
    return pass->v_head_dim <= 128 ? wide_keys_of<192, 128>(pass) : wide_keys_of<192, 192>(pass);
}
