/* unload_thread_test.c: a program may close libordo.so although the pool's threads, which live on,
 * run and sleep in its code. */
#include "check.h"
#include "ordo/sum.h"

#include <dlfcn.h>

enum { ROUNDS = 3, THREADS = 4, ELEMENTS = 1 << 20 };

static float a[ELEMENTS], b[ELEMENTS], out[ELEMENTS];

/* Open the library, add on several threads, close it again; false if that was not possible. */
static bool use_once(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "ordo_sum_tree") : NULL;
    if (!symbol) {
        printf("  %s\n", dlerror());
        return false;
    }
    ordo_status (*add)(const ordo_sum *sum); /* C has no cast from an object to a function */
    memcpy(&add, &symbol, sizeof add);
    const void *inputs[] = { a, b };
    ordo_sum sum = ORDO_SUM_INIT;
    sum.threads = THREADS;
    sum.count = 2;
    sum.elements = ELEMENTS;
    sum.inputs = inputs;
    sum.out = out;
    const ordo_status status = add(&sum);
    return dlclose(library) == 0 && status == ORDO_OK && out[ELEMENTS - 1] == 3;
}

TEST(the_library_stays_loaded_when_it_is_closed)
{
    const char *build = getenv("ORDO_BUILD");
    char path[4096];
    if (!build)
        SKIP("ORDO_BUILD is not set");
    snprintf(path, sizeof path, "%s/lib/libordo.so", build);
    for (int x = 0; x < ELEMENTS; x++) {
        a[x] = 1;
        b[x] = 2;
    }
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(use_once(path));
        void *still = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        CHECK(still != NULL && dlclose(still) == 0);
    }
}

CHECK_MAIN()
