/* dispatch.h: a pass in the kernels of its set and form. Both launch on the pass's stream and
 * return; a status other than ORDO_OK comes before anything was launched.
 */
#ifndef CUDA_DISPATCH_H
#define CUDA_DISPATCH_H

#include "cuda/pass/pages.h"
#include "ordo/status.h"

/* `pages`: where k and v are, if not NULL. */
ordo_status ordo_cuda_launch_forward(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages);
ordo_status ordo_cuda_launch_backward(const ordo_cuda_pass *pass);

#endif
