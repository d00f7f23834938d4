/* ops/memory.h: entries of the module's table for programs without CUDA of their own: memory,
 * streams, events. Each is one or two runtime calls; ordo/device.h has the contracts. */
#ifndef CUDA_OPS_MEMORY_H
#define CUDA_OPS_MEMORY_H

#include "ordo/status.h"

ordo_status ordo_cuda_alloc(void **memory, size_t bytes);
ordo_status ordo_cuda_free(void *memory);
ordo_status ordo_cuda_copy(void *to, const void *from, size_t bytes, void *stream);
ordo_status ordo_cuda_fill(void *memory, int byte, size_t bytes, void *stream);
ordo_status ordo_cuda_fill_words(void *memory, uint32_t word, size_t count, void *stream);
ordo_status ordo_cuda_equal(const void *a, const void *b, size_t bytes, void *stream, bool *equal);
ordo_status ordo_cuda_stream_create(void **stream);
ordo_status ordo_cuda_stream_destroy(void *stream);
ordo_status ordo_cuda_synchronise(void *stream);
ordo_status ordo_cuda_event_create(void **event);
ordo_status ordo_cuda_event_destroy(void *event);
ordo_status ordo_cuda_event_record(void *event, void *stream);
ordo_status ordo_cuda_event_wait(void *stream, void *event);
ordo_status ordo_cuda_event_elapsed(void *from, void *to, double *seconds);

#endif
