/* status.h: set and forward failures. The message is thread-local; ordo_last_error() reads it. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "base/for_lab.h"
#include "ordo/status.h"

/* Record the message of a failure on this thread. */
ORDO_FOR_LAB void ordo_set_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Record a message and hand the status back: return ordo_fail(ORDO_ERR_SHAPE, "...", ...);
 * a macro, so that compilers and analysers see that the status is not ORDO_OK. */
#define ordo_fail(status, ...) (ordo_set_error(__VA_ARGS__), (status))

/* Forward the failure of a call. */
#define ORDO_TRY(call)                                                                             \
    do {                                                                                           \
        const ordo_status try_ = (call);                                                           \
        if (try_ != ORDO_OK)                                                                       \
            return try_;                                                                           \
    } while (0)

#endif
