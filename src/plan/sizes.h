/* sizes.h: sizes of the backends that a workspace depends on; they decide no bit. */
#ifndef PLAN_SIZES_H
#define PLAN_SIZES_H

#include "plan/plan.h"
#include "plan/sm90_tiles.h"

/* ---- CPU ---- */

/* Largest number of query tiles that one item of the forward pass takes together. */
enum { ORDO_ITEM_TILES = 8 };

/* Distance in floats between the rows of a panel with `n` columns: `n` rounded up to whole vectors
 * of 16, and never a multiple of 64, because then all rows would fall into a few sets of a cache.
 */
static inline int ordo_panel_row(int64_t n)
{
    const int padded = (int)(n + 15) / 16 * 16;
    return padded % 64 == 0 ? padded + 16 : padded;
}

/* ---- CUDA ---- */

/* Bytes of one entry in the table of sequences. */
enum { ORDO_SEQUENCE_BYTES = 80 };

/* Block masks: bytes of a word of a row of bits, tiles of a word, and rows of a query tile in the
 * lists of the forward pass, one warpgroup's: cuda/common/blocks.h. */
enum {
    ORDO_TILE_WORD_BYTES = 16,
    ORDO_TILE_SPAN_BYTES = 8,
    ORDO_TILE_WORD = 32,
    ORDO_FORWARD_LIST_ROWS = 64
};

/* The head size that the kernels are compiled for and that serves this plan: 64, 128, 256, or up to
 * 576. */
static inline int ordo_plan_bucket(const ordo_plan *plan)
{
    const int64_t q = plan->problem.head_dim, v = plan->problem.v_head_dim, dim = q > v ? q : v;
    return dim <= 64 ? 64 : dim <= 128 ? 128 : dim <= 256 ? 256 : 576;
}

/* Whether a pass of a CUDA plan runs by phases: plan/phase.h. All forward passes above head size
 * 256 do; a backward pass above 128, if its tiles are those of the phases. */
static inline bool ordo_plan_by_phases(const ordo_plan *plan, ordo_pass pass)
{
    const int bucket = ordo_plan_bucket(plan);
    if (plan->backend != ORDO_BACKEND_CUDA || bucket < 256)
        return false;
    return pass == ORDO_FORWARD ? bucket > 256
                                : plan->backward_tile.q == ORDO_SM90_BACKWARD_Q(576) &&
                                      plan->backward_tile.k == ORDO_SM90_BACKWARD_K(576);
}

/* Whether a backward pass by phases computes dK, dV and dS in one kernel, which keeps P on the chip
 * (cuda/phase/chain.h). It has no dropout, which head sizes like these have other kernels for. A
 * pass of dq alone does not run in that kernel, and stores no P either. */
static inline bool ordo_plan_chained(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    return ordo_plan_by_phases(plan, ORDO_BACKWARD) && p->dropout.p == 0 &&
           p->head_dim <= ORDO_SM90_CHAIN_D && p->v_head_dim <= ORDO_SM90_CHAIN_D;
}

/* Whether passes must be given the keep bits: no CUDA kernel makes those of keying fa2, and those
 * that run by phases make none. */
static inline bool ordo_plan_needs_bits(const ordo_plan *plan)
{
    const ordo_dropout *d = &plan->problem.dropout;
    return d->p > 0 && plan->backend == ORDO_BACKEND_CUDA &&
           (d->keying == ORDO_KEYING_FA2 || ordo_plan_by_phases(plan, ORDO_BACKWARD));
}

/* Whether a backward pass of a CUDA plan runs in the split kernels of wide heads. */
static inline bool ordo_plan_split(const ordo_plan *plan)
{
    return plan->backend == ORDO_BACKEND_CUDA && ordo_plan_bucket(plan) == 256 &&
           plan->backward_tile.q == ORDO_SM90_BACKWARD_Q(256) &&
           plan->backward_tile.k == ORDO_SM90_BACKWARD_K(256);
}

static inline ordo_form ordo_plan_form(const ordo_plan *plan)
{
    return ordo_plan_by_phases(plan, ORDO_BACKWARD) ? ORDO_FORM_PHASE
           : ordo_plan_split(plan)                  ? ORDO_FORM_SPLIT
                                                    : ORDO_FORM_FLASH;
}

#endif
