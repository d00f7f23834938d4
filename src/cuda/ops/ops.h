/* ops/ops.h: entries of the module's table: memory, streams and events for programs without CUDA of
 * their own, each one or two runtime calls; sums and digests. ordo/device.h has the contracts of
 * those without a comment. */
#ifndef CUDA_OPS_OPS_H
#define CUDA_OPS_OPS_H

#include "ordo/digest.h"
#include "ordo/sum.h"

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

/* Launch a checked sum with at least one element. */
ordo_status ordo_cuda_sum(const ordo_sum *sum, void *stream);

/* Launch xxh64-pieces. The array of spans is the host's, all that it and the other arguments point
 * to the device's; `pieces` has room for one digest per piece of all spans. */
ordo_status ordo_cuda_digest(const ordo_bytes *spans, int64_t count, uint64_t *pieces,
                             uint64_t *digests, void *stream);

#endif
