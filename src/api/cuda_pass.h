/* cuda_pass.h: passes of cuda plans: what the kernels can do, and a call as they take it. */
#ifndef API_CUDA_PASS_H
#define API_CUDA_PASS_H

#include "api/call.h"
#include "cuda/common/pass.h"
#include "plan/workspace.h"

/* Whether the kernels can run a checked call; ORDO_ERR_UNSUPPORTED or ORDO_ERR_ALIGN and what is in
 * the way if not. Then `pass` is the call as the module takes it. */
ordo_status ordo_cuda_pass_make(const ordo_plan *plan, ordo_pass which, const ordo_call *call,
                                ordo_cuda_pass *pass);

/* Whether there is a device to launch on; if not, ordo_cuda_why_not() is the message. */
ordo_status ordo_cuda_ready(void);

/* Launch a checked call. */
ordo_status ordo_cuda_forward(const ordo_plan *plan, const ordo_call *call);
ordo_status ordo_cuda_backward(const ordo_plan *plan, const ordo_call *call);

/* Launch a checked combination. */
ordo_status ordo_cuda_combine_run(const ordo_plan *plan, const ordo_combine *combine);

/* Why nothing can be launched here: no module, no driver, no device of compute capability 9.0; ""
 * if it can. Found out once for the process. */
const char *ordo_cuda_why_not(void);

#endif
