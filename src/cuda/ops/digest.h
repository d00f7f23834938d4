/* ops/digest.h: xxh64-pieces on the device. Plain C. */
#ifndef CUDA_OPS_DIGEST_H
#define CUDA_OPS_DIGEST_H

#include "ordo/digest.h"

/* Launch. The array of spans is the host's, all that it and the other arguments point to the
 * device's; `pieces` has room for one digest per piece of all spans. */
ordo_status ordo_cuda_digest(const ordo_bytes *spans, int64_t count, uint64_t *pieces,
                             uint64_t *digests, void *stream);
#endif
