/* head.h: attention of one query head of one sequence, in double, as a textbook writes it.
 *
 * This is the definition that every backend is held to. Matrices are contiguous, row-major
 * doubles. Every sum runs in ascending order of its index, in one thread. */
#ifndef REF_HEAD_H
#define REF_HEAD_H

#include "base/blocks.h"
#include "base/for_lab.h"
#include "base/keep.h"
#include "ordo/problem.h"

typedef struct ordo_ref_head {
    const ordo_problem *problem; /* resolved; gives dims, scale, mask, window, softcap, alibi */
    int64_t rows, cols;          /* rows of q and of k held here */
    int64_t row0, col0;          /* where they start in the whole sequence */
    int64_t start;               /* columns before it are hidden */
    int64_t diagonal;            /* row i is aligned with column i + diagonal */
    double slope;                /* ALiBi */
    const double *bias;          /* rows x cols, added to the logits; NULL = none */
    const double *sink;          /* a logit in addition to those of the keys; NULL = none */
    ordo_block_view blocks;      /* start NULL: no block mask */

    double keep_scale;    /* factor on what is kept; 0 = no dropout */
    const uint32_t *bits; /* stored keep bits of this head; NULL = generate them from: */
    ordo_keep keep;
    uint32_t bh;
    int64_t bits_cols; /* columns the stored bits are laid out for */

    const double *q, *k, *v;   /* rows x head_dim, cols x head_dim, cols x v_head_dim */
    double *o, *lse;           /* rows x v_head_dim, rows: written forward, read backward */
    const double *dout, *dlse; /* like o and lse; dlse may be NULL */
    double *dq;                /* rows x head_dim, overwritten */
    double *dsink;             /* added to; may be NULL */
    double *dbias;             /* like bias, but rows dbias_row apart; added to; may be NULL */
    int64_t dbias_row;
    double *dk, *dv; /* like k and v, added to: heads that share a key head follow
                        one another */
    double *logits;  /* cols of scratch */
} ordo_ref_head;

ORDO_FOR_LAB void ordo_ref_head_forward(const ordo_ref_head *head);
ORDO_FOR_LAB void ordo_ref_head_backward(const ordo_ref_head *head);

#endif
