/* sm90/gemm/launch.h: what the lines of sm90/gemm/instances.h call: a kernel by how operands are
 * stored. */
#ifndef CUDA_SM90_GEMM_LAUNCH_H
#define CUDA_SM90_GEMM_LAUNCH_H

#include "cuda/sm90/gemm/instances.h"
#include "cuda/sm90/gemm/kernel.h"

using gemm_wide = gemm_shape<2, 256, 1, 4, 2>;
using gemm_narrow = gemm_shape<2, 128, 1, 6, 2>;
template <int COLUMNS>
using gemm_rows = gemm_shape<1, COLUMNS, 2,
                             COLUMNS == 32   ? 8
                             : COLUMNS == 64 ? 6
                             : COLUMNS == 96 ? 5
                                             : 4,
                             1>;

template <class Z, bool F16> static ordo_gemm_instance gemm_any(bool a_rows, bool b_rows)
{
    if (a_rows)
        return b_rows ? gemm_instance<Z, F16, true, true>() : gemm_instance<Z, F16, true, false>();
    return b_rows ? gemm_instance<Z, F16, false, true>() : gemm_instance<Z, F16, false, false>();
}

template <class Z, bool F16> static ordo_gemm_instance gemm_plain(bool a_rows, bool b_rows)
{
    return a_rows || b_rows ? ordo_gemm_instance() : gemm_instance<Z, F16, false, false>();
}

#define ORDO_INSTANCE(NAME, ...)                                                                   \
    ordo_gemm_instance ordo_gemm_##NAME(bool a_rows_are_k, bool b_rows_are_k)                      \
    {                                                                                              \
        return __VA_ARGS__(a_rows_are_k, b_rows_are_k);                                            \
    }

#endif
