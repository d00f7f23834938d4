/* cuda_sum_test.c: what of ordo_sum_tree_device() reaches the module, here one that stands for a
 * device (fake_module.so). */
#include "check.h"
#include "fake_module.h"
#include "ordo/sum.h"

#include <dlfcn.h>

TEST(a_device_gets_the_checked_sum)
{
    enum { ELEMENTS = 32 };
    static float data[2][ELEMENTS], out[ELEMENTS];
    const void *const inputs[] = { data[0], data[1] };
    const char *build = getenv("ORDO_BUILD");
    char path[4096];
    if (!build)
        SKIP("ORDO_BUILD is not set");
    snprintf(path, sizeof path, "%s/tests/api/fake_module.so", build);
    setenv("ORDO_CUDA_MODULE", path, 1);
    void *library = dlopen(path, RTLD_NOW);
    const fake_record *passes = library ? dlsym(library, "fake_passes") : NULL;
    CHECK(passes != NULL);
    if (!passes)
        return;
    ordo_sum s = ORDO_SUM_INIT;
    s.dtype = ORDO_F32;
    s.count = 2;
    s.elements = ELEMENTS;
    s.inputs = inputs;
    s.out = out;
    CHECK_INT(ordo_sum_tree_device(&s, &s), ORDO_OK);
    CHECK_INT(passes->sum, 1);
    CHECK(passes->last_sum_stream == &s);
    CHECK(passes->last_sum.out == out && passes->last_sum.inputs == inputs);
    CHECK_INT(passes->last_sum.count, 2);
    CHECK_INT(passes->last_sum.elements, ELEMENTS);
    s.out = NULL;
    CHECK_INT(ordo_sum_tree_device(&s, NULL), ORDO_ERR_ARGUMENT);
    s.elements = 0;
    CHECK_INT(ordo_sum_tree_device(&s, NULL), ORDO_OK);
    CHECK_INT(passes->sum, 1); /* nothing to launch */
}

CHECK_MAIN()
