/* cuda_module.c: find and load libordo_cuda.so.
 *
 * The outcome of the one attempt is cached: every later call gets the same table, or the same
 * status and message. The module stays loaded, for the CUDA runtime cannot be unloaded.
 *
 * The places of the search do not depend on the current folder, which may belong to anybody by
 * then, nor on the name by which the program was started. */
#define _GNU_SOURCE /* dladdr1, dlinfo, secure_getenv */
#include "api/cuda_module.h"

#include "base/environment.h"
#include "base/status.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const ordo_cuda_module *loaded; /* NULL if there is none: then `reason` says why */
static char loaded_path[PATH_MAX];
static char reason[ORDO_CUDA_WHY_SIZE];
static char self[PATH_MAX]; /* the file of libordo; "" if that is the program */

/* Whether the table and what goes through it are what this library was built with; else why not. */
static bool fits(const ordo_cuda_module *table, const char *path)
{
    if (table->abi != ORDO_CUDA_MODULE_ABI || table->size < sizeof *table) {
        snprintf(reason, sizeof reason,
                 "CUDA module %s: interface %u of %u bytes, expected %d of at least %zu", path,
                 table->abi, table->size, ORDO_CUDA_MODULE_ABI, sizeof *table);
        return false;
    }
    const struct {
        const char *what;
        uint32_t size;
        size_t expected;
    } structs[] = { { "passes", table->pass_size, sizeof(ordo_cuda_pass) },
                    { "pages", table->pages_size, sizeof(ordo_cuda_pages) },
                    { "keep bits", table->bits_size, sizeof(ordo_cuda_bits) },
                    { "combinations", table->combine_size, sizeof(ordo_cuda_combine) },
                    { "matrix products", table->gemm_size, sizeof(ordo_cuda_gemm) } };
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++)
        if (structs[i].size != structs[i].expected) {
            snprintf(reason, sizeof reason, "CUDA module %s: %s of %u bytes, expected %zu", path,
                     structs[i].what, structs[i].size, structs[i].expected);
            return false;
        }
    return true;
}

/* path = `file` as seen from the current folder; "" if that does not fit or has no name. */
static void make_absolute(char *path, const char *file)
{
    char folder[PATH_MAX];
    int length = PATH_MAX;
    if (file[0] == '/')
        length = snprintf(path, PATH_MAX, "%s", file);
    else if (getcwd(folder, sizeof folder) && folder[0] == '/')
        length = snprintf(path, PATH_MAX, "%s/%s", folder, file);
    if (length >= PATH_MAX)
        path[0] = 0;
}

/* A library found through a relative path is one of the current folder at load time. The loader has
 * no name for the program, and the one of dladdr() is what its caller chose. */
__attribute__((constructor)) static void find_self(void)
{
    Dl_info info;
    void *found = NULL;
    if (!dladdr1(&once, &info, &found, RTLD_DL_LINKMAP))
        return;
    const struct link_map *map = found;
    if (map->l_name[0])
        make_absolute(self, map->l_name);
}

/* Take the table out of the library at `path`, or write why not. */
static void load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(reason, sizeof reason, "CUDA module: %s", dlerror());
        return;
    }
    void *symbol = dlsym(library, ORDO_CUDA_MODULE_ENTRY);
    if (!symbol) {
        snprintf(reason, sizeof reason, "CUDA module %s: no symbol " ORDO_CUDA_MODULE_ENTRY, path);
        dlclose(library);
        return;
    }
    ordo_cuda_module_entry entry; /* C has no cast from an object to a function */
    memcpy(&entry, &symbol, sizeof entry);
    const ordo_cuda_module *table = entry();
    if (!fits(table, path)) {
        dlclose(library);
        return;
    }
    struct link_map *map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
        make_absolute(loaded_path, map->l_name);
    loaded = table;
}

/* path = the folder of `file`, then `tail`; false if that does not fit. */
static bool beside(char *path, const char *file, const char *tail)
{
    const char *slash = strrchr(file, '/');
    const int folder = slash ? (int)(slash - file) : 0;
    const int length = snprintf(path, PATH_MAX, "%.*s/%s", folder, file, tail);
    return slash && length < PATH_MAX;
}

/* Load `path` if it exists; else add it to the places tried. True ends the search. */
static bool attempt(const char *path, char *tried, size_t tried_size)
{
    if (access(path, F_OK) == 0) {
        load(path);
        return true;
    }
    if (strstr(tried, path))
        return false;
    const size_t used = strlen(tried);
    snprintf(tried + used, tried_size - used, "%s%s", used ? ", " : "", path);
    return false;
}

static void search(void)
{
    ORDO_DEFAULT_ENVIRONMENT; /* no cancellation between a library and its table */
    const char *named = secure_getenv("ORDO_CUDA_MODULE");
    if (named && *named) {
        load(named);
        return;
    }
    char tried[ORDO_CUDA_WHY_SIZE - 40] = "", path[PATH_MAX], program[PATH_MAX];
    if (beside(path, self, "libordo_cuda.so") && attempt(path, tried, sizeof tried))
        return;
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) {
        program[length] = 0;
        if (beside(path, program, "libordo_cuda.so") && attempt(path, tried, sizeof tried))
            return;
        if (beside(path, program, "../lib/libordo_cuda.so") && attempt(path, tried, sizeof tried))
            return;
    }
    snprintf(reason, sizeof reason, "no CUDA module; looked for %s", tried);
}

ordo_status ordo_cuda_answer(const ordo_cuda_module *module, ordo_status status)
{
    return status == ORDO_OK ? ORDO_OK : ordo_fail(status, "backend cuda: %s", module->why());
}

ordo_status ordo_cuda_module_get(const ordo_cuda_module **module, const char **path)
{
    pthread_once(&once, search);
    if (!loaded)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "%s", reason);
    *module = loaded;
    if (path)
        *path = loaded_path;
    return ORDO_OK;
}
