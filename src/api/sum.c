/* sum.c: sums of arrays by a fixed tree: checks, then the backend. */
#include "ordo/sum.h"

#include "api/cuda_module.h"
#include "api/cuda_pass.h"
#include "base/checked.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "cpu/sum.h"

#include <inttypes.h>
#include <stdio.h>

/* Whether `out` shares a byte with an input, without being that input. */
static bool spoils(const ordo_sum *s, const void *input, uint64_t width)
{
    const uintptr_t a = (uintptr_t)s->out, b = (uintptr_t)input;
    if (a == b && s->dtype == ORDO_F32)
        return false;
    return a < b ? b - a < 4 * (uint64_t)s->elements : a - b < width * (uint64_t)s->elements;
}

static ordo_status check_arrays(const ordo_sum *s, uint64_t width)
{
    char name[32];
    if (!s->inputs)
        return ordo_fail(ORDO_ERR_ARGUMENT, "inputs NULL: expected %" PRId64 " arrays", s->count);
    if (!s->out)
        return ordo_fail(ORDO_ERR_ARGUMENT, "out NULL: expected %" PRId64 " f32 values",
                         s->elements);
    ORDO_TRY(ordo_check_aligned("out", s->out, sizeof *s->out));
    for (int64_t x = 0; x < s->count; x++) {
        snprintf(name, sizeof name, "inputs[%" PRId64 "]", x);
        if (!s->inputs[x])
            return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected %" PRId64 " %s values", name,
                             s->elements, ordo_dtype_name(s->dtype));
        ORDO_TRY(ordo_check_aligned(name, s->inputs[x], width));
        if (spoils(s, s->inputs[x], width))
            return ordo_fail(ORDO_ERR_ARGUMENT,
                             "out and %s overlap in memory: expected out to be an f32 input itself "
                             "or to overlap none",
                             name);
    }
    return ORDO_OK;
}

/* Copy `in`, of any version, to `out`, and check it. */
static ordo_status check(const ordo_sum *in, ordo_sum *out)
{
    ORDO_TRY(ordo_check_pointer("sum", in));
    static const ordo_struct kind = ORDO_STRUCT(ordo_sum, "sum", ORDO_SUM_INIT, NULL);
    ORDO_TRY(ordo_versioned_copy(out, in, &kind));
    if (out->dtype != ORDO_F32 && out->dtype != ORDO_BF16 && out->dtype != ORDO_F16)
        return ordo_fail(ORDO_ERR_ARGUMENT, "dtype %d: expected f32, bf16 or f16", (int)out->dtype);
    if (out->count < 1 || out->count > ORDO_SUM_MOST)
        return ordo_fail(ORDO_ERR_ARGUMENT, "count %" PRId64 ": expected 1 to %d inputs",
                         out->count, ORDO_SUM_MOST);
    if (out->threads < 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "threads %d: expected 0 or more", out->threads);
    if (out->elements < 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "elements %" PRId64 ": expected 0 or more",
                         out->elements);
    if (out->elements > INT64_C(1) << 60)
        return ordo_fail(ORDO_ERR_OVERFLOW, "elements %" PRId64 ": expected at most 2^60",
                         out->elements);
    return out->elements == 0 ? ORDO_OK : check_arrays(out, out->dtype == ORDO_F32 ? 4 : 2);
}

ordo_status ordo_sum_tree(const ordo_sum *sum)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_sum checked;
    ORDO_TRY(check(sum, &checked));
    return checked.elements == 0 ? ORDO_OK : ordo_cpu_sum(&checked);
}

ordo_status ordo_sum_tree_device(const ordo_sum *sum, void *stream)
{
    ordo_sum checked;
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(check(sum, &checked));
    ORDO_TRY(ordo_cuda_ready());
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    if (checked.elements == 0)
        return ORDO_OK;
    return ordo_cuda_answer(module, module->sum(&checked, stream));
}
