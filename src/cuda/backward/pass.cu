/* backward/pass.cu: which instance of the chains runs a pass. The plain ones are here. */
#include "cuda/backward/pass.h"

#include <cuda_runtime.h>

#include "cuda/backward/launch.h"
#include "cuda/common/sequences.h"

template <int D, ordo_keep_source SOURCE>
static ordo_status plain(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    return backward_launch<D, ORDO_DQ_ORDERED, SOURCE, false, false>(pass, why, why_size);
}

ordo_status ordo_sm90_backward_chains(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    if (!ordo_backward_plain(pass)) {
        CUDA_TRY(ordo_sm90_sequences(pass, why, why_size));
        CUDA_TRY(ordo_sm90_clear_backward(pass, why, why_size));
        return pass->f16 ? ordo_backward_general_f16(pass, why, why_size)
                         : ordo_backward_general_bf16(pass, why, why_size);
    }
    const bool narrow = pass->bucket == 64;
    if (ordo_pass_keep_source(pass) == ORDO_KEEP_GIVEN)
        return narrow ? plain<64, ORDO_KEEP_GIVEN>(pass, why, why_size)
                      : plain<128, ORDO_KEEP_GIVEN>(pass, why, why_size);
    return narrow ? plain<64, ORDO_KEEP_NONE>(pass, why, why_size)
                  : plain<128, ORDO_KEEP_NONE>(pass, why, why_size);
}
