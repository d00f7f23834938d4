/* names.h: names of tensors, each with a number in the order of appearance. */
#ifndef RECORD_NAMES_H
#define RECORD_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ordo_name {
    char *text;
    bool gradient; /* else a weight: another name */
    uint64_t hash;
} ordo_name;

typedef struct ordo_names {
    ordo_name *at;
    size_t count, room;
    uint32_t *slots; /* number + 1; 0 = free. A power of two, more than twice the count. */
    size_t slot_count;
} ordo_names;

/* Number of a name, which is added if it is new; false if memory ran out. */
bool ordo_names_find(ordo_names *names, const char *text, bool gradient, uint32_t *number);
void ordo_names_free(ordo_names *names);

#endif
