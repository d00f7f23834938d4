/* phase.c: how many row tiles the backward pass takes together.
 *
 * Taken together, dV and dK of a key tile pass through the caches once for all of them: the phase
 * form of docs/io.md inside one chain. That pays when a tile of dV is large beside the cache, which
 * the head size decides, and nothing else may. No bit depends on it. bench/phase.c on a Neoverse
 * V1: 0.96 of the speed of single tiles at head size 128, 1.0 at 256, 1.04 to 1.08 from 384 on. */
#include "cpu/pass.h"

enum { PHASE_DIM = 384, PHASE_ROWS = 512, LANES = 16 };

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
