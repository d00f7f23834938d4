/* ops/seen.h: the bits and lists of an element mask, made by the device. Plain C. */
#ifndef CUDA_OPS_SEEN_H
#define CUDA_OPS_SEEN_H

#include "ordo/status.h"

#include <stdint.h>

/* A checked mask of tiles of 128 x 128 elements, of which there is at least one. */
typedef struct ordo_cuda_seen {
    const unsigned char *elements;
    int64_t strides[4]; /* in bytes: of sequences, heads, rows, columns */
    int32_t q_len, kv_len;
    int32_t sequences, heads;
    uint32_t *bits; /* as keep bits */
    int32_t *start, *key;
    void *stream;
} ordo_cuda_seen;

/* Launch the kernel that packs it. The lists have all tiles: which of those without
 * ORDO_BLOCK_WHOLE are empty, a pass finds by their bits. */
ordo_status ordo_cuda_pack_seen(const ordo_cuda_seen *seen);
#endif
