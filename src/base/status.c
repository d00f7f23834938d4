/* status.c: the thread-local message, and what this build is. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[512];

void ordo_set_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
}

const char *ordo_last_error(void)
{
    return message;
}

const char *ordo_status_name(ordo_status status)
{
    switch (status) {
    case ORDO_OK: return "ok";
    case ORDO_ERR_ARGUMENT: return "argument";
    case ORDO_ERR_SHAPE: return "shape";
    case ORDO_ERR_ALIGN: return "align";
    case ORDO_ERR_UNSUPPORTED: return "unsupported";
    case ORDO_ERR_OVERFLOW: return "overflow";
    case ORDO_ERR_MEMORY: return "memory";
    case ORDO_ERR_PARSE: return "parse";
    case ORDO_ERR_FILE: return "file";
    case ORDO_ERR_DEVICE: return "device";
    case ORDO_ERR_INTERNAL: return "internal";
    }
    return "unknown";
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

#if defined(__clang__)
#define COMPILER                                                                                   \
    "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__) "." TEXT(__clang_patchlevel__)
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

#if defined(__aarch64__)
#define TARGET "aarch64"
#elif defined(__x86_64__)
#define TARGET "x86_64"
#else
#define TARGET "unknown"
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER "+asan"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZER "+tsan"
#else
#define SANITIZER ""
#endif

#ifdef NDEBUG
#define FLAVOUR "release"
#else
#define FLAVOUR "debug"
#endif

ordo_build ordo_build_query(void)
{
    return (ordo_build) {
        .major = ORDO_VERSION_MAJOR,
        .minor = ORDO_VERSION_MINOR,
        .patch = ORDO_VERSION_PATCH,
        .version =
            TEXT(ORDO_VERSION_MAJOR) "." TEXT(ORDO_VERSION_MINOR) "." TEXT(ORDO_VERSION_PATCH),
        .compiler = COMPILER,
        .target = TARGET,
        .flavour = FLAVOUR SANITIZER,
    };
}
