/* backward_split.h: the backward pass in two kernels that owe each other nothing: dK and dV by the
 * chains without their dQ, then dQ by blocks that own query tiles. No turns, no sums in memory: an
 * order exists only inside a block. Seven products instead of five; the oracle of the ordered form,
 * whose dK and dV it repeats bit for bit. */
#ifndef CUDA_BACKWARD_SPLIT_H
#define CUDA_BACKWARD_SPLIT_H

#include "cuda/pass.h"
#include "ordo/status.h"

ordo_status ordo_sm90_backward_split(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
