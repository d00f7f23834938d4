/* support/tiles.h: makes the bits of pass/blocks.h on the device. */
#ifndef CUDA_SUPPORT_TILES_H
#define CUDA_SUPPORT_TILES_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

/* Fill pass->blocks.words, and columns if there are any; nothing without a block mask. Run after
 * the table of sequences. */
ordo_status ordo_cuda_tiles(const ordo_cuda_pass *pass);

#endif
