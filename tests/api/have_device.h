/* have_device.h: whether this machine has a device, by the CUDA module of the build under test. */
#ifndef TESTS_API_HAVE_DEVICE_H
#define TESTS_API_HAVE_DEVICE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ordo/ordo.h"

static inline bool have_device(void)
{
    static char path[4096];
    const char *build = getenv("ORDO_BUILD"), *why = NULL;
    snprintf(path, sizeof path, "%s/lib/libordo_cuda.so", build ? build : "");
    if (build && !getenv("ORDO_CUDA_MODULE") && access(path, F_OK) == 0)
        setenv("ORDO_CUDA_MODULE", path, 1);
    return ordo_backend_available(ORDO_BACKEND_CUDA, &why);
}

#endif
