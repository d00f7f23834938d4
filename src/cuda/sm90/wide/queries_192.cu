/* sm90/wide/queries_192.cu: dQ of head sizes 129 to 192, whose values have up to 128 columns or as
 * many as the keys: the instances. */
#include "cuda/sm90/wide/queries.h"

ordo_wide_kernel ordo_wide_queries_192(const ordo_cuda_pass *pass)
{
    const ordo_keep_source source = ordo_pass_keep_source(pass);
    if (pass->v_head_dim <= 128)
        return wide_queries_of<192, 128>(pass);
    if (source == ORDO_KEEP_MADE) /* ptxas spills registers at (192, 192), but not at 256 */
        return ordo_wide_queries(pass);
    return source == ORDO_KEEP_NONE ? wide_queries_instance<192, 192, ORDO_KEEP_NONE>(pass->f16)
                                    : wide_queries_instance<192, 192, ORDO_KEEP_GIVEN>(pass->f16);
}
