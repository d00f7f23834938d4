/* phase/args.h: arguments and instances of the kernels of the passes by phases. */
#ifndef CUDA_PHASE_ARGS_H
#define CUDA_PHASE_ARGS_H

#include <cuda.h>

#include "cuda/common/pass.h"
#include "cuda/common/score.h"
#include "cuda/phase/units.h"

enum { PHASE_THREADS = 384 };

/* What all kernels read. */
typedef struct ordo_phase_common {
    ordo_cuda_batch batch;
    ordo_phase_panel panel;
    int32_t kv_heads, group_heads;
    int32_t together;     /* heads whose units are taken together */
    int32_t *ticket;      /* zero at the launch */
    float *stat, *weight; /* a row's, padded and permuted like lse2 and delta of a pass, which these
                           * are in the backward pass. Forward: the shift of its exponents, and the
                           * factor of its outputs */
} ordo_phase_common;

/* phase/stats.h: the largest score and the sum of every row. */
typedef struct ordo_phase_stats {
    CUtensorMap q, k;
    ordo_phase_common all;
    int32_t head_dim;
    ordo_score_rule rule;
    bool ruled;              /* scores become logits in base 2 first */
    float scale, scale_log2; /* of scores, or of logits in base 2 */
    float keep_scale;        /* factor of outputs */
    const float *slopes;
    int64_t slopes_sequence;
    float *lse;
} ordo_phase_stats;

/* phase/scores.h: P, and in the backward pass dS. */
typedef struct ordo_phase_scores {
    CUtensorMap q, k, v, dout;
    ordo_phase_common all;
    int32_t head_dim, v_head_dim;
    int32_t chunks;  /* of PHASE_CHUNK tiles of keys, of the longest sequence */
    int32_t columns; /* of a row of p and ds */
    uint16_t *p, *ds;
    ordo_score_rule rule;
    bool ruled;
    const float *slopes;
    int64_t slopes_sequence;
    const uint2 *keep_bits; /* NULL: no dropout */
} ordo_phase_scores;

/* phase/product.h: O or dQ, by queries; dV and dK, by keys. */
typedef struct ordo_phase_factors {
    CUtensorMap a, b;     /* P or dS; what it is multiplied by */
    ordo_cuda_tensor out; /* data NULL: sums are left instead */
    int32_t columns;      /* of out */
    float scale;          /* of out */
    const float *before;  /* by keys: the sums that a pass before left, or NULL */
    float *sums;          /* by keys: those of an earlier panel, and for a later one */
} ordo_phase_factors;

typedef struct ordo_phase_product {
    ordo_phase_factors factors[2]; /* by queries one, by keys two */
    ordo_phase_common all;
    bool weighted; /* by queries: rows are multiplied by their weight, not by `scale` */
    bool down;     /* by keys: query tiles are visited downwards */
    int64_t kv_rows;
    int32_t *flag; /* set if an output is not finite */
} ordo_phase_product;

typedef struct ordo_phase_kernel {
    const void *kernel;
    unsigned shared_bytes;
} ordo_phase_kernel;

/* Instances. */
ordo_phase_kernel ordo_phase_stats_kernel(bool f16);
ordo_phase_kernel ordo_phase_scores_kernel(bool f16, bool backward);
ordo_phase_kernel ordo_phase_queries_kernel(bool f16, int columns);
ordo_phase_kernel ordo_phase_keys_kernel(bool f16, int columns);

/* Columns that one unit of a product has, for outputs of `columns` columns: the fewest in all. */
ORDO_HD int32_t ordo_phase_width(int32_t columns)
{
    return (columns + 191) / 192 * 192 < (columns + 255) / 256 * 256 ? 192 : 256;
}

#endif
