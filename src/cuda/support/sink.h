/* support/sink.h: the gradient of sinks, the last kernels of a backward pass that has any. */
#ifndef CUDA_SUPPORT_SINK_H
#define CUDA_SUPPORT_SINK_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

/* Launch what writes dsink_parts and dsink, as far as they are wanted, after the other kernels of
 * the pass: it reads delta, and may write to turns. */
ordo_status ordo_cuda_sink(const ordo_cuda_pass *pass);

#endif
