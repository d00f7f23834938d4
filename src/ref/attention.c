/* attention.c: the oracle over batch and heads. For each (sequence, head) it gathers the
 * operands into contiguous doubles, lets head.c compute, and scatters the results. */
#include "ref/attention.h"

#include "base/bias.h"
#include "base/half.h"
#include "base/mask.h"
#include "base/pages.h"
#include "base/status.h"
#include "ref/head.h"

#include <math.h>
#include <stdlib.h>

/* One sequence of the batch. */
typedef struct sequence {
    int64_t index;                /* in the batch or pack */
    int64_t rows, cols;           /* that take part */
    int64_t row_space, col_space; /* that its memory has: more than take part if padded */
    int64_t first_row, first_col; /* packed: where it starts */
    int64_t start;                /* its first stored column */
    int64_t first_block;          /* first block of its stored keep bits */
} sequence;

static int64_t space(const ordo_problem *p, const int32_t *ends, int64_t b, int64_t len)
{
    return p->layout == ORDO_PACKED ? ends[b + 1] - ends[b] : len;
}

static sequence sequence_at(const ordo_problem *p, const ordo_ref_call *c, int64_t b)
{
    const bool packed = p->layout == ORDO_PACKED, padded = p->layout == ORDO_PADDED;
    sequence s = { .index = b };
    s.first_row = packed ? c->cu_q[b] : 0;
    s.first_col = packed && c->cu_kv ? c->cu_kv[b] : 0;
    s.row_space = space(p, c->cu_q, b, p->q_len);
    s.col_space = c->cu_kv ? space(p, c->cu_kv, b, p->kv_len) : p->kv_len;
    s.rows = padded ? c->q_lens[b] : s.row_space;
    s.cols = padded ? c->kv_lens[b] : s.col_space;
    if (c->stored) {
        s.start = ordo_kv_start(c->stored, b);
        s.cols = ordo_kv_columns(p, c->stored, b);
        s.first_col -= s.start;
    }
    if (c->keep_bits)
        for (int64_t a = 0; a < b; a++)
            s.first_block += p->heads * ordo_keep_blocks(space(p, c->cu_q, a, p->q_len),
                                                         space(p, c->cu_kv, a, p->kv_len));
    return s;
}

static double load(const ordo_ref_tensor *t, int64_t at)
{
    switch (t->type) {
    case ORDO_REF_F32: return (double)((const float *)t->data)[at];
    case ORDO_REF_BF16: return (double)ordo_f32_from_bf16(((const uint16_t *)t->data)[at]);
    case ORDO_REF_F16: return (double)ordo_f32_from_f16(((const uint16_t *)t->data)[at]);
    case ORDO_REF_F64: break;
    }
    return ((const double *)t->data)[at];
}

static void store(const ordo_ref_tensor *t, int64_t at, double x)
{
    switch (t->type) {
    case ORDO_REF_F32: ((float *)t->data)[at] = ordo_f32_from_f64(x); return;
    case ORDO_REF_BF16: ((uint16_t *)t->data)[at] = ordo_bf16_from_f64(x); return;
    case ORDO_REF_F16: ((uint16_t *)t->data)[at] = ordo_f16_from_f64(x); return;
    case ORDO_REF_F64: ((double *)t->data)[at] = x; return;
    }
}

/* Between a head's rows of a tensor and a contiguous matrix. A NULL tensor is left alone. */
static void gather(double *to, const ordo_ref_tensor *t, int64_t b, int64_t head, int64_t first,
                   int64_t rows, int64_t dim)
{
    if (!t->data)
        return;
    const int64_t base = b * t->stride[0] + first * t->stride[1] + head * t->stride[2];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < dim; d++)
            to[r * dim + d] = load(t, base + r * t->stride[1] + d * t->stride[3]);
}

/* The stored keys or values of a head to the places of their columns. */
static void gather_keys(double *to, const ordo_problem *p, const ordo_ref_call *c,
                        const ordo_ref_tensor *t, const sequence *s, int64_t head, int64_t dim)
{
    if (!c->stored || !ordo_paged(p)) {
        gather(to + s->start * dim, t, s->index, head, s->first_col + s->start, s->cols - s->start,
               dim);
        return;
    }
    for (int64_t j = s->start; j < s->cols; j++) {
        const ordo_page_place at = ordo_page_of(p, c->stored, s->index, j);
        gather(to + j * dim, t, c->stored->page_table[at.entry], head, at.row, 1, dim);
    }
}

/* One value per head of an array without other axes. */
static void gather_heads(double *to, const ordo_ref_tensor *t, int64_t heads)
{
    for (int64_t h = 0; h < heads; h++)
        gather(to + h, t, 0, h, 0, 1, 1);
}

static void scatter(const ordo_ref_tensor *t, const double *from, int64_t b, int64_t head,
                    int64_t first, int64_t rows, int64_t dim)
{
    if (!t->data)
        return;
    const int64_t base = b * t->stride[0] + first * t->stride[1] + head * t->stride[2];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < dim; d++)
            store(t, base + r * t->stride[1] + d * t->stride[3], from[r * dim + d]);
}

static void fill(double *x, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = value;
}

/* Matrices of one head, in one allocation. */
typedef struct buffers {
    double *all;
    double *q, *k, *v, *o, *lse, *dout, *dlse, *dq, *dk, *dv, *logits;
    double *sink, *dsink; /* one value per head, for all of them */
    double *bias;         /* bias of a head; NULL: none */
    double *dbias;        /* all of it, contiguous; NULL: not wanted */
} buffers;

static ordo_status buffers_create(buffers *m, const ordo_problem *p, bool dbias)
{
    const size_t rows = (size_t)p->q_len, cols = (size_t)p->kv_len;
    const size_t dim = (size_t)p->head_dim, v_dim = (size_t)p->v_head_dim;
    const size_t matrix = p->bias.on ? rows * cols : 0;
    const size_t gradient = dbias ? (size_t)ordo_bias_count(p) : 0;
    const size_t count = rows * (2 * dim + 2 * v_dim + 2) + cols * (2 * dim + 2 * v_dim + 1) +
                         2 * (size_t)p->heads + matrix + gradient;
    double *next = calloc(count, sizeof *next);
    if (!next)
        return ordo_fail(ORDO_ERR_MEMORY, "%zu doubles for one head: out of memory", count);

    m->all = next;
    m->q = next, next += rows * dim;
    m->dq = next, next += rows * dim;
    m->o = next, next += rows * v_dim;
    m->dout = next, next += rows * v_dim;
    m->lse = next, next += rows;
    m->dlse = next, next += rows;
    m->k = next, next += cols * dim;
    m->dk = next, next += cols * dim;
    m->v = next, next += cols * v_dim;
    m->dv = next, next += cols * v_dim;
    m->logits = next, next += cols;
    m->sink = next, next += p->heads;
    m->dsink = next, next += p->heads;
    m->bias = p->bias.on ? next : NULL, next += matrix;
    m->dbias = dbias ? next : NULL;
    return ORDO_OK;
}

/* What the gradient of a head's bias is added to; NULL: not wanted. */
static double *dbias_of(const ordo_problem *p, const buffers *m, int64_t b, int64_t h)
{
    const int64_t first = p->bias.per_sequence ? b * ordo_bias_heads(p) : 0;
    const int64_t matrix = first + (p->bias.per_head ? h : 0);
    return m->dbias ? m->dbias + matrix * p->q_len * p->kv_len : NULL;
}

static ordo_ref_head head_of(const ordo_problem *p, const ordo_ref_call *c, const sequence *s,
                             const buffers *m, int64_t h)
{
    /* Only dense problems can be shards of a longer sequence; the lengths of other layouts
     * are known sequence by sequence, and whole. */
    const bool dense = p->layout == ORDO_DENSE;
    const int64_t q_total = dense ? p->shard.q_total : s->rows;
    const int64_t kv_total = dense ? p->shard.kv_total : s->cols;
    const int64_t id = c->sequence_ids ? c->sequence_ids[s->index] : p->shard.batch0 + s->index;

    ordo_ref_head head = {
        .problem = p,
        .rows = s->rows,
        .cols = s->cols,
        .row0 = p->shard.row0,
        .col0 = p->shard.col0,
        .start = s->start,
        .diagonal = ordo_band_diagonal(p->mask, q_total, kv_total),
        .slope = p->alibi ? (double)c->slopes[s->index * c->slopes_batch_stride + h] : 0,
        .q = m->q,
        .k = m->k,
        .v = m->v,
        .o = m->o,
        .lse = m->lse,
        .dout = m->dout,
        .dlse = c->dlse.data ? m->dlse : NULL,
        .dq = m->dq,
        .dk = m->dk,
        .dv = m->dv,
        .logits = m->logits,
        .bias = m->bias,
        .sink = c->sink.data ? m->sink + h : NULL,
    };
    if (c->block_mask)
        head.blocks = ordo_block_view_of(c->block_mask, s->index, h);
    if (p->dropout.p > 0) {
        head.keep_scale = ordo_keep_scale(&p->dropout);
        head.keep = ordo_keep_of(&p->dropout, c->seed, c->offset);
        head.bh = (uint32_t)(id * p->shard.heads_total + p->shard.head0 + h);
        head.bits_cols = s->col_space;
        if (c->keep_bits)
            head.bits =
                c->keep_bits + (s->first_block + h * ordo_keep_blocks(s->row_space, s->col_space)) *
                                   ORDO_KEEP_WORDS;
    }
    return head;
}

ordo_status ordo_ref_forward_f64(const ordo_problem *p, const ordo_ref_call *c)
{
    const int64_t dim = p->head_dim, v_dim = p->v_head_dim, group = p->heads / p->kv_heads;
    buffers m;
    ORDO_TRY(buffers_create(&m, p, false));
    gather_heads(m.sink, &c->sink, p->heads);

    for (int64_t b = 0; b < p->batch; b++) {
        const sequence s = sequence_at(p, c, b);
        for (int64_t h = 0; h < p->heads; h++) {
            gather(m.q, &c->q, b, h, s.first_row, s.rows, dim);
            gather_keys(m.k, p, c, &c->k, &s, h / group, dim);
            gather_keys(m.v, p, c, &c->v, &s, h / group, v_dim);
            if (m.bias)
                gather(m.bias, &c->bias, b, h, 0, s.rows, s.cols);
            fill(m.o, s.row_space * v_dim, 0);
            fill(m.lse, s.row_space, -INFINITY);

            const ordo_ref_head head = head_of(p, c, &s, &m, h);
            ordo_ref_head_forward(&head);

            scatter(&c->o, m.o, b, h, s.first_row, s.row_space, v_dim);
            scatter(&c->lse, m.lse, b, h, s.first_row, s.row_space, 1);
        }
    }
    free(m.all);
    return ORDO_OK;
}

ordo_status ordo_ref_backward_f64(const ordo_problem *p, const ordo_ref_call *c)
{
    const int64_t dim = p->head_dim, v_dim = p->v_head_dim, group = p->heads / p->kv_heads;
    buffers m;
    ORDO_TRY(buffers_create(&m, p, c->dbias.data != NULL));
    gather_heads(m.sink, &c->sink, p->heads);

    for (int64_t b = 0; b < p->batch; b++) {
        const sequence s = sequence_at(p, c, b);
        for (int64_t h = 0; h < p->heads; h++) {
            if (h % group == 0) { /* first of the query heads that share a key head */
                gather(m.k, &c->k, b, h / group, s.first_col, s.cols, dim);
                gather(m.v, &c->v, b, h / group, s.first_col, s.cols, v_dim);
                fill(m.dk, s.col_space * dim, 0);
                fill(m.dv, s.col_space * v_dim, 0);
            }
            if (m.bias)
                gather(m.bias, &c->bias, b, h, 0, s.rows, s.cols);
            gather(m.q, &c->q, b, h, s.first_row, s.rows, dim);
            gather(m.o, &c->o, b, h, s.first_row, s.rows, v_dim);
            gather(m.lse, &c->lse, b, h, s.first_row, s.rows, 1);
            gather(m.dout, &c->dout, b, h, s.first_row, s.rows, v_dim);
            gather(m.dlse, &c->dlse, b, h, s.first_row, s.rows, 1);
            fill(m.dq, s.row_space * dim, 0);

            double dsink = 0;
            ordo_ref_head head = head_of(p, c, &s, &m, h);
            head.dsink = &dsink;
            head.dbias = dbias_of(p, &m, b, h);
            head.dbias_row = p->kv_len;
            ordo_ref_head_backward(&head);
            m.dsink[h] += dsink;

            scatter(&c->dsink_parts, &dsink, b, h, 0, 1, 1);

            scatter(&c->dq, m.dq, b, h, s.first_row, s.row_space, dim);
            if (h % group == group - 1) {
                scatter(&c->dk, m.dk, b, h / group, s.first_col, s.col_space, dim);
                scatter(&c->dv, m.dv, b, h / group, s.first_col, s.col_space, v_dim);
            }
        }
    }
    for (int64_t h = 0; h < p->heads; h++)
        scatter(&c->dsink, m.dsink + h, 0, h, 0, 1, 1);
    for (int64_t b = 0; m.dbias && b < ordo_bias_sequences(p); b++)
        for (int64_t h = 0; h < ordo_bias_heads(p); h++)
            scatter(&c->dbias, dbias_of(p, &m, b, h), b, h, 0, p->q_len, p->kv_len);
    free(m.all);
    return ORDO_OK;
}

ordo_status ordo_ref_forward(const ordo_problem *problem, const ordo_call *call)
{
    const ordo_ref_call view = ordo_ref_view(problem, call);
    return ordo_ref_forward_f64(problem, &view);
}

ordo_status ordo_ref_backward(const ordo_problem *problem, const ordo_call *call)
{
    const ordo_ref_call view = ordo_ref_view(problem, call);
    return ordo_ref_backward_f64(problem, &view);
}

ordo_status ordo_ref_combine_call(const ordo_problem *p, const ordo_combine *combine)
{
    const int64_t parts = combine->parts, dim = p->v_head_dim;
    const int64_t batch = p->layout == ORDO_PACKED ? 1 : p->batch;
    const int64_t rows = p->layout == ORDO_PACKED ? p->total_q : p->q_len;
    ordo_call out = { .o = combine->o, .lse = combine->lse };
    const ordo_ref_call to = ordo_ref_view(p, &out);
    double *o = calloc((size_t)((parts + 1) * (dim + 1)), sizeof *o); /* one row of each part */
    if (!o)
        return ordo_fail(ORDO_ERR_MEMORY, "combine: %lld parts", (long long)parts);
    double *lse = o + (parts + 1) * dim;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t r = 0; r < rows; r++) {
                for (int64_t x = 0; x < parts; x++) {
                    ordo_call part = { .o = combine->o_parts[x],
                                       .lse = (float *)combine->lse_parts[x] };
                    const ordo_ref_call from = ordo_ref_view(p, &part);
                    gather(o + x * dim, &from.o, b, h, r, 1, dim);
                    gather(lse + x, &from.lse, b, h, r, 1, 1);
                }
                ordo_ref_combine(parts, 1, dim, o, lse, o + parts * dim, lse + parts);
                scatter(&to.o, o + parts * dim, b, h, r, 1, dim);
                scatter(&to.lse, lse + parts, b, h, r, 1, 1);
            }
    free(o);
    return ORDO_OK;
}
