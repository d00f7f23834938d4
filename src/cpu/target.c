/* target.c: which kernels this machine runs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cpu/kernels.h"

/* Fastest first. */
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

static bool runs_here(const ordo_kernels *kernels)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (kernels == &ordo_kernels_avx512)
        return __builtin_cpu_supports("avx512f");
    if (kernels == &ordo_kernels_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    (void)kernels;
    return true;
}

const ordo_kernels *ordo_cpu_kernels_named(const char *name)
{
    for (int x = 0; x < TABLES; x++)
        if (strcmp(tables[x]->name, name) == 0)
            return runs_here(tables[x]) ? tables[x] : NULL;
    return NULL;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const ordo_kernels *chosen, *forced;
static char asked[32];

static void choose(void)
{
    const char *name = getenv("ORDO_CPU");
    if (name && *name) {
        strncpy(asked, name, sizeof asked - 1);
        chosen = ordo_cpu_kernels_named(name);
        return;
    }
    for (int x = TABLES - 1; x >= 0; x--)
        if (runs_here(tables[x]))
            chosen = tables[x];
}

void ordo_cpu_kernels_force(const ordo_kernels *kernels)
{
    forced = kernels;
}

/* The targets that ORDO_CPU may name here, fastest first: "avx2 or generic". */
static void list_targets(char *text, size_t capacity)
{
    size_t used = 0;
    for (int x = 0; x < TABLES; x++)
        if (runs_here(tables[x]) && used < capacity) /* the last one, generic, runs everywhere */
            used += (size_t)snprintf(text + used, capacity - used, "%s%s",
                                     used == 0         ? ""
                                     : x + 1 == TABLES ? " or "
                                                       : ", ",
                                     tables[x]->name);
}

ordo_status ordo_cpu_kernels(const ordo_kernels **kernels)
{
    pthread_once(&once, choose);
    *kernels = forced ? forced : chosen;
    if (!*kernels) {
        char targets[64];
        list_targets(targets, sizeof targets);
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "ORDO_CPU=%s: not a target of this machine; expected %s", asked, targets);
    }
    return ORDO_OK;
}
