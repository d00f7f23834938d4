/* ordo/status.h: status codes, error messages, and the version of the library. */
#ifndef ORDO_STATUS_H
#define ORDO_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(ORDO_BUILDING) && defined(__GNUC__)
#define ORDO_API __attribute__((visibility("default")))
#else
#define ORDO_API
#endif

#define ORDO_VERSION_MAJOR 0
#define ORDO_VERSION_MINOR 2
#define ORDO_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* Functions that can fail return one of these; 0 is success. Each failure leaves a message for
 * ordo_last_error() that names the argument, its value and what was expected. Programs decide by
 * the status; the message is for people, and its wording may change. */
typedef enum ordo_status {
    ORDO_OK = 0,
    ORDO_ERR_ARGUMENT = 1,    /* a NULL pointer, an unknown constant or a value out of range */
    ORDO_ERR_SHAPE = 2,       /* sizes that contradict each other */
    ORDO_ERR_ALIGN = 3,       /* a pointer, stride or workspace that is not aligned as required */
    ORDO_ERR_UNSUPPORTED = 4, /* valid, but not supported by this backend, build or machine */
    ORDO_ERR_OVERFLOW = 5,    /* a size that does not fit its type or the address space */
    ORDO_ERR_MEMORY = 6,      /* allocation failed */
    ORDO_ERR_PARSE = 7,       /* text that is not a plan, a machine or a number */
    ORDO_ERR_FILE = 8,        /* a file that cannot be opened or read */
    ORDO_ERR_DEVICE = 9,      /* a device or its driver reported an error */
    ORDO_ERR_INTERNAL = 10    /* a bug in ordo: an invariant did not hold */
} ordo_status;

/* Return the short name of a status: "ok", "argument", "shape", ...; "unknown" for other values. */
ORDO_API const char *ordo_status_name(ordo_status status);

/* Return the message of the last failure on this thread; "" if there was none. It is valid until
 * the next failure on the same thread. Successful calls leave it untouched. */
ORDO_API const char *ordo_last_error(void);

/* Version and build of the loaded library, which may differ from the headers that a program was
 * compiled with (ORDO_VERSION_...). */
typedef struct ordo_build {
    int major, minor, patch;
    const char *version;  /* "0.2.0" */
    const char *compiler; /* name and version */
    const char *target;   /* "aarch64", "x86_64", ... */
    const char *flavour;  /* "release", "debug", with "+asan", "+tsan" where true */
} ordo_build;

ORDO_API ordo_build ordo_build_query(void);

/* Structs that begin with `size` may get more fields at their end in a minor release: a program
 * and a library of different versions work together, because the size says which fields the
 * program knows. ORDO_..._INIT of each type sets it and zeroes the rest. Other structs keep their
 * layout as long as the name of the shared library does (libordo.so.0). */
#ifdef __cplusplus
}

template <class Struct> inline Struct ordo_sized()
{
    Struct created = Struct();
    created.size = sizeof(Struct);
    return created;
}
#define ORDO_SIZED(Struct) ordo_sized<Struct>()
#else
#define ORDO_SIZED(Struct)                                                                         \
    {                                                                                              \
        .size = sizeof(Struct)                                                                     \
    }
#endif
#endif
