/* target.c: the kernels of each target. */
#include "base/target.h"

#include <string.h>

#include "base/status.h"
#include "cpu/kernels.h"

static const ordo_kernels *const tables[] = {
#if defined(__aarch64__)
    &ordo_kernels_neon,
#elif defined(__x86_64__)
    &ordo_kernels_avx512,
    &ordo_kernels_avx2,
#endif
    &ordo_kernels_generic,
};
enum { TABLES = sizeof tables / sizeof tables[0] };

const ordo_kernels *ordo_cpu_kernels_named(const char *name)
{
    for (int x = 0; x < TABLES; x++)
        if (strcmp(tables[x]->name, name) == 0)
            return ordo_target_runs(name) ? tables[x] : NULL;
    return NULL;
}

static const ordo_kernels *forced;

void ordo_cpu_kernels_force(const ordo_kernels *kernels)
{
    forced = kernels;
}

ordo_status ordo_cpu_kernels(const ordo_kernels **kernels)
{
    const char *name = NULL;
    *kernels = forced;
    if (forced)
        return ORDO_OK;
    ORDO_TRY(ordo_target_name(&name));
    *kernels = ordo_cpu_kernels_named(name);
    return ORDO_OK;
}
