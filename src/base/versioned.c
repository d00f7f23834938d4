/* versioned.c: copy argument structs of other versions. */
#include "base/versioned.h"

#include "base/status.h"
#include "ordo/attention.h"
#include "ordo/dropout.h"

#include <string.h>

/* No argument struct comes near this; a larger size is a variable never set. */
enum { LARGEST = 4096 };

/* Fields of libordo's structs that are structs themselves. */
#define CALL(field)    ORDO_NESTED(ORDO_CALL_INIT, ordo_call, field)
#define PROBLEM(field) ORDO_NESTED(ORDO_PROBLEM_INIT, ordo_problem, field)
#define OPTIONS(field) ORDO_NESTED(ORDO_PLAN_OPTIONS_INIT, ordo_plan_options, field)

static const ordo_nested structs[] = {
    CALL(q),
    CALL(k),
    CALL(v),
    CALL(o),
    CALL(dout),
    CALL(dq),
    CALL(dk),
    CALL(dv),
    PROBLEM(window),
    PROBLEM(dropout),
    PROBLEM(shard),
    OPTIONS(forward_tile),
    OPTIONS(backward_tile),
    ORDO_NESTED(ORDO_COMBINE_INIT, ordo_combine, o),
};

static ordo_status check_nested(size_t size, size_t known, const char *what, const char *init,
                                const ordo_nested *nested)
{
    if (size > nested->begin && size < nested->end && strcmp(nested->init, init) == 0)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "%s.size %zu: ends within %s; expected %zu, initialise with %s", what,
                         size, nested->field, known, init);
    return ORDO_OK;
}

/* A size that ends within a field is no version of the struct. */
static ordo_status check_size(size_t size, size_t known, const char *what, const char *init)
{
    if (size < sizeof size || size > LARGEST || size % sizeof size != 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s.size %zu: expected %zu; initialise with %s", what,
                         size, known, init);
    for (size_t i = 0; i < sizeof structs / sizeof structs[0]; i++)
        ORDO_TRY(check_nested(size, known, what, init, &structs[i]));
    return ORDO_OK;
}

ordo_status ordo_versioned_copy_nested(void *to, size_t known, const void *from, const char *what,
                                       const ordo_nested *nested)
{
    size_t size;
    memcpy(&size, from, sizeof size);
    ORDO_TRY(check_nested(size, known, what, nested->init, nested));
    return ordo_versioned_copy(to, known, from, what, nested->init);
}

ordo_status ordo_versioned_copy(void *to, size_t known, const void *from, const char *what,
                                const char *init)
{
    size_t size;
    memcpy(&size, from, sizeof size);
    ORDO_TRY(check_size(size, known, what, init));

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

ordo_status ordo_versioned_answer(void *to, size_t known, const void *from, const char *what,
                                  const char *init)
{
    size_t size;
    memcpy(&size, to, sizeof size);
    ORDO_TRY(check_size(size, known, what, init));
    memset(to, 0, size);
    memcpy(to, from, size < known ? size : known);
    memcpy(to, &size, sizeof size);
    return ORDO_OK;
}
