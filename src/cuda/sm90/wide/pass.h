/* sm90/wide/pass.h: the backward pass of head sizes 129 to 256 in the form apart: with dropout. */
#ifndef CUDA_SM90_WIDE_PASS_H
#define CUDA_SM90_WIDE_PASS_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

ordo_status ordo_wgmma_backward_apart(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
