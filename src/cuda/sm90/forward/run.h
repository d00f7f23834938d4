/* sm90/forward/run.h: how an instance of the forward kernels is launched. */
#ifndef CUDA_SM90_FORWARD_RUN_H
#define CUDA_SM90_FORWARD_RUN_H

#include "cuda/sm90/forward/args.h"
#include "cuda/support/launch.h"

/* Clear the ticket and the flag after it, unless ordo_cuda_sequences() has cleared them. */
ordo_status ordo_forward_clear(const ordo_cuda_pass *pass);

/* The largest power of 2 that divides a page and a tile of `columns` keys. */
int32_t ordo_forward_copy_shift(const ordo_cuda_pages *pages, int32_t columns);

/* The maps of k and v, and what else of `args` is of pages. */
ordo_status ordo_forward_map_keys(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages,
                                  int32_t columns, ordo_paged_args *args);

/* Launch an instance alone. */
ordo_status ordo_forward_launch(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages,
                                const ordo_forward_instance *kernel, ordo_launch kind);

/* Launch an instance that runs the pass, which has no pages, with the kernels before and after it.
 */
ordo_status ordo_forward_run(const ordo_cuda_pass *pass, ordo_forward_instance instance);

#endif
