/* limits.c: states the limits of each backend, for the passes and for callers. */
#include "api/limits.h"

#include "base/status.h"
#include "base/versioned.h"
#include "ordo/attention.h"
#include "plan/family.h"

static const unsigned every_dtype = 1u << ORDO_F32 | 1u << ORDO_BF16 | 1u << ORDO_F16;

ordo_status ordo_backend_query(ordo_backend backend, ordo_backend_limits *limits)
{
    ordo_backend_limits found = { .dtypes = every_dtype,
                                  .head_dim_multiple = 1,
                                  .unequal_head_dims = true,
                                  .makes_fa2_bits = true,
                                  .paged = true };
    ORDO_TRY(ordo_check_pointer("limits", limits));
    const ordo_family *family = ordo_family_first(backend);
    if (!family)
        return ordo_fail(ORDO_ERR_ARGUMENT, "backend %d: expected ref, cpu, cuda or emulator",
                         (int)backend);
    if (family->capability > 0)
        found = (ordo_backend_limits) {
            .dtypes = 1u << ORDO_BF16 | 1u << ORDO_F16,
            .head_dim_multiple = ORDO_CUDA_HEAD_STEP,
            .unequal_head_dims = true,
            .tensor_align = backend == ORDO_BACKEND_CUDA ? ORDO_CUDA_COPY_BYTES : 0,
            .makes_fa2_bits = backend == ORDO_BACKEND_EMULATOR,
            .paged = true,
        };
    found.head_dim_max = family->head_dim_max;
    found.made_bits_head_dim_max =
        backend == ORDO_BACKEND_CUDA ? family->made_bits_max : family->head_dim_max;
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_backend_limits, "limits", ORDO_BACKEND_LIMITS_INIT, NULL);
    return ordo_versioned_answer(limits, &found, &kind);
}
