/* gap.h: under the address sanitizer, bytes between panels that nothing may touch.
 *
 * Panels lie side by side in one allocation, where the sanitizer cannot tell an access past one
 * from an access to the next. A gap after each panel makes it an error. Without the sanitizer a gap
 * has no bytes. */
#ifndef BASE_GAP_H
#define BASE_GAP_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define ORDO_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ORDO_ASAN 1
#endif
#endif

#ifdef ORDO_ASAN
#include <sanitizer/asan_interface.h>
enum { ORDO_GAP = 1024 };
#else
enum { ORDO_GAP = 0 };
#endif

/* Forbid any access to the bytes from `from` up to `to`, until the memory is allocated again. */
static inline void ordo_gap_close(char *from, const char *to)
{
#ifdef ORDO_ASAN
    __asan_poison_memory_region(from, (size_t)(to - from));
#else
    (void)from;
    (void)to;
#endif
}

#endif
