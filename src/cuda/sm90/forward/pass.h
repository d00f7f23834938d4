/* sm90/forward/pass.h: the forward pass of head sizes up to 256. */
#ifndef CUDA_SM90_FORWARD_PASS_H
#define CUDA_SM90_FORWARD_PASS_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

ordo_status ordo_wgmma_forward_flash(const ordo_cuda_pass *pass);

#endif
