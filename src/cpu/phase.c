/* phase.c: how many row tiles the backward pass takes together.
 *
 * Taken together, dV and dK of a key tile pass through the caches once for all of them: the phase
 * form of lab/docs/io.md inside one chain. That pays when a tile of dV is large compared with the
 * cache, which the head size decides, and nothing else may. No bit depends on it. It is done where
 * lab/bench/phase.c says that it wins on both kinds of CPU, speed over that of single tiles:
 *
 *   head size              128    256    384    512          576
 *   NEON, Neoverse V1      0.96   1.01   1.05   1.04..1.06   1.05..1.08
 *   AVX-512                0.96   1.01   0.92   1.05         1.10 */
#include "cpu/pass.h"

enum { PHASE_DIM = 512, PHASE_ROWS = 512, LANES = 16 };

static int phase_dim = PHASE_DIM;

void ordo_cpu_phase_force(int head_dim)
{
    phase_dim = head_dim ? head_dim : PHASE_DIM;
}

int ordo_cpu_phase_depth(const ordo_cpu_pass *pass)
{
    const int64_t rows = pass->plan->backward_tile.q;
    const int dim = pass->dim > pass->v_dim ? pass->dim : pass->v_dim;
    /* A vector of rows must not reach into the next tile. */
    if (dim < phase_dim || rows % LANES != 0 || rows > PHASE_ROWS)
        return 1;
    return (int)(PHASE_ROWS / rows);
}
