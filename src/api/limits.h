/* limits.h: what the passes of a backend accept; ordo_backend_query() tells callers the same. */
#ifndef API_LIMITS_H
#define API_LIMITS_H

enum {
    ORDO_CUDA_COPY_BYTES = 16, /* the hardware copies tiles in units of this many bytes */
    ORDO_CUDA_HEAD_STEP = ORDO_CUDA_COPY_BYTES / 2 /* elements of two bytes in one unit */
};

#endif
