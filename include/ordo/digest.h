/* ordo/digest.h: digests of whole tensors at memory speed, equal on CPU and GPU: xxh64-pieces.
 *
 * The bytes of a tensor are divided into pieces of 65536; the last piece may be shorter. The digest
 * is XXH64 (seed 0) over the XXH64 (seed 0) of the pieces, in order, 8 bytes little endian each. It
 * differs from XXH64 over the bytes, which `ordo run` prints: pieces are independent, so that many
 * threads can work on one tensor. It tells accidental differences apart, not forged ones. */
#ifndef ORDO_DIGEST_H
#define ORDO_DIGEST_H

#include "ordo/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ORDO_DIGEST_NAME "xxh64-pieces"

/* One contiguous span of bytes. With backend cuda it is on the device, aligned to 8 bytes. */
typedef struct ordo_bytes {
    const void *data;
    uint64_t bytes;
} ordo_bytes;

/* Digests of many spans at once. */
typedef struct ordo_digest_call {
    size_t size;             /* sizeof(ordo_digest_call) */
    ordo_backend backend;    /* ORDO_BACKEND_CPU or ORDO_BACKEND_CUDA */
    int threads;             /* cpu: 0 = as many as the process may use */
    int64_t count;           /* number of spans; 0: nothing is done */
    const ordo_bytes *spans; /* always on the host, and read before the call returns */
    uint64_t *digests;       /* out: one per span; cuda: on the device */
    void *workspace; /* ordo_digest_workspace() bytes, 8-byte aligned; cuda: on the device */
    size_t workspace_bytes;
    void *stream; /* cuda: a cudaStream_t */
} ordo_digest_call;

#define ORDO_DIGEST_CALL_INIT ORDO_SIZED(ordo_digest_call)

/* Return the bytes of workspace for these spans: 8 per piece, 0 if there are no spans. */
ORDO_API size_t ordo_digest_workspace(const ordo_bytes *spans, int64_t count);

/* Compute the digests. They depend on the bytes alone, not on the backend, the number of threads
 * or the other spans. With backend cuda the call launches kernels on the stream without allocating
 * or waiting, and may be captured into a CUDA graph.
 *
 * Everything is checked before anything is written. Returns ORDO_ERR_ARGUMENT for a NULL pointer or
 * an output that overlaps what is read, ORDO_ERR_SHAPE for too small a workspace, ORDO_ERR_ALIGN
 * for what is not aligned to 8 bytes, ORDO_ERR_UNSUPPORTED for another backend or if there is no
 * device. */
ORDO_API ordo_status ordo_digest_run(const ordo_digest_call *call);

#ifdef __cplusplus
}
#endif
#endif
