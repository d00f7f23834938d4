/* backward_fixed.h: the backward pass with dQ summed as integers, in whatever order they come.
 *
 * Each row of dQ is counted in units of its own power of two, chosen so that its sum cannot leave
 * 32 bits. Integer additions commute: no turns, no resident blocks, and the same bits under every
 * order, schedule and number of workers (of dQ; dK and dV are those of the ordered form).
 *
 * With P_ij = exp(S_ij - lse_i), whose sum over keys is 1, and n_j the largest |K_jc| of a key,
 *
 *   |dQ_ic| = |sum_j P_ij (dO_i V_j - delta_i) K_jc| <= |dO_i| max_j |V_j| n_j + |delta_i| max_j
 * n_j
 *
 * over the keys that row i may see; so is the sum over any part of the keys. What is not finite
 * makes the row's unit NaN, and the row comes out as NaN. */
#ifndef CUDA_BACKWARD_FIXED_H
#define CUDA_BACKWARD_FIXED_H

#include "cuda/pass.h"
#include "ordo/status.h"

enum { ORDO_FIXED_KEYS = 128 }; /* keys that share a bound */

/* Workspace beside that of the pass. */
typedef struct ordo_fixed_work {
    float *row_units;  /* a row each, rows padded to whole tiles: integers a unit of dQ */
    float *key_bounds; /* two for ORDO_FIXED_KEYS keys of a key head: max |V_j| n_j, max n_j */
} ordo_fixed_work;

ordo_status ordo_sm90_backward_fixed(const ordo_cuda_pass *pass, const ordo_fixed_work *work,
                                     char *why, size_t why_size);

#endif
