/* sm90/passes.h: both passes in the kernels of this set, by form (sm90/FOLDER/pass.cu). */
#ifndef CUDA_SM90_PASSES_H
#define CUDA_SM90_PASSES_H

#include "cuda/pass/pages.h"
#include "ordo/status.h"

/* Head sizes up to 256. `pages`: where k and v are, if not NULL. */
ordo_status ordo_wgmma_forward_flash(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages);
ordo_status ordo_wgmma_backward_flash(const ordo_cuda_pass *pass); /* up to 128 */
ordo_status ordo_wgmma_forward_phases(const ordo_cuda_pass *pass);
ordo_status ordo_wgmma_backward_phases(const ordo_cuda_pass *pass); /* in chains, too */

#endif
