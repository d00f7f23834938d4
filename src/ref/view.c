/* view.c: shapes and strides of the tensors of a problem, for the oracle. */
#include "ref/attention.h"

#include "base/bias.h"
#include "base/pages.h"

/* Sizes of (batch, row, head, dim); a packed tensor has no batch axis. */
typedef struct shape {
    int64_t n[4];
} shape;

static shape shape_of(const ordo_problem *p, ordo_ref_role role)
{
    const bool packed = p->layout == ORDO_PACKED;
    const bool keys = role == ORDO_REF_K || role == ORDO_REF_V;
    shape s = { { packed ? 1 : p->batch, keys ? p->kv_len : p->q_len, keys ? p->kv_heads : p->heads,
                  role == ORDO_REF_V || role == ORDO_REF_O ? p->v_head_dim : p->head_dim } };
    if (packed)
        s.n[1] = keys ? p->total_kv : p->total_q;
    if (role == ORDO_REF_LSE)
        s.n[3] = 1;
    return s;
}

int64_t ordo_ref_count(const ordo_problem *p, ordo_ref_role role)
{
    const shape s = shape_of(p, role);
    return s.n[0] * s.n[1] * s.n[2] * s.n[3];
}

static ordo_ref_tensor contiguous(const ordo_problem *p, ordo_ref_role role, ordo_ref_type type,
                                  void *data)
{
    const shape s = shape_of(p, role);
    ordo_ref_tensor t = { data, type, { 0, s.n[2] * s.n[3], s.n[3], 1 } };
    if (role == ORDO_REF_LSE) { /* (batch, head, row) in memory */
        t.stride[1] = 1;
        t.stride[2] = s.n[1];
    }
    if (p->layout != ORDO_PACKED)
        t.stride[0] = s.n[1] * s.n[2] * s.n[3];
    return t;
}

ordo_ref_tensor ordo_ref_array(const ordo_problem *p, ordo_ref_role role, double *data)
{
    return contiguous(p, role, ORDO_REF_F64, data);
}

static ordo_ref_tensor strided(const ordo_problem *p, ordo_ref_role role, const ordo_tensor *from)
{
    ordo_ref_tensor t = contiguous(p, role, (ordo_ref_type)p->dtype, from->data);
    if (from->stride[3] != 0)
        for (int axis = p->layout == ORDO_PACKED; axis < 4; axis++)
            t.stride[axis] = from->stride[axis];
    return t;
}

/* An array of f32 with one value per head, the heads of two sequences `sequence` values apart. */
static ordo_ref_tensor per_head(int64_t sequence, void *data)
{
    return (ordo_ref_tensor) { data, ORDO_REF_F32, { sequence, 0, 1, 0 } };
}

/* A bias or its gradient. */
static ordo_ref_tensor matrices(const ordo_problem *p, ordo_ref_type type, const ordo_tensor *t)
{
    const ordo_bias_strides s = ordo_bias_strides_of(p, t);
    return (ordo_ref_tensor) { t->data, type, { s.sequence, s.row, s.head, 1 } };
}

ordo_ref_call ordo_ref_view(const ordo_problem *p, const ordo_call *call)
{
    const ordo_problem keys = ordo_stored_keys(p);
    const ordo_tensor dbias = { call->dbias, { 0 } };
    return (ordo_ref_call) {
        .q = strided(p, ORDO_REF_Q, &call->q),
        .k = strided(&keys, ORDO_REF_K, &call->k),
        .v = strided(&keys, ORDO_REF_V, &call->v),
        .o = strided(p, ORDO_REF_O, &call->o),
        .lse = contiguous(p, ORDO_REF_LSE, ORDO_REF_F32, call->lse),
        .dout = strided(p, ORDO_REF_O, &call->dout),
        .dlse = contiguous(p, ORDO_REF_LSE, ORDO_REF_F32, (void *)call->dlse), /* only read */
        .dq = strided(p, ORDO_REF_Q, &call->dq),
        .dk = strided(p, ORDO_REF_K, &call->dk),
        .dv = strided(p, ORDO_REF_V, &call->dv),
        .cu_q = call->cu_q,
        .cu_kv = call->cu_kv,
        .q_lens = call->q_lens,
        .kv_lens = call->kv_lens,
        .sequence_ids = call->sequence_ids,
        .slopes = call->slopes,
        .slopes_batch_stride = call->slopes_batch_stride,
        .sink = per_head(0, (void *)call->sink), /* only read */
        .dsink = per_head(0, call->dsink),
        .dsink_parts = per_head(p->heads, call->dsink_parts),
        .bias = matrices(p, (ordo_ref_type)p->bias.dtype, &call->bias),
        .dbias = matrices(p, ORDO_REF_F32, &dbias),
        .keep_bits = call->keep_bits,
        .seed = call->seed_ptr ? *call->seed_ptr : call->seed,
        .offset = call->offset_ptr ? *call->offset_ptr : call->offset,
        .block_mask = call->seen ? call->seen : call->block_mask,
        .stored = call->kv_starts || ordo_paged(p) ? call : NULL,
    };
}
