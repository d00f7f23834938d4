/* module.h: the interface between libordo and libordo_cuda.so. Plain C, read by both sides.
 *
 * The module exports one function, ordo_cuda_module_table(), and nothing else. Its functions
 * return a status and, where that is not ORDO_OK, why() says the reason.
 *
 * The rooms of src/cuda, each of which includes those above it (tools/check-layers):
 *   pass     the plain C contract of a pass, shared with libordo and tests on a host
 *   tile     device code that kernels of every family share
 *   support  kernels around a pass, and launches
 *   ops      operations that are no pass, for every device
 *   sm90     kernels of compute capability 9.0; forward, backward, phases and gemm do not include
 *            one another
 * module.cu fills the table and chooses the kernels of a pass. */
#ifndef CUDA_MODULE_H
#define CUDA_MODULE_H

#include "cuda/ops/combine.h"
#include "cuda/ops/dropout.h"
#include "cuda/ops/seen.h"
#include "cuda/pass/gemm.h"
#include "cuda/pass/pages.h"
#include "ordo/device.h"
#include "ordo/digest.h"
#include "ordo/sum.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when an entry or the meaning of a pass changes; a new entry at the end only raises
 * `size`. */
#define ORDO_CUDA_MODULE_ABI   13
#define ORDO_CUDA_MODULE_ENTRY "ordo_cuda_module_table"

typedef struct ordo_cuda_module {
    uint32_t abi;          /* ORDO_CUDA_MODULE_ABI */
    uint32_t size;         /* sizeof(ordo_cuda_module) */
    uint32_t pass_size;    /* sizeof(ordo_cuda_pass) */
    uint32_t pages_size;   /* sizeof(ordo_cuda_pages) */
    uint32_t bits_size;    /* sizeof(ordo_cuda_bits) */
    uint32_t combine_size; /* sizeof(ordo_cuda_combine) */
    uint32_t gemm_size;    /* sizeof(ordo_cuda_gemm) */
    const char *build;     /* compiler and target, for display */

    /* The reason of this thread's last failure: below 400 bytes, kept until the next one. */
    const char *(*why)(void);

    /* ORDO_ERR_DEVICE if there is no driver, no device, or the driver is too old. */
    ordo_status (*device_count)(int *count);

    /* Reads attributes only: makes no context on the device. */
    ordo_status (*device_query)(int index, ordo_device *device);

    /* Run a small kernel and read its answer back: proof that this module's code runs there.
     * Makes a context on the device and waits for it. */
    ordo_status (*device_check)(int index);

    /* Launch a pass on its stream, on the current device; ORDO_ERR_UNSUPPORTED before any launch
     * if that is not of the family of the pass, or the module has no such set of kernels. `pages`:
     * where k and v are, if not NULL. */
    ordo_status (*forward)(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages);
    ordo_status (*backward)(const ordo_cuda_pass *pass);

    /* As the functions of ordo/device.h say. */
    ordo_status (*device_select)(int index);
    ordo_status (*alloc)(void **memory, size_t bytes);
    ordo_status (*free)(void *memory);
    ordo_status (*copy)(void *to, const void *from, size_t bytes, void *stream);
    ordo_status (*fill)(void *memory, int byte, size_t bytes, void *stream);
    ordo_status (*equal)(const void *a, const void *b, size_t bytes, void *stream, bool *equal);
    ordo_status (*stream_create)(void **stream);
    ordo_status (*stream_destroy)(void *stream);
    ordo_status (*synchronise)(void *stream);
    ordo_status (*event_create)(void **event);
    ordo_status (*event_destroy)(void *event);
    ordo_status (*event_record)(void *event, void *stream);
    ordo_status (*event_elapsed)(void *from, void *to, double *seconds);

    /* Launch the kernels that generate keep bits, on their stream. */
    ordo_status (*dropout)(const ordo_cuda_bits *bits);

    /* Launch the kernels that merge parts, on their stream. */
    ordo_status (*combine)(const ordo_cuda_combine *combine);

    /* Set `count` words to `word` on the stream; count is not 0. */
    ordo_status (*fill_words)(void *memory, uint32_t word, size_t count, void *stream);

    /* Launch the kernels that hash spans, on the stream. `pieces` is their workspace. */
    ordo_status (*digest)(const ordo_bytes *spans, int64_t count, uint64_t *pieces,
                          uint64_t *digests, void *stream);

    /* Launch a checked sum with at least one element, on the stream. */
    ordo_status (*sum)(const ordo_sum *sum, void *stream);

    /* What is launched on the stream from now on waits for what the event has recorded. */
    ordo_status (*event_wait)(void *stream, void *event);

    /* Launch a matrix product on its stream, on the current device; ORDO_ERR_UNSUPPORTED as of a
     * pass. */
    ordo_status (*gemm)(const ordo_cuda_gemm *gemm);

    /* Launch the kernel that packs an element mask, on its stream. */
    ordo_status (*pack_seen)(const ordo_cuda_seen *seen);
} ordo_cuda_module;

typedef const ordo_cuda_module *(*ordo_cuda_module_entry)(void);

/* Declared for the module that defines it; libordo finds it by name. */
__attribute__((visibility("default"))) const ordo_cuda_module *ordo_cuda_module_table(void);

#ifdef __cplusplus
}
#endif
#endif
