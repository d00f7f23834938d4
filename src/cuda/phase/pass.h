/* phase/pass.h: both passes by phases. */
#ifndef CUDA_PHASE_PASS_H
#define CUDA_PHASE_PASS_H

#include "cuda/common/pass.h"
#include "ordo/status.h"

ordo_status ordo_sm90_forward_phases(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_sm90_backward_phases(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
