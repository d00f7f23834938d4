/* support/unseen.h: keys that no query of a pass sees, where the pass carries sums. They have no
 * chain in the kernels: nothing is computed of them. */
#ifndef CUDA_SUPPORT_UNSEEN_H
#define CUDA_SUPPORT_UNSEEN_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

/* Launch after the chains, before the repair. Of unseen keys, sums that came in but do not go out
 * become dk and dv, sums that go out but did not come in become 0, and others stay: nothing is
 * launched then, nor where it is known that all keys are seen. */
ordo_status ordo_backward_unseen(const ordo_cuda_pass *pass);

#endif
