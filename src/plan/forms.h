/* forms.h: the forms of the backward pass, and the bytes that each moves.
 *
 *   flash  a block keeps a key tile and its dk and dv and walks the query tiles; dq is added in L2
 *   apart  the same for dk and dv; a second kernel keeps a query tile and its dq: seven products.
 *          Counted alone, without kernels
 *   phase  scores to the workspace, then one plain product after another (plan/phase.h); up to
 *          256 columns in chains (ORDO_FORM_CHAIN): as apart for dk and dv, which stores dS; then
 *          one plain product for dq
 *
 * What flash and apart move per score grows with the square of the head size, because the tiles
 * that fit one multiprocessor shrink as it grows; what phase moves grows with the head size itself.
 * So do chains, whose tiles are the same at all head sizes that have them.
 * Tiles decide bits: a plan takes them, and the form, from the committed rows of its family
 * (plan/family.c). Those have the form of ordo_form_choose(), which a test checks for every head
 * size. */
#ifndef PLAN_FORMS_H
#define PLAN_FORMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/for_lab.h"
#include "ordo/plan.h"

enum { ORDO_FORMS = ORDO_FORM_PHASE + 1 }; /* their number; chains are counted as phase */

/* Bytes for so many scores; no scores: the form does not fit. */
typedef struct ordo_traffic {
    int64_t bytes, scores;
} ordo_traffic;

typedef struct ordo_form_counts {
    int64_t flash_rows, flash_keys; /* largest tile that fits registers and shared memory */
    int64_t apart_rows;             /* rows of a tile of the kernel for dq */
    ordo_traffic l2[ORDO_FORMS];    /* between L2 and shared memory */
    ordo_traffic flash_stored;      /* as flash, but dq is read, added and written */
    int64_t hbm[ORDO_FORMS];        /* bytes per score that no cache holds: P and dS */
} ordo_form_counts;

/* Count the bytes per score of the backward pass: 2-byte operands in shared memory, 4-byte sums in
 * registers. Head sizes are at least 8; `shared` is the bytes of shared memory of a block. Keep
 * bits of dropout are not counted. */
ORDO_FOR_LAB ordo_form_counts ordo_forms_count(int64_t head_dim, int64_t v_head_dim,
                                               int64_t shared);

/* Whether the form phase runs in chains. */
ORDO_FOR_LAB bool ordo_form_chained(int64_t head_dim, int64_t v_head_dim);

/* Multiplications per score of a form: the columns of all its products. */
ORDO_FOR_LAB int64_t ordo_form_columns(ordo_form form, int64_t head_dim, int64_t v_head_dim);

/* Whether kernels of a form exist for this head size. */
ORDO_FOR_LAB bool ordo_form_exists(ordo_form form, int64_t head_dim);

/* The form that moves the fewest bytes between L2 and shared memory, of those with five products;
 * and the one that plans take: that one if it has kernels for this head size, else phases, which
 * measure faster than apart in every length. */
ORDO_FOR_LAB ordo_form ordo_form_fewest(const ordo_form_counts *counts);
ORDO_FOR_LAB ordo_form ordo_form_choose(const ordo_form_counts *counts, int64_t head_dim);

#endif
