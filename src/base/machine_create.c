/* machine_create.c: machines by name or path: those built in, the host, files. */
#include "base/environment.h"
#include "base/machine.h"
#include "base/machine_files.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All of a file, at most one byte more than a machine file may have; the parser refuses
 * that byte. Reading rather than asking for the size also serves pipes. */
static ordo_status read_file(const char *path, char **text, size_t *length)
{
    const size_t capacity = (size_t)ORDO_MACHINE_FILE_MAX + 1;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return ordo_fail(ORDO_ERR_FILE, "%s: %s", path, strerror(errno));
    *text = malloc(capacity);
    if (*text == NULL) {
        fclose(file);
        return ordo_fail(ORDO_ERR_MEMORY, "%s: no memory for %zu bytes", path, capacity);
    }
    errno = 0;
    *length = fread(*text, 1, capacity, file);
    const bool failed = ferror(file) != 0; /* a directory opens, but does not read */
    const int why = errno;
    fclose(file);
    if (failed) {
        free(*text);
        *text = NULL;
        return ordo_fail(ORDO_ERR_FILE, "%s: %s", path, strerror(why));
    }
    return ORDO_OK;
}

static ordo_status from_file(ordo_machine **machine, const char *path)
{
    char *text = NULL;
    size_t length = 0;
    ORDO_TRY(read_file(path, &text, &length));
    const ordo_status status = ordo_machine_parse(machine, text, length, path);
    free(text);
    return status;
}

static ordo_status from_host(ordo_machine **machine)
{
    char text[8192];
    const size_t length = ordo_machine_probe(text, sizeof text, "");
    if (length >= sizeof text)
        return ordo_fail(ORDO_ERR_INTERNAL, "machine \"host\": %zu bytes of probe", length);
    return ordo_machine_parse(machine, text, length, "host");
}

static ordo_status unknown(const char *name)
{
    char known[256] = "";
    size_t used = 0;
    const char *builtin;
    for (size_t i = 0; (builtin = ordo_machine_builtin(i)) != NULL && used < sizeof known; i++) {
        const int n =
            snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", builtin);
        used += n > 0 ? (size_t)n : 0;
    }
    return ordo_fail(ORDO_ERR_ARGUMENT,
                     "machine \"%.60s\" is unknown; known are %s, or give a path (with a '/' or "
                     "a '.')",
                     name, known);
}

ordo_status ordo_machine_create(ordo_machine **machine, const char *name_or_path)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("machine", machine));
    *machine = NULL;
    ORDO_TRY(ordo_check_pointer("name_or_path", name_or_path));
    if (strpbrk(name_or_path, "/.") != NULL)
        return from_file(machine, name_or_path);
    if (strcmp(name_or_path, "host") == 0)
        return from_host(machine);
    for (const ordo_machine_file *f = ordo_machine_files; f->name != NULL; f++)
        if (strcmp(name_or_path, f->name) == 0) {
            char label[64];
            snprintf(label, sizeof label, "%s.machine", f->name);
            return ordo_machine_parse(machine, f->text, strlen(f->text), label);
        }
    return unknown(name_or_path);
}

const char *ordo_machine_builtin(size_t index)
{
    size_t files = 0;
    while (ordo_machine_files[files].name != NULL)
        files++;
    if (index < files)
        return ordo_machine_files[index].name;
    return index == files ? "host" : NULL;
}
