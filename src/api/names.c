/* names.c: the words of a problem, as the command and a plan's line spell them. */
#include "ordo/problem.h"

const char *ordo_dtype_name(ordo_dtype dtype)
{
    switch (dtype) {
    case ORDO_F32: return "f32";
    case ORDO_BF16: return "bf16";
    case ORDO_F16: return "f16";
    }
    return "unknown";
}

const char *ordo_mask_name(ordo_mask mask)
{
    switch (mask) {
    case ORDO_MASK_FULL: return "full";
    case ORDO_MASK_CAUSAL: return "causal";
    case ORDO_MASK_CAUSAL_TOP_LEFT: return "causal-top-left";
    }
    return "unknown";
}

const char *ordo_layout_name(ordo_layout layout)
{
    switch (layout) {
    case ORDO_DENSE: return "dense";
    case ORDO_PACKED: return "packed";
    case ORDO_PADDED: return "padded";
    }
    return "unknown";
}
