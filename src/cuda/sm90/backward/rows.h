/* sm90/backward/rows.h: the arguments of the chains, and dQ after them. */
#ifndef CUDA_SM90_BACKWARD_ROWS_H
#define CUDA_SM90_BACKWARD_ROWS_H

#include "cuda/sm90/backward/args.h"
#include "cuda/support/statistics.h"
#include "ordo/status.h"

/* Arguments of the chains with tiles of `rows` queries and `keys` keys, and how many blocks. */
ordo_status ordo_backward_arguments(const ordo_cuda_pass *pass, int rows, int keys,
                                    ordo_backward_args *args, int *blocks);

/* Launch row statistics, the chains of an instance, and dQ. */
ordo_status ordo_backward_run(const ordo_cuda_pass *pass, ordo_backward_instance instance);

/* Launch the last kernels: dq = scale * dq_sum for buckets 64 and 128, if dq is wanted, then the
 * repair of rows that are not finite. `early`: overlap the last chains, converting each tile after
 * its last turn. */
ordo_status ordo_backward_end(const ordo_cuda_pass *pass, bool early);

#endif
