/* cuda.h: the parts of a device, for measurements that need both of its streams. */
#ifndef BLOCK_CUDA_H
#define BLOCK_CUDA_H

#include "block/cuda/module.h"

typedef struct block_cuda_parts {
    const block_cuda_module *module;
    block_cuda *cuda;
    void *stream, *side;
} block_cuda_parts;

void ordo_block_cuda_parts(block_device *device, block_cuda_parts *parts);

/* Launch the job's generator on a stream, alone. */
ordo_status ordo_block_cuda_bits(block_device *device, const block_bits *bits, void *stream);

/* The bits as the module makes them. */
ordo_status ordo_block_cuda_keep(const block_bits *bits, block_keep *keep);

#endif
