/* backward/rows.h: what stands around the chains: their arguments before them, dQ after them. */
#ifndef CUDA_BACKWARD_ROWS_H
#define CUDA_BACKWARD_ROWS_H

#include "cuda/backward/args.h"
#include "cuda/common/rows.h"
#include "ordo/status.h"

/* Arguments of the chains with tiles of `rows` queries and `keys` keys, and how many blocks. */
ordo_status ordo_backward_arguments(const ordo_cuda_pass *pass, int rows, int keys,
                                    ordo_backward_args *args, int *blocks, char *why,
                                    size_t why_size);

/* After: dq = scale dq_sum in rows; buckets 64 and 128. `early`: beside the last chains, tile by
 * tile as the last turn of each has passed. Then the repair of what is not finite. */
ordo_status ordo_backward_end(const ordo_cuda_pass *pass, bool early, char *why, size_t why_size);

/* The general instances for buckets 64 and 128, behind the table of sequences. */
ordo_status ordo_backward_general_bf16(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_backward_general_f16(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
