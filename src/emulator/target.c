/* target.c: the kernels of each target. */
#include "base/target.h"

#include <pthread.h>
#include <string.h>

#include "emulator/kernels.h"

static const ordo_emulator_kernels *const tables[] = {
#if defined(__aarch64__)
    &ordo_emulator_kernels_neon,
#elif defined(__x86_64__)
    &ordo_emulator_kernels_avx512,
    &ordo_emulator_kernels_avx2,
#endif
    &ordo_emulator_kernels_generic,
};
enum { TABLES = sizeof tables / sizeof tables[0] };

const ordo_emulator_kernels *ordo_emulator_kernels_named(const char *name)
{
    for (int x = 0; x < TABLES; x++)
        if (strcmp(tables[x]->name, name) == 0)
            return ordo_target_runs(name) ? tables[x] : NULL;
    return NULL;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const ordo_emulator_kernels *chosen, *forced;

static void choose(void)
{
    const char *name = "generic";
    (void)ordo_target_name(&name);
    chosen = ordo_emulator_kernels_named(name);
}

void ordo_emulator_kernels_force(const ordo_emulator_kernels *kernels)
{
    forced = kernels;
}

const ordo_emulator_kernels *ordo_emulator_kernels_here(void)
{
    pthread_once(&once, choose);
    return forced ? forced : chosen;
}
