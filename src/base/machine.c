/* machine.c: what a machine answers. */
#include "base/machine.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

void ordo_machine_destroy(ordo_machine *machine)
{
    if (machine == NULL)
        return;
    for (size_t i = 0; i < ordo_machine_key_count(); i++)
        free(machine->entries[i].source);
    free(machine);
}

const char *ordo_machine_name(const ordo_machine *machine)
{
    return machine != NULL ? machine->name : "";
}

const char *ordo_machine_title(const ordo_machine *machine)
{
    return machine != NULL ? machine->title : "";
}

ordo_machine_family ordo_machine_family_of(const ordo_machine *machine)
{
    return machine != NULL ? machine->family : ORDO_MACHINE_CPU;
}

ordo_status ordo_machine_get(const ordo_machine *machine, const char *key, double *value)
{
    ORDO_TRY(ordo_check_pointer("machine", machine));
    ORDO_TRY(ordo_check_pointer("key", key));
    ORDO_TRY(ordo_check_pointer("value", value));
    const size_t index = ordo_machine_range_find(key, strlen(key));
    if (index == ordo_machine_key_count()) {
        const char *nearest = ordo_machine_nearest(key, strlen(key));
        if (nearest != NULL)
            return ordo_fail(ORDO_ERR_ARGUMENT, "key \"%.60s\" is unknown, did you mean \"%s\"?",
                             key, nearest);
        return ordo_fail(ORDO_ERR_ARGUMENT, "key \"%.60s\" is unknown", key);
    }
    if (machine->entries[index].source == NULL)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "machine \"%s\" does not give %s", machine->name,
                         key);
    *value = machine->entries[index].value;
    return ORDO_OK;
}

const char *ordo_machine_source(const ordo_machine *machine, const char *key)
{
    if (machine == NULL || key == NULL)
        return NULL;
    const size_t index = ordo_machine_range_find(key, strlen(key));
    return index < ordo_machine_key_count() ? machine->entries[index].source : NULL;
}
