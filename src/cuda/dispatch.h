/* dispatch.h: a pass in the kernels of its set and form. Both launch on the pass's stream and
 * return; a status other than ORDO_OK comes with its reason in `why`, before anything was launched.
 */
#ifndef CUDA_DISPATCH_H
#define CUDA_DISPATCH_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

ordo_status ordo_cuda_launch_forward(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_cuda_launch_backward(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
