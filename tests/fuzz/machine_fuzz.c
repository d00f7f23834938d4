/* machine_fuzz.c: any bytes as a machine file. Either a message, or a machine whose every
 * given value is inside its key's range and has a source. */
#include "base/machine.h"
#include "ordo/status.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ordo_machine *machine = NULL;
    const ordo_status status = ordo_machine_parse(&machine, (const char *)data, size, "fuzz");
    if (status != ORDO_OK) {
        if (machine != NULL || strncmp(ordo_last_error(), "fuzz:", 5) != 0)
            abort();
        return 0;
    }
    for (size_t i = 0; i < ordo_machine_key_count(); i++) {
        const ordo_machine_range *range = ordo_machine_range_at(i);
        double value = -1;
        const bool stated = ordo_machine_get(machine, range->key.name, &value) == ORDO_OK;
        if (stated != (ordo_machine_source(machine, range->key.name) != NULL))
            abort();
        if (stated && !(value >= range->min && value <= range->max))
            abort();
    }
    if (strlen(ordo_machine_name(machine)) == 0 || strlen(ordo_machine_title(machine)) == 0)
        abort();
    ordo_machine_destroy(machine);
    return 0;
}
