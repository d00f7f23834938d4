/* ordo/machine.h: a device as numbers; workers, memory levels, rates.
 *
 * A machine is a text file of `key = value unit | source | date` lines. The files of
 * machines/ are built into the library and known by name ("h200"); "host" is probed.
 * docs/guide/machines.md describes the format; ordo_machine_key_at() lists the keys. */
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
    ORDO_MACHINE_NPU = 2   /* known for its memories; no backend, no prices */
} ordo_machine_family;

/* Read a machine: a built-in name ("h200", "zen4", ..., "host": ordo_machine_builtin()), or the
 * path of a file (recognised by a '/' or a '.' in it). Fails with ORDO_ERR_FILE, or with
 * ORDO_ERR_PARSE and "file:line: ..." for an unknown, missing, repeated or absurd entry. */
ORDO_API ordo_status ordo_machine_create(ordo_machine **machine, const char *name_or_path);

/* The same from text in memory; `label` stands for the file name in messages. */
ORDO_API ordo_status ordo_machine_parse(ordo_machine **machine, const char *text, size_t length,
                                        const char *label);

ORDO_API void ordo_machine_destroy(ordo_machine *machine);

ORDO_API const char *ordo_machine_name(const ordo_machine *machine);  /* "h200" */
ORDO_API const char *ordo_machine_title(const ordo_machine *machine); /* "NVIDIA H200 SXM" */
ORDO_API ordo_machine_family ordo_machine_family_of(const ordo_machine *machine);

/* One entry of the table of keys. */
typedef struct ordo_machine_key {
    const char *name;        /* "workers" */
    const char *unit;        /* "count", "GHz", "B/clk", "flop/clk", "ns", "B", "" */
    const char *kind;        /* "physical", "measured" or "fitted": what sort of number it is */
    const char *required_by; /* "cpu", "cuda", "all" for both, "npu", or "none" if optional */
    const char *about;       /* one line for people */
} ordo_machine_key;

ORDO_API size_t ordo_machine_key_count(void);
ORDO_API const ordo_machine_key *ordo_machine_key_at(size_t index); /* NULL past the end */

/* Value of a key; ORDO_ERR_UNSUPPORTED if this machine does not give it,
 * ORDO_ERR_ARGUMENT if no such key exists. */
ORDO_API ordo_status ordo_machine_get(const ordo_machine *machine, const char *key, double *value);

/* Where a value comes from: source and date as the file gives them; NULL if not given. */
ORDO_API const char *ordo_machine_source(const ordo_machine *machine, const char *key);

/* Names of the built-in machines, "host" last; NULL past the end. */
ORDO_API const char *ordo_machine_builtin(size_t index);

#ifdef __cplusplus
}
#endif
#endif
