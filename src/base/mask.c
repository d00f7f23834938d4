/* mask.c: the one list of masks. */
#include "base/mask.h"

#include <stdio.h>

#include "base/status.h"

static const char *const names[] = { "full", "causal", "causal-top-left" };
enum { MASKS = sizeof names / sizeof *names };

const char *ordo_mask_name(ordo_mask mask)
{
    return (unsigned)mask < MASKS ? names[mask] : "unknown";
}

int64_t ordo_mask_diagonal(ordo_mask mask, int64_t q_len, int64_t kv_len)
{
    return ordo_band_diagonal(mask, q_len < 0 ? 0 : q_len, kv_len < 0 ? 0 : kv_len);
}

ordo_status ordo_check_mask(const char *field, ordo_mask mask)
{
    char all[96] = "";
    size_t used = 0;
    if ((unsigned)mask < MASKS)
        return ORDO_OK;
    for (int i = 0; i < MASKS; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%d (%s)",
                                 i == 0          ? ""
                                 : i + 1 < MASKS ? ", "
                                                 : " or ",
                                 i, names[i]);
    return ordo_fail(ORDO_ERR_ARGUMENT, "%s %d: expected %s", field, (int)mask, all);
}
