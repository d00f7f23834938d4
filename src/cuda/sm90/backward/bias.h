/* sm90/backward/bias.h: the gradient of a bias. */
#ifndef CUDA_SM90_BACKWARD_BIAS_H
#define CUDA_SM90_BACKWARD_BIAS_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

/* Launch what writes pass->bias.grad, after the chains: it reads the statistics of rows. */
ordo_status ordo_backward_bias(const ordo_cuda_pass *pass);

#endif
