/* pass/pass.h: one checked call as plain numbers and pointers.
 *
 * libordo fills it from a plan and a call; the module reads nothing else. Plain C. */
#ifndef CUDA_PASS_PASS_H
#define CUDA_PASS_PASS_H

#include "base/keep.h"
#include "cuda/pass/blocks.h"
#include "cuda/pass/sequence.h"
#include "ordo/dropout.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "plan/family.h"

/* Indexed (sequence, row, head, dim); the last stride is 1, the others count elements. */
typedef struct ordo_cuda_tensor {
    void *data;
    int64_t sequence, row, head;
} ordo_cuda_tensor;

/* Sums of dK and dV that continue those of the pass before, or are left for the next one: raw
 * accumulators, before they are scaled and rounded. Contiguous: (sequence, row, head, dim). */
typedef struct ordo_cuda_carry {
    bool in, out;   /* out: left in dk and dv here, and the gradients dk and dv are not written */
    float *dk, *dv; /* 16-byte aligned; NULL if neither in nor out */
    /* Workspace, `out` only: one byte per row (sequence, row, head), cleared by the pass's first
     * kernel. Nonzero: the pass computed a value that is not finite and has not stored the row, so
     * that the repair finds what came in. */
    uint8_t *dk_broken, *dv_broken;
} ordo_cuda_carry;

/* Workspace of a pass by phases or in chains, and its panels: plan/phase.h. */
typedef struct ordo_cuda_phase {
    int32_t section;  /* key heads whose scores are in the workspace at a time */
    int32_t tiles;    /* query tiles of one head, likewise */
    int32_t columns;  /* columns of a row of p and ds */
    uint16_t *p, *ds; /* (query head of the section, query tile of the panel, row, key); forward:
                       * p only; in chains: ds alone, lines of dS^T, ordo_phase_lines */
    float *shrink;    /* forward: one per row of each key tile of p */
    float *dk, *dv;   /* backward: sums (sequence, row, head of the section, dim) */
    /* Backward, in chains: bytes of ds, and of ds, dk and dv, which follow each other: dS^T takes
     * the place of the sums, too, where one panel has all tiles. */
    int64_t score_bytes, all_bytes;
} ordo_cuda_phase;

/* Inputs of the table of sequences, whose lengths only the device knows. */
typedef struct ordo_cuda_ragged {
    const int32_t *cu_q, *cu_kv;     /* packed: on the device; cu_kv NULL: kv_lens */
    const int32_t *q_lens, *kv_lens; /* padded: on the device; NULL: all are the largest */
    const int64_t *ids;              /* for dropout, on the device; NULL: batch0, batch0 + 1, ... */
    uint32_t batch0;
    int32_t forward_rows, backward_rows, backward_keys; /* tiles */
    ordo_mask mask;
    int32_t left, right; /* ends of the window; -1: open */
    int32_t shift;       /* moves the diagonal: a shard's, of a dense batch run as a padded one */
} ordo_cuda_ragged;

/* What is added to scores; data NULL: nothing. Strides in elements, 0 where an axis is shared;
 * columns are one apart. */
typedef struct ordo_cuda_bias {
    const void *data;
    int64_t sequence, head, row;
    bool f32;                    /* else the type of q */
    bool pairs;                  /* columns are even in number, and 2n and 2n + 1 of every row
                                  * can be loaded at once */
    bool per_sequence, per_head; /* what the gradient has one of each of */
    /* Backward: its gradient, contiguous: (sequences or 1, heads or 1, q_len, kv_len); or NULL. */
    float *grad;
} ordo_cuda_bias;

typedef struct ordo_cuda_pass {
    ordo_run run; /* lengths, backward tiles, mask, heads, order, issue order, workers; of a ragged
                   * batch the largest lengths, and per sequence what `batch` says */
    ordo_cuda_batch batch;
    ordo_layout layout;
    ordo_cuda_ragged ragged; /* packed and padded */
    int32_t head_dim;        /* columns of q and k in memory */
    int32_t v_head_dim;      /* columns of v and o */
    ordo_form form;          /* how this pass is divided */
    bool f16;                /* else bf16 */
    float scale;
    float softcap;           /* 0: none */
    const float *slopes;     /* ALiBi: one per query head; NULL: none */
    int64_t slopes_sequence; /* from a sequence to the next */
    float keep_scale;        /* dropout: factor of kept elements; 0: no dropout */
    ordo_cuda_tensor q, k, v, o, dout, dq, dk, dv; /* packed: sequence 0 is all there is. data NULL
                                                    * of dq, or of dk and dv: not written */
    int64_t q_rows, kv_rows; /* rows of a tensor: packed all, else those of one sequence */
    float *lse;              /* (sequence, head, row); packed (head, row) */
    const float *dlse;       /* likewise, or NULL */
    const float *sink;       /* one logit per query head, or NULL */
    float *dsink;            /* backward: its gradient, one value per query head, or NULL */
    float *dsink_parts;      /* backward: (sequence, head): the call's, or `turns` if only dsink is
                              * wanted; NULL if neither is */
    ordo_cuda_carry carry;   /* backward only */

    ordo_keep keep;                        /* how bits are made */
    const uint64_t *seed_ptr, *offset_ptr; /* on the device, instead of keep's; or NULL */
    /* The shard: global head, row and block of keep bits of the first. */
    uint32_t heads_total, head0, row0, block0;
    /* Keep bits in storage order (docs/design/dropout-bits.md); NULL: made inside the kernels. */
    const uint32_t *keep_bits;

    /* Workspace. Tiles of all query heads are numbered (sequence, head, tile) in dense batches of
     * dense passes, else (head, tile of all sequences): batch.tiles a head. */
    int32_t *ticket; /* forward and backward: the next unit of work, and ORDO_NOT_FINITE's flag */
    int32_t *turns;  /* one counter per query tile */
    float *dq_sum;   /* one f32 tile per query tile, in the order of the registers (fragment.h) */
    float *delta;    /* one per row, rows padded to whole tiles, permuted in sixteens (fragment.h).
                      * Forward, by phases: the factor of a row's outputs */
    float *lse2;     /* likewise: lse in powers of two, +inf where a row sees nothing */
    ordo_cuda_phase phase;
    ordo_cuda_bias bias;
    ordo_cuda_block_mask blocks; /* block mask, and its tiles in the workspace */
    ordo_cuda_sequence *table;   /* packed and padded: batch.table, to be made; else NULL */

    void *stream;

    int32_t capability; /* compute capability of the plan's family, 10 major + minor */
    int32_t kernels;    /* the set that runs the pass: ordo_kernel_set */
} ordo_cuda_pass;

/* Columns that kernels of flash are compiled for: head sizes up to a bucket run in its instances,
 * whose other columns are zeros. */
ORDO_HD int32_t ordo_pass_bucket(const ordo_cuda_pass *pass)
{
    const int32_t dim = pass->head_dim > pass->v_head_dim ? pass->head_dim : pass->v_head_dim;
    return dim <= 64 ? 64 : dim <= 128 ? 128 : dim <= 256 ? 256 : 576;
}

ORDO_HD ordo_keep_source ordo_pass_keep_source(const ordo_cuda_pass *pass)
{
    return pass->keep_scale == 0.0f ? ORDO_KEEP_NONE
           : pass->keep_bits        ? ORDO_KEEP_GIVEN
                                    : ORDO_KEEP_MADE;
}

/* Row `row` of key head `head` of a sequence in the tensors: its number in the carried sums. */
ORDO_HD int64_t ordo_carry_row(int64_t kv_rows, int32_t kv_heads, int32_t sequence, int32_t row,
                               int32_t head)
{
    return (sequence * kv_rows + row) * kv_heads + head;
}

/* The factors that make gradients of the sums that the kernels compute. */
ORDO_HD float ordo_pass_dk_scale(const ordo_cuda_pass *pass)
{
    return pass->keep_scale > 0.0f ? pass->scale * pass->keep_scale : pass->scale;
}

ORDO_HD float ordo_pass_dv_scale(const ordo_cuda_pass *pass)
{
    return pass->keep_scale > 0.0f ? pass->keep_scale : 1.0f;
}

/* Whether scores become logits before the softmax: it finds the largest score before it scales, so
 * a negative scale is applied first, like softcap, ALiBi and a bias. */
ORDO_HD bool ordo_pass_has_rule(const ordo_cuda_pass *pass)
{
    return pass->softcap > 0.0f || pass->slopes || pass->bias.data || pass->scale < 0.0f;
}

/* Index of a flag after the ticket: nonzero if a pass has written a value that is not finite. */
enum { ORDO_NOT_FINITE = 1 };

#ifdef __cplusplus
}
#endif
#endif
