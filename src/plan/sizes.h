/* sizes.h: sizes of the backends that a workspace depends on; they decide no bit. */
#ifndef PLAN_SIZES_H
#define PLAN_SIZES_H

#include "plan/plan.h"

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
 * lists of the forward pass, one warpgroup's: cuda/pass/blocks.h. */
enum {
    ORDO_TILE_WORD_BYTES = 16,
    ORDO_TILE_SPAN_BYTES = 8,
    ORDO_TILE_WORD = 32,
    ORDO_FORWARD_LIST_ROWS = 64
};

/* Keys in pages: query heads that share keys, and head sizes, that the kernels take. */
enum { ORDO_PAGED_GROUP_MAX = 64, ORDO_PAGED_DIM_MAX = 256 };

/* Long sequences that are spread over multiprocessors (cuda/pass/spread.h), in passes with at most
 * so many rows of the query heads that share keys. At most UNITS - 1 pairs of a sequence and a key
 * head are long, and they have LEAST key tiles. */
enum {
    ORDO_SPREAD_LINES = 16,
    ORDO_SPREAD_GROUP = 8, /* lines that are stored together */
    ORDO_SPREAD_RUN = 16,  /* slots: a sequence has whole runs of them */
    ORDO_SPREAD_UNITS = 56,
    ORDO_SPREAD_LEAST = 16,
    ORDO_SPREAD_LIST_BYTES = 512,
    ORDO_SPREAD_BYTES_MAX = 256 << 20
};

/* Whether a pass stores its scores in panels of the workspace: plan/phase.h. */
static inline bool ordo_plan_by_phases(const ordo_plan *plan, ordo_pass pass)
{
    const ordo_form form = pass == ORDO_FORWARD ? plan->forward_form : plan->backward_form;
    return form == ORDO_FORM_PHASE || form == ORDO_FORM_CHAIN;
}

/* The number of sequences of maximal length that stand for a batch: its size; of a packed batch as
 * many as its rows fill, but no more than it has, since rows may follow the last end. */
static inline int64_t ordo_plan_sequences(const ordo_problem *p)
{
    const int64_t filled = p->layout == ORDO_PACKED ? (p->total_q + p->q_len - 1) / p->q_len : 0;
    return p->layout == ORDO_PACKED && filled < p->batch ? filled : p->batch;
}

/* Whether passes must be given the keep bits: no CUDA kernel makes those of keying fa2, and passes
 * of the form phase make none. */
static inline bool ordo_plan_needs_bits(const ordo_plan *plan)
{
    const ordo_dropout *d = &plan->problem.dropout;
    return d->p > 0 && plan->backend == ORDO_BACKEND_CUDA &&
           (d->keying == ORDO_KEYING_FA2 || plan->backward_form == ORDO_FORM_PHASE);
}

/* The dropout mode of a plan of which no machine is known: fused, which needs no memory, where
 * there is a kernel that makes the bits. */
static inline ordo_dropout_mode ordo_plan_default_mode(const ordo_plan *plan)
{
    if (plan->segments > 0)
        return ORDO_DROPOUT_MODE_PIPELINED;
    return ordo_plan_needs_bits(plan) ? ORDO_DROPOUT_MODE_SEQUENTIAL : ORDO_DROPOUT_MODE_FUSED;
}

#endif
