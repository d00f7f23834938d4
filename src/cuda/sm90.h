/* sm90.h: the passes on Hopper. They launch on the pass's stream and return; a status other than
 * ORDO_OK comes with its reason in `why`, before anything was launched. */
#ifndef CUDA_SM90_H
#define CUDA_SM90_H

#include "cuda/common/pass.h"
#include "ordo/status.h"

/* Runs forward/pass.h or, for head sizes above 256, phase/pass.h. */
ordo_status ordo_sm90_forward(const ordo_cuda_pass *pass, char *why, size_t why_size);

/* Runs backward/pass.h or, for head sizes above 128, phase/pass.h; with dropout up to 256, or with
 * the tiles of that form, wide/pass.h. */
ordo_status ordo_sm90_backward(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
