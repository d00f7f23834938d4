/* sm90/phases/args.h: arguments of the kernels of the passes by phases. */
#ifndef CUDA_SM90_PHASES_ARGS_H
#define CUDA_SM90_PHASES_ARGS_H

#include <cuda.h>

#include "cuda/pass/panels.h"
#include "cuda/support/common.h"
#include "ordo/status.h"

enum { PHASE_THREADS = 384 };

/* Index of a row's factor for key tile j, of the query tile in a slot. */
ORDO_HD int64_t phase_shrink(int64_t slot, int32_t columns, int32_t j, int32_t row)
{
    return (slot * (columns / PHASE_KEYS) + j) * PHASE_ROWS + row;
}

/* What all kernels read. phase.p and phase.ds: NULL, too, if nothing reads them. lse2 and delta: a
 * row's, padded and permuted; forward, delta alone: the factor of the row's outputs. */
struct ordo_phase_common : ordo_pass_common {
    ordo_phase_panel panel;
    ordo_phase_lines lines; /* layout of dS^T */
    int32_t together;       /* heads whose units are taken together */
    int32_t *next;          /* unit of this kernel; zero at the launch */
};

/* sm90/phases/softmax.h: P of the forward pass, and lse; sm90/phases/scores.h: P and dS. */
struct ordo_phase_maps {
    struct {
        CUtensorMap q, k, v, dout; /* forward: q and k */
    } map;
};

struct ordo_phase_scores : ordo_phase_maps, ordo_phase_common {
    int32_t chunks;  /* chunks of PHASE_CHUNK key tiles in the longest sequence */
    float out_scale; /* forward: factor of outputs */
};

/* sm90/phases/product.h: O or dQ, by queries; dV and dK, by keys. */
typedef struct ordo_phase_factors {
    CUtensorMap a, b;     /* P or dS; what it is multiplied by */
    ordo_cuda_tensor out; /* data NULL: sums are left instead */
    int32_t columns;      /* columns of out */
    float scale;          /* factor of out; O: each row has its own, in delta */
    const float *before;  /* by keys: the sums that a pass before left, or NULL */
    float *sums;          /* by keys: those of an earlier panel, and for a later one */
    float *left;          /* by keys: the sums that are carried out, if a unit has whole rows; else
                           * NULL, and they stay in `sums` */
    uint8_t *broken;      /* with `left`: one byte per row: not stored */
    CUtensorMap came;     /* by keys: of `before`, if a unit has whole rows */
} ordo_phase_factors;

struct ordo_phase_products {
    ordo_phase_factors factors[2]; /* by queries one, by keys two */
};

struct ordo_phase_product : ordo_phase_products, ordo_phase_common {
    bool down;  /* by keys: query tiles are visited downwards */
    bool whole; /* by keys: a unit has whole rows */
};

/* sm90/phases/chain.h: dV, dK and dS^T in one kernel. The maps of P and dS are not used. */
struct ordo_phase_chain_maps {
    struct {
        CUtensorMap k, v;
    } map;
};

struct ordo_phase_chains : ordo_phase_chain_maps, ordo_phase_product {
};

/* sm90/phases/leave.cu: copy the sums of `heads` key heads, from `head` on, from pass->phase to
 * pass->carry. A row with a value that is not finite stays as it came in, and is marked for the
 * repair. */
ordo_status ordo_phase_leave(const ordo_cuda_pass *pass, int32_t head, int32_t heads);

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
