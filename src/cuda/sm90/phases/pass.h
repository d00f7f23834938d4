/* sm90/phases/pass.h: both passes by phases. */
#ifndef CUDA_SM90_PHASES_PASS_H
#define CUDA_SM90_PHASES_PASS_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

ordo_status ordo_wgmma_forward_phases(const ordo_cuda_pass *pass);
ordo_status ordo_wgmma_backward_phases(const ordo_cuda_pass *pass);

#endif
