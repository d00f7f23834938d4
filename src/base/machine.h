/* machine.h: the fields of a machine, the table of keys and the probe. */
#ifndef BASE_MACHINE_H
#define BASE_MACHINE_H

#include "base/for_lab.h"
#include "ordo/machine.h"

/* A row of the table of keys: the public part, and the values that the reader accepts. */
typedef struct ordo_machine_range {
    ordo_machine_key key;
    double min, max; /* inclusive */
    bool integer;    /* only whole numbers are accepted */
} ordo_machine_range;

/* One value. `source` is "source | date", or NULL if the machine does not state the key. */
typedef struct ordo_machine_entry {
    double value;
    char *source;
} ordo_machine_entry;

enum {
    ORDO_MACHINE_NAME_MAX = 31,
    ORDO_MACHINE_TITLE_MAX = 79,
    ORDO_MACHINE_LINE_MAX = 400,    /* bytes of a line, without its end */
    ORDO_MACHINE_FILE_MAX = 1 << 20 /* bytes of a file */
};

struct ordo_machine {
    char name[ORDO_MACHINE_NAME_MAX + 1];
    char title[ORDO_MACHINE_TITLE_MAX + 1];
    ordo_machine_family family;
    ordo_machine_entry entries[]; /* one per row of the table of keys, in that order */
};

ORDO_FOR_LAB const ordo_machine_range *ordo_machine_range_at(size_t index); /* NULL past the end */

/* Return the index of a key by name; ordo_machine_key_count() if there is none. */
ORDO_FOR_LAB size_t ordo_machine_range_find(const char *name, size_t length);

/* Return the key with the most similar name, or NULL if none is similar. */
const char *ordo_machine_nearest(const char *name, size_t length);

/* Write a machine file for this computer. Each number is probed, or assumed where the kernel does
 * not tell it; its source says which. `root` is put before /sys and /proc ("" outside tests).
 * Returns the length, as snprintf() does; never fails. */
size_t ordo_machine_probe(char *text, size_t capacity, const char *root);

#endif
