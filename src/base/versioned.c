/* versioned.c: copy argument structs of other versions. */
#include "base/versioned.h"

#include "base/status.h"

#include <string.h>

/* No argument struct comes near this; a larger size is a variable that was never set. */
enum { LARGEST = 4096 };

/* Read the size of a caller's struct. One that ends within a field is no version of it. */
static ordo_status read_size(const void *caller, const ordo_struct *kind, size_t *size)
{
    memcpy(size, caller, sizeof *size);
    if (*size < sizeof *size || *size > LARGEST || *size % sizeof *size != 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s.size %zu: expected %zu; initialise with %s",
                         kind->name, *size, kind->size, kind->init);
    for (const ordo_nested *field = kind->nested; field && field->name; field++)
        if (*size > field->begin && *size < field->end)
            return ordo_fail(ORDO_ERR_ARGUMENT,
                             "%s.size %zu: ends within %s; expected %zu, initialise with %s",
                             kind->name, *size, field->name, kind->size, kind->init);
    return ORDO_OK;
}

ordo_status ordo_versioned_copy(void *to, const void *from, const ordo_struct *kind)
{
    const size_t known = kind->size;
    const unsigned char *bytes = from;
    size_t size;
    ORDO_TRY(read_size(from, kind, &size));
    for (size_t i = known; i < size; i++)
        if (bytes[i] != 0)
            return ordo_fail(ORDO_ERR_UNSUPPORTED,
                             "%s.size %zu: this library knows %zu bytes, and byte %zu is not zero",
                             kind->name, size, known, i);
    memset(to, 0, known);
    memcpy(to, from, size < known ? size : known);
    memcpy(to, &known, sizeof known);
    return ORDO_OK;
}

ordo_status ordo_versioned_answer(void *to, const void *from, const ordo_struct *kind)
{
    size_t size;
    ORDO_TRY(read_size(to, kind, &size));
    memset(to, 0, size);
    memcpy(to, from, size < kind->size ? size : kind->size);
    memcpy(to, &size, sizeof size);
    return ORDO_OK;
}
