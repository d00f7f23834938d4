/* versioned.c: copy argument structs of other versions. */
#include "base/versioned.h"

#include "base/status.h"

#include <string.h>

/* No argument struct comes near this; a larger size is a variable never set. */
enum { LARGEST = 4096 };

ordo_status ordo_versioned_copy(void *to, size_t known, const void *from, const char *what,
                                const char *init)
{
    size_t size;
    memcpy(&size, from, sizeof size);
    if (size < sizeof size || size > LARGEST)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s.size %zu: expected %zu; initialise with %s", what,
                         size, known, init);

    const unsigned char *bytes = from;
    for (size_t i = known; i < size; i++)
        if (bytes[i] != 0)
            return ordo_fail(ORDO_ERR_UNSUPPORTED,
                             "%s.size %zu: this library knows %zu bytes, and byte %zu is not zero",
                             what, size, known, i);

    memset(to, 0, known);
    memcpy(to, from, size < known ? size : known);
    memcpy(to, &known, sizeof known);
    return ORDO_OK;
}
