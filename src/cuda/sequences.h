/* sequences.h: a batch whose lengths the device alone knows: its table, and what it leaves out. */
#ifndef CUDA_SEQUENCES_H
#define CUDA_SEQUENCES_H

#include "cuda/pass.h"
#include "ordo/status.h"

ordo_status ordo_sm90_sequences(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_sm90_clear_forward(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_sm90_clear_backward(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
