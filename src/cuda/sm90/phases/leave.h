/* sm90/phases/leave.h: store the carried sums of dK and dV of a backward pass by phases whose rows
 * several blocks compute. */
#ifndef CUDA_SM90_PHASES_LEAVE_H
#define CUDA_SM90_PHASES_LEAVE_H

#include "cuda/pass/panels.h"
#include "cuda/pass/pass.h"
#include "ordo/status.h"

typedef struct ordo_phase_left {
    ordo_cuda_pass pass;
    int32_t head, heads; /* key heads of the section */
} ordo_phase_left;

/* Copy the sums of `heads` key heads from pass->phase to pass->carry. A row with a value that is
 * not finite stays as it came in, and is marked for the repair. */
ordo_status ordo_phase_leave(const ordo_cuda_pass *pass, int32_t head, int32_t heads);

#endif
