/* ops/sum.h: the tree sum of arrays on the device. Plain C. */
#ifndef CUDA_OPS_SUM_H
#define CUDA_OPS_SUM_H

#include "ordo/sum.h"

/* Launch a checked sum with at least one element. */
ordo_status ordo_cuda_sum(const ordo_sum *sum, void *stream);
#endif
