/* device.c: the public functions about devices: each asks the CUDA module. */
#include "ordo/device.h"

#include "api/cuda_module.h"
#include "base/environment.h"
#include "base/machine.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the module has answered, with its reason. */
static ordo_status answer(const ordo_cuda_module *module, ordo_status status)
{
    return status == ORDO_OK ? ORDO_OK : ordo_fail(status, "%s", module->why());
}

/* Refuses NULL for memory that is read or written, where there are any bytes. */
static ordo_status nothing_there(const char *name, size_t bytes)
{
    return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected %zu bytes of memory", name, bytes);
}

static ordo_status no_event(const char *name)
{
    return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected an event", name);
}

/* ---- which there are ---- */

ordo_status ordo_device_count(int *count, const char **path)
{
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_check_pointer("count", count));
    *count = 0;
    if (path)
        *path = NULL;
    ORDO_TRY(ordo_cuda_module_get(&module, path));
    return answer(module, module->device_count(count));
}

ordo_status ordo_device_query(int index, ordo_device *device)
{
    ORDO_DEFAULT_ENVIRONMENT;
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_check_pointer("device", device));
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->device_query(index, device));
}

/* Built-in machines by what the driver calls their parts, and by compute capability for parts
 * that have no machine file: there the first row is taken. */
static const struct {
    const char *part, *machine;
    int capability;
} files[] = {
    { "H200", "h200", 90 }, { "H100", "h100", 90 },  { "H800", "h800", 90 },
    { "A100", "a100", 80 }, { "B200", "b200", 100 },
};
enum { FILES = sizeof files / sizeof files[0] };

static const char *file_of(const ordo_device *device)
{
    const int capability = 10 * device->major + device->minor;
    for (int i = 0; i < FILES; i++)
        if (files[i].capability == capability && strstr(device->name, files[i].part))
            return files[i].machine;
    for (int i = 0; i < FILES; i++)
        if (files[i].capability == capability)
            return files[i].machine;
    return NULL;
}

ordo_status ordo_device_machine(int index, ordo_machine **machine)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_device device;
    ORDO_TRY(ordo_check_pointer("machine", machine));
    *machine = NULL;
    ORDO_TRY(ordo_device_query(index, &device));
    const char *file = file_of(&device);
    if (!file)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "device %d, %.100s: no built-in machine has compute capability %d.%d",
                         index, device.name, device.major, device.minor);
    char *source = strdup("read from the device");
    if (!source)
        return ordo_fail(ORDO_ERR_MEMORY, "machine: out of memory");
    const ordo_status status = ordo_machine_create(machine, file);
    if (status != ORDO_OK) {
        free(source);
        return status;
    }
    ordo_machine_entry *workers =
        &(*machine)->entries[ordo_machine_range_find("workers", strlen("workers"))];
    free(workers->source);
    *workers = (ordo_machine_entry) { device.workers, source };
    snprintf((*machine)->title, sizeof(*machine)->title, "%.*s", ORDO_MACHINE_TITLE_MAX,
             device.name);
    return ORDO_OK;
}

/* ---- memory ---- */

ordo_status ordo_device_select(int index)
{
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->device_select(index));
}

ordo_status ordo_device_alloc(void **memory, size_t bytes)
{
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_check_pointer("memory", memory));
    *memory = NULL;
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->alloc(memory, bytes));
}

ordo_status ordo_device_free(void *memory)
{
    const ordo_cuda_module *module = NULL;
    if (!memory)
        return ORDO_OK;
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->free(memory));
}

ordo_status ordo_device_copy(void *to, const void *from, size_t bytes, void *stream)
{
    const ordo_cuda_module *module = NULL;
    if ((!to || !from) && bytes > 0)
        return nothing_there(to ? "from" : "to", bytes);
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->copy(to, from, bytes, stream));
}

ordo_status ordo_device_fill(void *memory, int byte, size_t bytes, void *stream)
{
    const ordo_cuda_module *module = NULL;
    if (!memory && bytes > 0)
        return nothing_there("memory", bytes);
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->fill(memory, byte, bytes, stream));
}

ordo_status ordo_device_equal(const void *a, const void *b, size_t bytes, void *stream, bool *equal)
{
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_check_pointer("equal", equal));
    *equal = false;
    if ((!a || !b) && bytes > 0)
        return nothing_there(a ? "b" : "a", bytes);
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->equal(a, b, bytes, stream, equal));
}

/* ---- streams and events ---- */

ordo_status ordo_device_stream_create(void **stream)
{
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_check_pointer("stream", stream));
    *stream = NULL;
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->stream_create(stream));
}

ordo_status ordo_device_stream_destroy(void *stream)
{
    const ordo_cuda_module *module = NULL;
    if (!stream)
        return ORDO_OK;
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->stream_destroy(stream));
}

ordo_status ordo_device_synchronise(void *stream)
{
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->synchronise(stream));
}

ordo_status ordo_device_event_create(void **event)
{
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_check_pointer("event", event));
    *event = NULL;
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->event_create(event));
}

ordo_status ordo_device_event_destroy(void *event)
{
    const ordo_cuda_module *module = NULL;
    if (!event)
        return ORDO_OK;
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->event_destroy(event));
}

ordo_status ordo_device_event_record(void *event, void *stream)
{
    const ordo_cuda_module *module = NULL;
    if (!event)
        return no_event("event");
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->event_record(event, stream));
}

ordo_status ordo_device_event_elapsed(void *from, void *to, double *seconds)
{
    ORDO_DEFAULT_ENVIRONMENT;
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_check_pointer("seconds", seconds));
    *seconds = 0;
    if (!from || !to)
        return no_event(from ? "to" : "from");
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    return answer(module, module->event_elapsed(from, to, seconds));
}
