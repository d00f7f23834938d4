/* cuda_module_test.c: the CUDA module is found, or the reason says why not.
 *
 * A process loads the module once, so each case runs in a child of its own. */
#include "api/cuda_module.h"
#include "base/status.h"
#include "check.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct outcome {
    ordo_status status, again; /* first and second call in one process */
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

TEST(what_is_no_module_is_refused_by_name)
{
    char passes[64], abi[64];
    snprintf(abi, sizeof abi, "interface %d of 8 bytes, expected %d", ORDO_CUDA_MODULE_ABI + 1,
             ORDO_CUDA_MODULE_ABI);
    snprintf(passes, sizeof passes, "passes of %zu bytes, expected %zu", sizeof(ordo_cuda_pass) + 8,
             sizeof(ordo_cuda_pass));
    const struct {
        const char *file, *says;
        bool built;
    } rows[] = {
        { "/no/such/module.so", "/no/such/module.so", false },
        { "/etc/passwd", "/etc/passwd", false },
        { "tests/api/no_entry_module.so", "no symbol ordo_cuda_module_table", true },
        { "tests/api/wrong_abi_module.so", abi, true },
        { "tests/api/wrong_pass_module.so", passes, true },
    };
    for (size_t x = 0; x < sizeof rows / sizeof rows[0]; x++) {
        const char *module = rows[x].built ? in_build(rows[x].file) : rows[x].file;
        if (!module)
            SKIP("ORDO_BUILD is not set");
        const outcome o = count_devices(module);
        CHECK_INT(o.status, ORDO_ERR_UNSUPPORTED);
        CHECK_HAS(o.why, rows[x].says);
        CHECK_TEXT(o.path, "");
    }
}

/* ---- where the module is looked for ---- */

/* A folder with links libordo_cuda.so to a module of tests/api, and libordo.so to the library. */
static bool plant(char *folder, size_t size, const char *module)
{
    char path[4096];
    snprintf(folder, size, "%s", "/tmp/ordo-module-XXXXXX");
    if (!mkdtemp(folder))
        return false;
    snprintf(path, sizeof path, "%s/libordo_cuda.so", folder);
    if (symlink(in_build(module), path) != 0)
        return false;
    snprintf(path, sizeof path, "%s/libordo.so", folder);
    return symlink(in_build("lib/libordo.so"), path) == 0;
}

static void uproot(const char *folder)
{
    static const char *const names[] = { "libordo_cuda.so", "libordo.so" };
    char path[4096];
    for (int x = 0; x < 2; x++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[x]);
        CHECK_INT(unlink(path), 0);
    }
    CHECK_INT(rmdir(folder), 0);
}

/* In a child: this program, or the library of the folder it was loaded from, counts devices after
 * chdir(). The status and the path of the module are printed. */
static int count_elsewhere(const char *loaded_from, const char *folder)
{
    const char *path = NULL;
    int count = 0;
    ordo_status (*ask)(int *count, const char **path) = ordo_device_count;
    if (strcmp(loaded_from, "program") != 0) {
        void *library = chdir(loaded_from) == 0 ? dlopen("./libordo.so", RTLD_NOW) : NULL;
        void *symbol = library ? dlsym(library, "ordo_device_count") : NULL;
        if (!symbol)
            return 1;
        memcpy(&ask, &symbol, sizeof ask); /* C has no cast from an object to a function */
    }
    if (chdir(folder) != 0)
        return 1;
    const ordo_status status = ask(&count, &path);
    printf("%d %s\n", (int)status, path ? path : "");
    return 0;
}

/* Start this program as ./NAME from its own folder, with the arguments; text = what it prints. */
static void start_again(const char *name, const char *loaded_from, const char *folder, char *text,
                        size_t size)
{
    char own[4096];
    int ends[2];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = 0;
    char *slash = strrchr(own, '/');
    text[0] = 0;
    CHECK(slash != NULL && pipe(ends) == 0);
    if (!slash)
        return;
    const pid_t child = fork();
    if (child == 0) {
        char program[4096];
        snprintf(program, sizeof program, "./%s", slash + 1);
        *slash = 0;
        unsetenv("ORDO_CUDA_MODULE");
        if (chdir(own) == 0 && dup2(ends[1], STDOUT_FILENO) >= 0)
            execl(program, name ? name : program, loaded_from, folder, (char *)NULL);
        _exit(9);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], text, size - 1);
    text[got > 0 ? got : 0] = 0;
    close(ends[0]);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Neither ./libordo_cuda.so of a folder entered later, nor the one beside the name that the caller
 * gave the program, belongs to a program that is linked statically. */
TEST(a_static_program_takes_no_module_of_the_current_folder)
{
    char folder[64], name[4096], text[4096], none[16];
    if (!in_build(""))
        SKIP("ORDO_BUILD is not set");
    CHECK(plant(folder, sizeof folder, "tests/api/fake_module.so"));
    snprintf(none, sizeof none, "%d \n", ORDO_ERR_UNSUPPORTED);
    start_again(NULL, "program", folder, text, sizeof text);
    CHECK_TEXT(text, none);
    snprintf(name, sizeof name, "%s/program", folder);
    start_again(name, "program", "/", text, sizeof text);
    CHECK_TEXT(text, none);
    uproot(folder);
}

/* A library that was found through a relative path stays the one of that folder. */
TEST(a_library_takes_the_module_beside_it_after_chdir)
{
    char folder[64], other[64], text[4096], expected[4096];
    if (!in_build(""))
        SKIP("ORDO_BUILD is not set");
    CHECK(plant(folder, sizeof folder, "tests/api/fake_module.so"));
    CHECK(plant(other, sizeof other, "tests/api/wrong_abi_module.so"));
    start_again(NULL, folder, other, text, sizeof text);
    snprintf(expected, sizeof expected, "%s/./libordo_cuda.so\n", folder);
    CHECK_HAS(text, "0 /");
    CHECK_HAS(text, expected);
    uproot(folder);
    uproot(other);
}

/* The path that is reported serves from every folder. */
TEST(a_module_named_by_a_relative_path_is_reported_absolute)
{
    const char *build = in_build("");
    char folder[4096];
    if (!build || chdir(build) != 0)
        SKIP("ORDO_BUILD is not set");
    const outcome o = count_devices("tests/api/fake_module.so");
    CHECK_INT(o.status, ORDO_OK);
    CHECK(getcwd(folder, sizeof folder) != NULL);
    CHECK_HAS(o.path, folder);
    CHECK_HAS(o.path, "/tests/api/fake_module.so");
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
        const ordo_status expected = device.major == 9 ? ORDO_OK : ORDO_ERR_DEVICE;
        CHECK_INT(module->device_check(i), expected);
    }
    ordo_device none;
    CHECK_REFUSED(ordo_device_query(count, &none), ORDO_ERR_ARGUMENT, "expected 0 to");
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        const int status = count_elsewhere(argv[1], argv[2]);
        fflush(stdout);
        _exit(status); /* without the sanitizer's search for leaks, which takes seconds */
    }
    return check_run();
}
