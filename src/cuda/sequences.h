/* sequences.h: what packed and padded batches need around a pass: the table of their sequences, and
 * zeros where a padded tensor has no rows. */
#ifndef CUDA_SEQUENCES_H
#define CUDA_SEQUENCES_H

#include "cuda/pass.h"
#include "ordo/status.h"

ordo_status ordo_sm90_sequences(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_sm90_clear_forward(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_sm90_clear_backward(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
