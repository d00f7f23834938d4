/* module.h: what libordo_cuda.so offers to libordo; plain C, read by both sides.
 *
 * The module exports one function, ordo_cuda_module_table(), and nothing else. Its functions
 * return a status and, where that is not ORDO_OK, write why into the caller's buffer: a
 * message cannot cross as a thread-local, because the two libraries may hold two of them. */
#ifndef CUDA_MODULE_H
#define CUDA_MODULE_H

#include "ordo/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when an entry changes or goes; a new entry at the end only raises `size`. */
#define ORDO_CUDA_MODULE_ABI   1
#define ORDO_CUDA_MODULE_ENTRY "ordo_cuda_module_table"

typedef struct ordo_cuda_module {
    uint32_t abi;      /* ORDO_CUDA_MODULE_ABI */
    uint32_t size;     /* sizeof(ordo_cuda_module) */
    const char *build; /* compiler and target, for people */

    /* ORDO_ERR_DEVICE if there is no driver, no device, or the driver is too old. */
    ordo_status (*device_count)(int *count, char *why, size_t why_size);

    /* Reads attributes only: makes no context on the device. */
    ordo_status (*device_query)(int index, ordo_device *device, char *why, size_t why_size);

    /* Run a small kernel and read its answer back: proof that this module's code runs there.
     * Makes a context on the device and waits for it. */
    ordo_status (*device_check)(int index, char *why, size_t why_size);
} ordo_cuda_module;

typedef const ordo_cuda_module *(*ordo_cuda_module_entry)(void);

/* Declared for the module that defines it; libordo finds it by name. */
__attribute__((visibility("default"))) const ordo_cuda_module *ordo_cuda_module_table(void);

#ifdef __cplusplus
}
#endif
#endif
