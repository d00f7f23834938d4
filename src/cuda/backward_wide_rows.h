/* backward_wide_rows.h: the backward pass of head sizes 129 to 256, and what stands before it. */
#ifndef CUDA_BACKWARD_WIDE_ROWS_H
#define CUDA_BACKWARD_WIDE_ROWS_H

#include "cuda/pass.h"
#include "ordo/status.h"

ordo_status ordo_sm90_backward_wide(const ordo_cuda_pass *pass, char *why, size_t why_size);

/* Delta and lse2 of every row, ticket, flag and turns to zero. */
ordo_status ordo_wide_begin(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
