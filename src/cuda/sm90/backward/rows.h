/* sm90/backward/rows.h: the arguments of the chains, and dQ after them. */
#ifndef CUDA_SM90_BACKWARD_ROWS_H
#define CUDA_SM90_BACKWARD_ROWS_H

#include "cuda/sm90/backward/args.h"
#include "cuda/support/statistics.h"
#include "ordo/status.h"

/* Arguments of the chains with tiles of `rows` queries and `keys` keys, and how many blocks. */
ordo_status ordo_backward_arguments(const ordo_cuda_pass *pass, int rows, int keys,
                                    ordo_backward_args *args, int *blocks, char *why,
                                    size_t why_size);

/* Launch the last kernels: dq = scale * dq_sum for buckets 64 and 128, if dq is wanted, then the
 * repair of rows that are not finite. `early`: overlap the last chains, converting each tile after
 * its last turn. */
ordo_status ordo_backward_end(const ordo_cuda_pass *pass, bool early, char *why, size_t why_size);

/* The general instances for buckets 64 and 128, after the table of sequences. */
ordo_status ordo_backward_general_bf16(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_backward_general_f16(const ordo_cuda_pass *pass, char *why, size_t why_size);

/* With a block mask, and whatever of the gradients is wanted. */
ordo_status ordo_backward_blocks_bf16(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_backward_blocks_f16(const ordo_cuda_pass *pass, char *why, size_t why_size);

/* Passes that compute only dk and dv. */
ordo_status ordo_backward_keys_bf16(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_backward_keys_f16(const ordo_cuda_pass *pass, char *why, size_t why_size);

/* The same for passes that compute only dq. */
ordo_status ordo_backward_queries_bf16(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_backward_queries_f16(const ordo_cuda_pass *pass, char *why, size_t why_size);

/* Plain passes that carry sums of dK and dV. */
ordo_status ordo_backward_carry_bf16(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_backward_carry_f16(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
