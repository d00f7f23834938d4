/* mask.h: the masks of a problem: their names, and where the diagonal of a sequence lies. */
#ifndef BASE_MASK_H
#define BASE_MASK_H

#include "base/for_lab.h"
#include "base/hd.h"
#include "ordo/problem.h"

/* ordo_mask_diagonal() for host and device. */
ORDO_HD int64_t ordo_band_diagonal(ordo_mask mask, int64_t q_len, int64_t kv_len)
{
    return mask == ORDO_MASK_CAUSAL_TOP_LEFT ? 0 : kv_len - q_len;
}

/* ORDO_ERR_ARGUMENT, with the names of all masks, if `mask` is none of them. */
ORDO_FOR_LAB ordo_status ordo_check_mask(const char *field, ordo_mask mask);

#endif
