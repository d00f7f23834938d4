/* timing.h: processor time, and whether it means something in this build. */
#ifndef TESTS_TIMING_H
#define TESTS_TIMING_H

#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "ordo/status.h"

static inline double seconds_since(clock_t begin)
{
    return (double)(clock() - begin) / CLOCKS_PER_SEC;
}

/* Optimised, and under no sanitizer. */
static inline bool release_build(void)
{
    return strcmp(ordo_build_query().flavour, "release") == 0;
}

#endif
