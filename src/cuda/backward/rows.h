/* backward/rows.h: what stands around the chains: row statistics before them, dQ after them. */
#ifndef CUDA_BACKWARD_ROWS_H
#define CUDA_BACKWARD_ROWS_H

#include "cuda/backward/args.h"
#include "ordo/status.h"

/* Whether the plain instances of the kernels run a pass: dense, bf16, a head size that is a
 * bucket's, no window, no softcap, no ALiBi, no gradient of lse, and no dropout or given bits. They
 * number tiles (sequence, head, tile), the general ones (head, tile of all sequences). */
bool ordo_backward_plain(const ordo_cuda_pass *pass);

/* Arguments of the chains with tiles of `rows` queries and `keys` keys, and how many blocks. */
ordo_status ordo_backward_arguments(const ordo_cuda_pass *pass, int rows, int keys,
                                    ordo_backward_args *args, int *blocks, char *why,
                                    size_t why_size);

/* Before: delta and lse2 of every row, turns, ticket and flag to zero; `clear`, of plain passes,
 * also dq_sum. Any bucket. */
ordo_status ordo_backward_begin(const ordo_cuda_pass *pass, bool clear, char *why, size_t why_size);

/* After: dq = scale dq_sum in rows; buckets 64 and 128. `early`: beside the last chains, tile by
 * tile as the last turn of each has passed. Then the repair of what is not finite. */
ordo_status ordo_backward_end(const ordo_cuda_pass *pass, bool early, char *why, size_t why_size);

/* The general instances for buckets 64 and 128, behind the table of sequences. */
ordo_status ordo_backward_general_bf16(const ordo_cuda_pass *pass, char *why, size_t why_size);
ordo_status ordo_backward_general_f16(const ordo_cuda_pass *pass, char *why, size_t why_size);

#endif
