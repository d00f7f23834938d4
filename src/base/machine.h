/* machine.h: inside a machine; the table of keys, the reader, the probe. */
#ifndef BASE_MACHINE_H
#define BASE_MACHINE_H

#include "ordo/machine.h"

/* A row of the table of keys: what people see, and what the reader accepts. */
typedef struct ordo_machine_rule {
    ordo_machine_key key;
    double min, max; /* inclusive */
    bool integer;    /* only whole numbers mean anything */
} ordo_machine_rule;

/* One value. `source` is "source | date", or NULL if the machine does not give the key. */
typedef struct ordo_machine_entry {
    double value;
    char *source;
} ordo_machine_entry;

enum {
    ORDO_MACHINE_NAME_MAX = 31,
    ORDO_MACHINE_TITLE_MAX = 79,
    ORDO_MACHINE_LINE_MAX = 400,    /* bytes of one line, its end not counted */
    ORDO_MACHINE_FILE_MAX = 1 << 20 /* bytes of a file */
};

struct ordo_machine {
    char name[ORDO_MACHINE_NAME_MAX + 1];
    char title[ORDO_MACHINE_TITLE_MAX + 1];
    ordo_machine_family family;
    ordo_machine_entry entries[]; /* one a row of the table of keys, in its order */
};

const ordo_machine_rule *ordo_machine_rule_at(size_t index); /* NULL past the end */

/* Row of a key by name; ordo_machine_key_count() if there is none. */
size_t ordo_machine_rule_find(const char *name, size_t length);

/* The key closest to a misspelt one, or NULL if none is close. */
const char *ordo_machine_nearest(const char *name, size_t length);

/* Write the host's machine file: every number probed, or assumed and saying so. `root`
 * stands before /sys and /proc ("" outside tests). Never fails: what the kernel hides is
 * assumed. Returns the length, as snprintf does. */
size_t ordo_machine_probe(char *text, size_t capacity, const char *root);

#endif
