/* backward/pass.cu: which instance of the chains runs a pass. The plain ones are here. */
#include "cuda/backward/pass.h"

#include <cuda_runtime.h>

#include "cuda/backward/launch.h"
#include "cuda/common/sequences.h"

template <int D, bool F16>
static ordo_status plain(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    if (ordo_pass_keep_source(pass) == ORDO_KEEP_GIVEN)
        return backward_launch<D, ORDO_DQ_ORDERED, ORDO_KEEP_GIVEN, false, F16>(pass, why,
                                                                                why_size);
    return backward_launch<D, ORDO_DQ_ORDERED, ORDO_KEEP_NONE, false, F16>(pass, why, why_size);
}

ordo_status ordo_sm90_backward_chains(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    if (!ordo_backward_plain(pass)) {
        CUDA_TRY(ordo_sm90_sequences(pass, why, why_size));
        CUDA_TRY(ordo_sm90_clear_backward(pass, why, why_size));
        if (!pass->dq.data)
            return pass->f16 ? ordo_backward_keys_f16(pass, why, why_size)
                             : ordo_backward_keys_bf16(pass, why, why_size);
        return pass->f16 ? ordo_backward_general_f16(pass, why, why_size)
                         : ordo_backward_general_bf16(pass, why, why_size);
    }
    if (pass->bucket == 64)
        return pass->f16 ? plain<64, true>(pass, why, why_size)
                         : plain<64, false>(pass, why, why_size);
    return pass->f16 ? plain<128, true>(pass, why, why_size)
                     : plain<128, false>(pass, why, why_size);
}
