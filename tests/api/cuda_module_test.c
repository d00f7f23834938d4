/* cuda_module_test.c: the CUDA module is found, or the reason says why not.
 *
 * A process loads the module once, so each case runs in a child of its own. */
#include "api/cuda_module.h"
#include "base/status.h"
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

typedef struct outcome {
    ordo_status status, again; /* of two calls in one process */
    int count;
    char path[1024], why[512], why_again[512];
} outcome;

/* Count devices in a child whose ORDO_CUDA_MODULE is `module`; NULL unsets it. */
static outcome count_devices(const char *module)
{
    outcome o;
    memset(&o, 0, sizeof o);
    o.status = ORDO_ERR_INTERNAL;
    int ends[2];
    if (pipe(ends) != 0)
        return o;
    const pid_t child = fork();
    if (child == 0) {
        const char *path = NULL;
        if (module)
            setenv("ORDO_CUDA_MODULE", module, 1);
        else
            unsetenv("ORDO_CUDA_MODULE");
        o.status = ordo_device_count(&o.count, &path);
        snprintf(o.path, sizeof o.path, "%s", path ? path : "");
        snprintf(o.why, sizeof o.why, "%s", o.status ? ordo_last_error() : "");
        (void)ordo_fail(ORDO_ERR_INTERNAL, "something else");
        o.again = ordo_device_count(&o.count, NULL);
        snprintf(o.why_again, sizeof o.why_again, "%s", o.again ? ordo_last_error() : "");
        _exit(write(ends[1], &o, sizeof o) == (ssize_t)sizeof o ? 0 : 1);
    }
    close(ends[1]);
    CHECK_INT(read(ends[0], &o, sizeof o), sizeof o);
    close(ends[0]);
    waitpid(child, NULL, 0);
    CHECK_INT(o.again, o.status);
    CHECK_TEXT(o.why_again, o.why);
    return o;
}

/* build/PART, or NULL outside CTest. */
static const char *in_build(const char *part)
{
    static char path[4096];
    const char *build = getenv("ORDO_BUILD");
    snprintf(path, sizeof path, "%s/%s", build ? build : "", part);
    return build ? path : NULL;
}

TEST(a_missing_file_is_named)
{
    const outcome o = count_devices("/no/such/module.so");
    CHECK_INT(o.status, ORDO_ERR_UNSUPPORTED);
    CHECK_HAS(o.why, "/no/such/module.so");
    CHECK_TEXT(o.path, "");
}

TEST(a_file_that_is_no_library_is_refused)
{
    const outcome o = count_devices("/etc/passwd");
    CHECK_INT(o.status, ORDO_ERR_UNSUPPORTED);
    CHECK_HAS(o.why, "/etc/passwd");
}

TEST(a_library_that_is_no_module_is_refused)
{
    const char *module = in_build("tests/api/no_entry_module.so");
    if (!module)
        SKIP("ORDO_BUILD is not set");
    const outcome o = count_devices(module);
    CHECK_INT(o.status, ORDO_ERR_UNSUPPORTED);
    CHECK_HAS(o.why, "no symbol ordo_cuda_module_table");
}

TEST(a_module_of_another_version_is_refused)
{
    const char *module = in_build("tests/api/wrong_abi_module.so");
    if (!module)
        SKIP("ORDO_BUILD is not set");
    const outcome o = count_devices(module);
    CHECK_INT(o.status, ORDO_ERR_UNSUPPORTED);
    CHECK_HAS(o.why, "interface 7 of 8 bytes, expected 6");
}

TEST(a_module_with_other_passes_is_refused)
{
    const char *module = in_build("tests/api/wrong_pass_module.so");
    char says[64];
    if (!module)
        SKIP("ORDO_BUILD is not set");
    const outcome o = count_devices(module);
    snprintf(says, sizeof says, "passes of %zu bytes, expected %zu", sizeof(ordo_cuda_pass) + 8,
             sizeof(ordo_cuda_pass));
    CHECK_INT(o.status, ORDO_ERR_UNSUPPORTED);
    CHECK_HAS(o.why, says);
}

/* This program is linked statically and has no module beside it. */
TEST(the_places_looked_at_are_named)
{
    const outcome o = count_devices(NULL);
    CHECK_INT(o.status, ORDO_ERR_UNSUPPORTED);
    CHECK_HAS(o.why, "/libordo_cuda.so");
    CHECK_HAS(o.why, "/../lib/libordo_cuda.so");
}

TEST(null_arguments_are_refused)
{
    CHECK_INT(ordo_device_count(NULL, NULL), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_device_query(0, NULL), ORDO_ERR_ARGUMENT);
}

static const char *real_module(void)
{
    const char *module = in_build("lib/libordo_cuda.so");
    return module && access(module, F_OK) == 0 ? module : NULL;
}

TEST(the_real_module_counts_devices_or_says_why_not)
{
    const char *module = real_module();
    if (!module)
        SKIP("the CUDA module was not built");
    const outcome o = count_devices(module);
    CHECK_TEXT(o.path, module);
    if (o.status == ORDO_OK) {
        CHECK(o.count >= 1);
    } else {
        CHECK_INT(o.status, ORDO_ERR_DEVICE);
        CHECK(o.why[0] != '\0');
        printf("  %s\n", o.why);
    }
}

/* Last: it loads the module into this process. */
TEST(a_device_describes_itself_and_runs_a_kernel)
{
    const char *path = real_module();
    if (!path)
        SKIP("the CUDA module was not built");
    setenv("ORDO_CUDA_MODULE", path, 1);
    int count = 0;
    if (ordo_device_count(&count, NULL) != ORDO_OK)
        SKIP("no CUDA device");
    const ordo_cuda_module *module = NULL;
    CHECK_INT(ordo_cuda_module_get(&module, NULL), ORDO_OK);
    for (int i = 0; i < count; i++) {
        ordo_device device;
        CHECK_INT(ordo_device_query(i, &device), ORDO_OK);
        printf("  device %d: %s, sm_%d%d, %d workers at %.2f GHz\n", i, device.name, device.major,
               device.minor, device.workers, device.clock_ghz);
        CHECK(device.name[0] != '\0');
        CHECK(device.workers > 0 && device.memory_bytes > 0 && device.clock_ghz > 0);
        char why[256] = "";
        const ordo_status expected = device.major == 9 ? ORDO_OK : ORDO_ERR_DEVICE;
        CHECK_INT(module->device_check(i, why, sizeof why), expected);
        CHECK(expected != ORDO_OK || why[0] == '\0');
    }
    ordo_device none;
    CHECK_INT(ordo_device_query(count, &none), ORDO_ERR_ARGUMENT);
    CHECK_HAS(ordo_last_error(), "expected 0 to");
}

CHECK_MAIN(RUN(a_missing_file_is_named), RUN(a_file_that_is_no_library_is_refused),
           RUN(a_library_that_is_no_module_is_refused), RUN(a_module_of_another_version_is_refused),
           RUN(a_module_with_other_passes_is_refused), RUN(the_places_looked_at_are_named),
           RUN(null_arguments_are_refused), RUN(the_real_module_counts_devices_or_says_why_not),
           RUN(a_device_describes_itself_and_runs_a_kernel))
