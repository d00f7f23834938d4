/* status.h: set and forward failures. The message is thread-local; ordo_last_error() reads it. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "ordo/status.h"

/* Record a message and hand the status back: return ordo_fail(ORDO_ERR_SHAPE, "...", ...); */
ordo_status ordo_fail(ordo_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Forward the failure of a call. */
#define ORDO_TRY(call)                   \
    do {                                 \
        const ordo_status try_ = (call); \
        if (try_ != ORDO_OK)             \
            return try_;                 \
    } while (0)

#endif
