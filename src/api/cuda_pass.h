/* cuda_pass.h: passes of cuda plans: the last checks, and the call as the CUDA module takes it. */
#ifndef API_CUDA_PASS_H
#define API_CUDA_PASS_H

#include "api/call.h"
#include "base/for_lab.h"
#include "cuda/pass/pages.h"
#include "plan/workspace.h"

/* Translate a checked call into `pass`, the form that the module takes. Returns
 * ORDO_ERR_UNSUPPORTED or ORDO_ERR_ALIGN with the reason if the kernels cannot run it. */
ORDO_FOR_LAB ordo_status ordo_cuda_pass_make(const ordo_plan *plan, ordo_pass which,
                                             const ordo_call *call, ordo_cuda_pass *pass);

/* The pages of a checked call with problem.paging. */
ordo_cuda_pages ordo_cuda_pages_of(const ordo_plan *plan, const ordo_call *call);

/* Return ORDO_OK if there is a device to launch on: sums, keep bits, merges and digests run on
 * every one. Else an error that says why: no module, no driver, no device. */
ordo_status ordo_cuda_ready(void);

/* Launch a checked call. */
ordo_status ordo_cuda_forward(const ordo_plan *plan, const ordo_call *call);
ordo_status ordo_cuda_backward(const ordo_plan *plan, const ordo_call *call);

/* Launch a checked ordo_attention_combine(). */
ordo_status ordo_cuda_combine_run(const ordo_plan *plan, const ordo_combine *combine);

/* The reason why no pass can be launched: no module, no driver, or no device of a family
 * (plan/family.h); "" if there is none. It is found out once per process. */
const char *ordo_cuda_why_not(void);

#endif
