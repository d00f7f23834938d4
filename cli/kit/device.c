/* device.c: the device that `--device cuda` means. */
#include "kit/device.h"

#include "ordo/ordo.h"

int cli_device_find(void)
{
    ordo_device device;
    int count = 0;
    if (ordo_device_count(&count, NULL) != ORDO_OK)
        return -1;
    for (int i = 0; i < count; i++)
        if (ordo_device_query(i, &device) == ORDO_OK && device.major == 9 && device.minor == 0)
            return i;
    return -1;
}
