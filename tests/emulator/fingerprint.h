/* fingerprint.h: the hashes in tools/fingerprint.cu, which an H200 has or a model gives. */
#ifndef TESTS_EMULATOR_FINGERPRINT_H
#define TESTS_EMULATOR_FINGERPRINT_H

#include "check.h"

/* A file of the sources. */
static inline FILE *fingerprint_open(const char *path)
{
    char full[1024];
    const char *source = getenv("ORDO_SOURCE");
    snprintf(full, sizeof full, "%s/%s", source ? source : ".", path);
    return fopen(full, "rb");
}

/* The numbers on the line of the tool that begins with `start`, after blanks; how many. */
static inline int fingerprint_numbers(const char *start, uint64_t *numbers, int most)
{
    FILE *file = fingerprint_open("tools/fingerprint.cu");
    char line[256];
    int count = 0;
    while (file && count == 0 && fgets(line, sizeof line, file)) {
        const char *at = line + strspn(line, " ");
        if (strncmp(at, start, strlen(start)) != 0)
            continue;
        for (at += strlen(start); count < most && (at = strstr(at, "0x")); at++)
            numbers[count++] = strtoull(at, NULL, 16);
    }
    if (file)
        (void)fclose(file);
    return count;
}

/* The hash of words that the tool uses. */
#define FINGERPRINT_START UINT64_C(1469598103934665603)
static inline uint64_t fingerprint_add(uint64_t hash, uint32_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}

/* A function's line: its first fraction, and the hashes of fractions, of all arguments without and
 * of all with a sign. */
typedef struct fingerprint_function {
    uint64_t first, fractions, positive, negative;
} fingerprint_function;

static inline fingerprint_function fingerprint_of(const char *name)
{
    char start[16];
    uint64_t n[4] = { 0 };
    snprintf(start, sizeof start, "{ \"%s\",", name);
    CHECK_INT(fingerprint_numbers(start, n, 4), 4);
    return (fingerprint_function) { n[0], n[1], n[2], n[3] };
}

#endif
