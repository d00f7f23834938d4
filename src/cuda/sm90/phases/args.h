/* sm90/phases/args.h: arguments of the kernels of the passes by phases. */
#ifndef CUDA_SM90_PHASES_ARGS_H
#define CUDA_SM90_PHASES_ARGS_H

#include <cuda.h>

#include "cuda/pass/panels.h"
#include "cuda/support/common.h"

enum { PHASE_THREADS = 384 };

/* What all kernels read. */
struct ordo_phase_common : ordo_pass_common { /* ticket: of this kernel, zero at the launch */
    ordo_phase_panel panel;
    int32_t together;     /* heads whose units are taken together */
    float *stat, *weight; /* a row's, padded and permuted: lse2 and delta of a backward pass.
                           * Forward: weight only, the factor of the row's outputs */
};

/* Index of a row's factor for key tile j, of the query tile in a slot. */
ORDO_HD int64_t phase_shrink(int64_t slot, int32_t columns, int32_t j, int32_t row)
{
    return (slot * (columns / PHASE_KEYS) + j) * PHASE_ROWS + row;
}

/* sm90/phases/softmax.h: P of the forward pass, and lse. */
typedef struct ordo_phase_softmax {
    CUtensorMap q, k;
    ordo_phase_common all;
    int32_t columns; /* of a row of p */
    uint16_t *p;
    float *shrink;     /* what a row's sums are multiplied by before a key tile is added */
    float out_scale;   /* factor of outputs */
    const float *sink; /* one logit per query head, or NULL */
    float *lse;
} ordo_phase_softmax;

/* sm90/phases/scores.h: P and dS of the backward pass. */
typedef struct ordo_phase_scores {
    CUtensorMap q, k, v, dout;
    ordo_phase_common all;
    int32_t chunks;   /* of PHASE_CHUNK tiles of keys, of the longest sequence */
    int32_t columns;  /* of a row of p and ds */
    uint16_t *p, *ds; /* p NULL: nothing reads it */
} ordo_phase_scores;

/* sm90/phases/product.h: O or dQ, by queries; dV and dK, by keys. */
typedef struct ordo_phase_factors {
    CUtensorMap a, b;     /* P or dS; what it is multiplied by */
    ordo_cuda_tensor out; /* data NULL: sums are left instead */
    int32_t columns;      /* of out */
    float scale;          /* of out */
    const float *before;  /* by keys: the sums that a pass before left, or NULL */
    float *sums;          /* by keys: those of an earlier panel, and for a later one */
    float *left;          /* by keys: the sums that are carried out, if a unit has whole rows; else
                           * NULL, and they stay in `sums` */
    uint8_t *broken;      /* with `left`: one byte per row: not stored */
    CUtensorMap came;     /* by keys: of `before`, if a unit has whole rows */
} ordo_phase_factors;

typedef struct ordo_phase_product {
    ordo_phase_factors factors[2]; /* by queries one, by keys two */
    ordo_phase_common all;
    const float *shrink; /* O: as above. Its rows are multiplied by their weight, not by `scale` */
    int32_t columns;     /* O: of a row of P */
    ordo_phase_lines lines; /* dQ from dS^T */
    bool down;              /* by keys: query tiles are visited downwards */
    bool whole;             /* by keys: a unit has whole rows */
    int64_t kv_rows;
    int32_t *flag; /* set if an output is not finite */
} ordo_phase_product;

/* sm90/phases/chain.h: dV, dK and dS^T in one kernel. */
typedef struct ordo_phase_chains {
    CUtensorMap k, v;
    ordo_phase_product product; /* of dV and dK; the maps of P and dS are not used */
    ordo_phase_lines lines;     /* of dS^T */
    uint16_t *ds;               /* dS^T, PHASE_ROWS queries in a row; NULL: nothing reads it */
} ordo_phase_chains;

/* A kernel and its shared memory. */
typedef struct ordo_phase_kernel {
    const void *kernel;
    unsigned shared_bytes;
} ordo_phase_kernel;

/* Columns that one unit of a product has, for outputs of `columns` columns: the fewest in all. */
ORDO_HD int32_t ordo_phase_width(int32_t columns)
{
    return (columns + 191) / 192 * 192 < (columns + 255) / 256 * 256 ? 192 : 256;
}

#endif
