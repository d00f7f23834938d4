/* fake_load.h: load the module that stands for a device (fake_module.so) into a test. */
#ifndef TESTS_API_FAKE_LOAD_H
#define TESTS_API_FAKE_LOAD_H

#include "check.h"
#include "fake_module.h"

#include <dlfcn.h>

/* NULL where ORDO_BUILD is not set. */
static inline const char *fake_path(void)
{
    static char path[4096];
    const char *build = getenv("ORDO_BUILD");
    snprintf(path, sizeof path, "%s/tests/api/fake_module.so", build ? build : "");
    return build ? path : NULL;
}

static inline fake_record *fake_load(void)
{
    if (!fake_path())
        return NULL;
    setenv("ORDO_CUDA_MODULE", fake_path(), 1);
    void *library = dlopen(fake_path(), RTLD_NOW);
    fake_record *record = library ? dlsym(library, "fake_passes") : NULL;
    CHECK(record != NULL);
    return record;
}

/* What the module records, or the test is left. */
#define LOAD_FAKE(record)                                                                          \
    fake_record *const record = fake_load();                                                       \
    if (!record)                                                                                   \
    SKIP("ORDO_BUILD is not set")

#endif
