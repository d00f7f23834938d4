/* elements.h: elements of tensors on the host as f32. */
#ifndef BLOCK_ELEMENTS_H
#define BLOCK_ELEMENTS_H

#include "base/half.h"
#include "ordo/problem.h"

static inline float block_load(const void *data, ordo_dtype dtype, int64_t at)
{
    return dtype == ORDO_F32 ? ((const float *)data)[at]
                             : ordo_f32_from_bf16(((const uint16_t *)data)[at]);
}

static inline void block_store(void *data, ordo_dtype dtype, int64_t at, float value)
{
    if (dtype == ORDO_F32)
        ((float *)data)[at] = value;
    else
        ((uint16_t *)data)[at] = ordo_bf16_from_f32(value);
}

#endif
