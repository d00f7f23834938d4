/* backward_rows.h: what stands around the chains: row statistics before them, dQ after them. */
#ifndef CUDA_BACKWARD_ROWS_H
#define CUDA_BACKWARD_ROWS_H

#include "cuda/backward.h"
#include "ordo/status.h"

/* Arguments of the chains with tiles of `rows` queries and `keys` keys, and how many blocks. */
ordo_status ordo_backward_arguments(const ordo_cuda_pass *pass, int rows, int keys,
                                    ordo_backward_args *args, int *blocks, char *why,
                                    size_t why_size);

/* Before: delta and lse2 of every row, turns, ticket and flag to zero; `clear` also dq_sum. */
ordo_status ordo_backward_begin(const ordo_cuda_pass *pass, bool clear, char *why, size_t why_size);

/* After: dq = scale dq_sum as bf16, in rows. `early`: beside the last chains, tile by tile as the
 * last turn of each has passed. Then the repair of what is not finite. */
ordo_status ordo_backward_end(const ordo_cuda_pass *pass, bool early, char *why, size_t why_size);

#endif
