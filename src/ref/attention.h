/* attention.h: the reference over a whole problem: batch, heads, layouts, element types.
 *
 * Inputs are widened to double (exact), computed by head.c, and each result is rounded once,
 * when stored; a NaN is stored as the canonical quiet NaN. Rows and columns that a padded
 * sequence does not use are written too: o = 0, lse = -inf, gradients 0.
 *
 * `problem` is resolved (every default filled in) and arguments are already checked. The only
 * failure is ORDO_ERR_MEMORY, before anything is written. Temporary memory is linear in
 * q_len and kv_len, but for a bias of one head and its whole gradient. */
#ifndef REF_ATTENTION_H
#define REF_ATTENTION_H

#include "ordo/attention.h"

ordo_status ordo_ref_forward(const ordo_problem *problem, const ordo_call *call);
ordo_status ordo_ref_backward(const ordo_problem *problem, const ordo_call *call);

/* The same on tensors that each have their own element type, double among them: to compare a
 * kernel with the answer before rounding, or to differentiate numerically. */
typedef enum ordo_ref_type {
    ORDO_REF_F32 = ORDO_F32,
    ORDO_REF_BF16 = ORDO_BF16,
    ORDO_REF_F16 = ORDO_F16,
    ORDO_REF_F64 = 3
} ordo_ref_type;

typedef struct ordo_ref_tensor {
    void *data;
    ordo_ref_type type;
    int64_t stride[4]; /* along (batch, row, head, dim), in elements; packed: stride[0] = 0 */
} ordo_ref_tensor;

typedef struct ordo_ref_call {
    ordo_ref_tensor q, k, v, o, lse;
    ordo_ref_tensor dout, dlse, dq, dk, dv; /* dlse.data, and that of any gradient, may be NULL */
    const int32_t *cu_q, *cu_kv, *q_lens, *kv_lens;
    const int64_t *sequence_ids;
    const float *slopes;
    int64_t slopes_batch_stride;
    ordo_ref_tensor sink, dsink, dsink_parts; /* per head, the last one (batch, heads); or NULL */
    const uint32_t *keep_bits;                /* NULL = generate from seed and offset */
    uint64_t seed, offset;
    const ordo_block_mask *block_mask; /* NULL = none */
    ordo_ref_tensor bias, dbias;       /* (batch or 1, row, head or 1, column); data may be NULL */
    const ordo_call *stored;           /* where keys are: pages and kv_starts; NULL = neither */
} ordo_ref_call;

ordo_status ordo_ref_forward_f64(const ordo_problem *problem, const ordo_ref_call *call);
ordo_status ordo_ref_backward_f64(const ordo_problem *problem, const ordo_ref_call *call);

/* A public call in this form. Tensors of the result may be replaced. */
ordo_ref_call ordo_ref_view(const ordo_problem *problem, const ordo_call *call);

/* Shapes: dq is shaped like q, dk like k, dv like v, dout like o, dlse like lse. */
typedef enum ordo_ref_role {
    ORDO_REF_Q,
    ORDO_REF_K,
    ORDO_REF_V,
    ORDO_REF_O,
    ORDO_REF_LSE
} ordo_ref_role;

/* The number of elements of a tensor, and a contiguous tensor of double at `data`. */
int64_t ordo_ref_count(const ordo_problem *problem, ordo_ref_role role);
ordo_ref_tensor ordo_ref_array(const ordo_problem *problem, ordo_ref_role role, double *data);

/* ordo_attention_combine() on checked arguments. */
ordo_status ordo_ref_combine_call(const ordo_problem *problem, const ordo_combine *combine);

/* Merge results computed over disjoint sets of keys: o_parts is (parts, rows, dim), lse_parts
 * (parts, rows). A part with lse = -inf adds nothing; if all are, o = 0 and lse = -inf. */
void ordo_ref_combine(int64_t parts, int64_t rows, int64_t dim, const double *o_parts,
                      const double *lse_parts, double *o, double *lse);

#endif
