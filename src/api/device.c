/* device.c: the public functions about devices: each asks the CUDA module. */
#include "ordo/device.h"

#include "api/cuda_module.h"
#include "base/environment.h"
#include "base/machine.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A question to the module, and what it says if it refuses. */
typedef struct question {
    const ordo_cuda_module *module;
    char why[ORDO_CUDA_WHY_SIZE];
} question;

static ordo_status ask(question *q)
{
    q->module = NULL;
    q->why[0] = 0;
    return ordo_cuda_module_get(&q->module, NULL);
}

static ordo_status answer(const question *q, ordo_status status)
{
    return status == ORDO_OK ? ORDO_OK : ordo_fail(status, "%s", q->why);
}

static ordo_status missing(const char *name)
{
    return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected a pointer to write to", name);
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
    question q = { .why = "" };
    if (!count)
        return missing("count");
    *count = 0;
    if (path)
        *path = NULL;
    ORDO_TRY(ordo_cuda_module_get(&q.module, path));
    return answer(&q, q.module->device_count(count, q.why, sizeof q.why));
}

ordo_status ordo_device_query(int index, ordo_device *device)
{
    ORDO_DEFAULT_ENVIRONMENT;
    question q;
    if (!device)
        return missing("device");
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->device_query(index, device, q.why, sizeof q.why));
}

/* Built-in machines by what the driver calls their parts, and by compute capability for parts
 * that have no file of their own: there the first row is taken. */
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
    if (!machine)
        return missing("machine");
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
    question q;
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->device_select(index, q.why, sizeof q.why));
}

ordo_status ordo_device_alloc(void **memory, size_t bytes)
{
    question q;
    if (!memory)
        return missing("memory");
    *memory = NULL;
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->alloc(memory, bytes, q.why, sizeof q.why));
}

ordo_status ordo_device_free(void *memory)
{
    question q;
    if (!memory)
        return ORDO_OK;
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->free(memory, q.why, sizeof q.why));
}

ordo_status ordo_device_copy(void *to, const void *from, size_t bytes, void *stream)
{
    question q;
    if ((!to || !from) && bytes > 0)
        return nothing_there(to ? "from" : "to", bytes);
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->copy(to, from, bytes, stream, q.why, sizeof q.why));
}

ordo_status ordo_device_fill(void *memory, int byte, size_t bytes, void *stream)
{
    question q;
    if (!memory && bytes > 0)
        return nothing_there("memory", bytes);
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->fill(memory, byte, bytes, stream, q.why, sizeof q.why));
}

ordo_status ordo_device_equal(const void *a, const void *b, size_t bytes, void *stream, bool *equal)
{
    question q;
    if (!equal)
        return missing("equal");
    *equal = false;
    if ((!a || !b) && bytes > 0)
        return nothing_there(a ? "b" : "a", bytes);
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->equal(a, b, bytes, stream, equal, q.why, sizeof q.why));
}

/* ---- streams and events ---- */

ordo_status ordo_device_stream_create(void **stream)
{
    question q;
    if (!stream)
        return missing("stream");
    *stream = NULL;
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->stream_create(stream, q.why, sizeof q.why));
}

ordo_status ordo_device_stream_destroy(void *stream)
{
    question q;
    if (!stream)
        return ORDO_OK;
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->stream_destroy(stream, q.why, sizeof q.why));
}

ordo_status ordo_device_synchronise(void *stream)
{
    question q;
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->synchronise(stream, q.why, sizeof q.why));
}

ordo_status ordo_device_event_create(void **event)
{
    question q;
    if (!event)
        return missing("event");
    *event = NULL;
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->event_create(event, q.why, sizeof q.why));
}

ordo_status ordo_device_event_destroy(void *event)
{
    question q;
    if (!event)
        return ORDO_OK;
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->event_destroy(event, q.why, sizeof q.why));
}

ordo_status ordo_device_event_record(void *event, void *stream)
{
    question q;
    if (!event)
        return no_event("event");
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->event_record(event, stream, q.why, sizeof q.why));
}

ordo_status ordo_device_event_elapsed(void *from, void *to, double *seconds)
{
    ORDO_DEFAULT_ENVIRONMENT;
    question q;
    if (!seconds)
        return missing("seconds");
    *seconds = 0;
    if (!from || !to)
        return no_event(from ? "to" : "from");
    ORDO_TRY(ask(&q));
    return answer(&q, q.module->event_elapsed(from, to, seconds, q.why, sizeof q.why));
}
