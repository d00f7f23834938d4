/* sm90/backward/pass.h: the backward pass of head sizes up to 128, in chains. */
#ifndef CUDA_SM90_BACKWARD_PASS_H
#define CUDA_SM90_BACKWARD_PASS_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

ordo_status ordo_wgmma_backward_flash(const ordo_cuda_pass *pass);

#endif
