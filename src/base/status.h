/* status.h: set and forward failures. The message is thread-local; ordo_last_error() reads it. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <inttypes.h>
#include <stddef.h>

#include "base/for_lab.h"
#include "ordo/status.h"

/* Record the message of a failure on this thread. */
ORDO_FOR_LAB void ordo_set_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Record a message and hand the status back: return ordo_fail(ORDO_ERR_SHAPE, "...", ...);
 * a macro, so that compilers and analysers see that the status is not ORDO_OK. */
#define ordo_fail(status, ...) (ordo_set_error(__VA_ARGS__), (status))

/* Check that low <= value <= high; else fail with ORDO_ERR_ARGUMENT, "field value: expected
 * low..high". Inline, so that analysers know the range afterwards. */
static inline ordo_status ordo_check_range(const char *field, int64_t value, int64_t low,
                                           int64_t high)
{
    if (value < low || value > high)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s %" PRId64 ": expected %" PRId64 "..%" PRId64, field,
                         value, low, high);
    return ORDO_OK;
}

/* Check that an argument is not NULL. */
static inline ordo_status ordo_check_pointer(const char *name, const void *pointer)
{
    if (!pointer)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected a pointer", name);
    return ORDO_OK;
}

/* Check that an array of elements of `width` bytes is aligned to them. */
static inline ordo_status ordo_check_aligned(const char *name, const void *array, size_t width)
{
    if ((uintptr_t)array % width != 0)
        return ordo_fail(ORDO_ERR_ALIGN, "%s %p: expected a multiple of %zu", name, array, width);
    return ORDO_OK;
}

/* Forward the failure of a call. */
#define ORDO_TRY(call)                                                                             \
    do {                                                                                           \
        const ordo_status try_ = (call);                                                           \
        if (try_ != ORDO_OK)                                                                       \
            return try_;                                                                           \
    } while (0)

#endif
