/* ordo/machine.h: a device described by numbers: workers, memory levels, rates.
 *
 * A machine file is text with lines `key = value unit | source | date`. The files of machines/ are
 * built into the library and have names ("h200"); the machine "host" is made by probing this
 * computer. docs/guide/machines.md describes the format, ordo_machine_key_at() lists the keys. */
#ifndef ORDO_MACHINE_H
#define ORDO_MACHINE_H

#include "ordo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ordo_machine ordo_machine;

typedef enum ordo_machine_family {
    ORDO_MACHINE_CPU = 0,  /* workers are cores */
    ORDO_MACHINE_CUDA = 1, /* workers are streaming multiprocessors */
    ORDO_MACHINE_NPU = 2   /* only its memory sizes are known: no backend, no predictions */
} ordo_machine_family;

/* Make a machine from a built-in name ("h200", "zen4", ..., "host"; ordo_machine_builtin() lists
 * them) or from the path of a file, which contains a '/' or a '.'. Returns ORDO_ERR_ARGUMENT for an
 * unknown name, ORDO_ERR_FILE if the file cannot be read, and ORDO_ERR_PARSE with the message
 * "file:line: ..." for an entry that is unknown, missing, repeated or out of range. */
ORDO_API ordo_status ordo_machine_create(ordo_machine **machine, const char *name_or_path);

/* Make a machine from the text of a machine file in memory. Messages name `label` in place of the
 * file. */
ORDO_API ordo_status ordo_machine_parse(ordo_machine **machine, const char *text, size_t length,
                                        const char *label);

/* Destroy a machine. NULL is allowed. */
ORDO_API void ordo_machine_destroy(ordo_machine *machine);

ORDO_API const char *ordo_machine_name(const ordo_machine *machine);  /* "h200" */
ORDO_API const char *ordo_machine_title(const ordo_machine *machine); /* "NVIDIA H200 SXM" */
ORDO_API ordo_machine_family ordo_machine_family_of(const ordo_machine *machine);

/* One row of the table of keys: what a machine file may state. */
typedef struct ordo_machine_key {
    const char *name;        /* "workers" */
    const char *unit;        /* "count", "GHz", "B/clk", "flop/clk", "ns", "B", "" */
    const char *kind;        /* "physical", "measured" or "fitted" */
    const char *required_by; /* the family: "cpu", "cuda", "all" (both), "npu", "none" (optional) */
    const char *about;       /* one line that explains it */
} ordo_machine_key;

ORDO_API size_t ordo_machine_key_count(void);
ORDO_API const ordo_machine_key *ordo_machine_key_at(size_t index); /* NULL past the end */

/* Read the value of a key. Returns ORDO_ERR_UNSUPPORTED if this machine does not state it, and
 * ORDO_ERR_ARGUMENT if there is no such key. */
ORDO_API ordo_status ordo_machine_get(const ordo_machine *machine, const char *key, double *value);

/* Return the source and the date of a value, "source | date" as in the file; NULL if this machine
 * does not state the key. */
ORDO_API const char *ordo_machine_source(const ordo_machine *machine, const char *key);

/* Return the name of a built-in machine; "host" is the last one. NULL past the end. */
ORDO_API const char *ordo_machine_builtin(size_t index);

#ifdef __cplusplus
}
#endif
#endif
