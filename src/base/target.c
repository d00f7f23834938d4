/* target.c: which vector instructions this machine has. */
#include "base/target.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Fastest first. */
static const char *const targets[] = {
#if defined(__aarch64__)
    "neon",
#elif defined(__x86_64__)
    "avx512",
    "avx2",
#endif
    "generic",
};
enum { TARGETS = sizeof targets / sizeof targets[0] };

static bool runs_here(int target)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (target == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    if (target == 1)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    (void)target;
    return true;
}

static int index_of(const char *name)
{
    for (int x = 0; x < TARGETS; x++)
        if (strcmp(targets[x], name) == 0 && runs_here(x))
            return x;
    return -1;
}

bool ordo_target_runs(const char *name)
{
    return index_of(name) >= 0;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int chosen;
static char wanted[32];

static void choose(void)
{
    const char *name = getenv("ORDO_CPU");
    if (name && *name) {
        strncpy(wanted, name, sizeof wanted - 1);
        chosen = index_of(name);
        return;
    }
    for (int x = TARGETS - 1; x >= 0; x--)
        if (runs_here(x))
            chosen = x;
}

/* The targets that ORDO_CPU may name here, fastest first: "avx2 or generic". */
static void list_targets(char *text, size_t capacity)
{
    size_t used = 0;
    for (int x = 0; x < TARGETS; x++)
        if (runs_here(x) && used < capacity) /* the last one, generic, runs everywhere */
            used += (size_t)snprintf(text + used, capacity - used, "%s%s",
                                     used == 0          ? ""
                                     : x + 1 == TARGETS ? " or "
                                                        : ", ",
                                     targets[x]);
}

ordo_status ordo_target_name(const char **name)
{
    pthread_once(&once, choose);
    if (chosen < 0) {
        char expected[64];
        list_targets(expected, sizeof expected);
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "ORDO_CPU=%s: not a target of this machine; expected %s", wanted,
                         expected);
    }
    *name = targets[chosen];
    return ORDO_OK;
}
