/* call.c: check the arguments of a pass. */
#include "api/call.h"

#include "api/block_mask.h"
#include "api/limits.h"
#include "api/overlap.h"
#include "base/bias.h"
#include "base/blocks.h"
#include "base/checked.h"
#include "base/keep.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/versioned.h"

#include <inttypes.h>

enum { BUFFERS = 32, WORKSPACE_ALIGN = 256 };

/* Everything with an address that a pass touches, to compare pair by pair. */
typedef struct buffers {
    ordo_extent at[BUFFERS];
    bool output[BUFFERS];
    int count;
} buffers;

static ordo_status add(buffers *list, const ordo_extent *x, bool output)
{
    int64_t bytes;
    if (!ordo_extent_bytes(x, &bytes))
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "%s.stride: expected the last element less than 2^62 bytes away", x->name);
    list->output[list->count] = output;
    list->at[list->count++] = *x;
    return ORDO_OK;
}

/* `lines` lines of `count` elements each, `step` elements apart; NULL is none. */
static ordo_status add_array(buffers *list, const char *name, const void *data, int64_t width,
                             int64_t count, int64_t lines, int64_t step, bool output)
{
    if (!data || count == 0 || lines == 0)
        return ORDO_OK;
    ORDO_TRY(ordo_check_aligned(name, data, (size_t)width));
    const ordo_extent x = {
        name, (uintptr_t)data, width, { lines, count, 1, 1 }, { step * width, width, 0, 0 }
    };
    return add(list, &x, output);
}

/* A flat array of f32. */
static ordo_status check_flat(buffers *list, const char *name, const float *data, int64_t count,
                              bool output)
{
    if (!data && count > 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected %" PRId64 " f32 values", name,
                         count);
    return add_array(list, name, data, 4, count, 1, 0, output);
}

typedef struct shape {
    int64_t rows, total, heads, dim; /* total rows if packed */
} shape;

static ordo_status check_strides(const ordo_problem *p, const char *name, const ordo_tensor *t,
                                 bool *contiguous)
{
    const int first = p->layout == ORDO_PACKED; /* packed tensors have no batch axis */
    bool zero = true;
    for (int i = first; i < 4; i++) {
        if (t->stride[i] < 0)
            return ordo_fail(ORDO_ERR_ALIGN, "%s.stride[%d] %" PRId64 ": expected 0 or more", name,
                             i, t->stride[i]);
        zero = zero && t->stride[i] == 0;
    }
    if (!zero && t->stride[3] != 1)
        return ordo_fail(ORDO_ERR_ALIGN,
                         "%s.stride[3] %" PRId64 ": expected 1, or all strides 0 (contiguous)",
                         name, t->stride[3]);
    *contiguous = zero;
    return ORDO_OK;
}

static ordo_status check_tensor(buffers *list, const ordo_problem *p, const char *name,
                                const ordo_tensor *t, shape s, bool output)
{
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t width = p->dtype == ORDO_F32 ? 4 : 2, rows = packed ? s.total : s.rows;
    const int64_t tight[4] = { rows * s.heads * s.dim, s.heads * s.dim, s.dim, 1 };
    bool contiguous = false;

    if (rows == 0 || (!packed && p->batch == 0)) /* no element: nothing that could be wrong */
        return ORDO_OK;
    if (!t->data)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s.data NULL: expected a tensor", name);
    if ((uintptr_t)t->data % (uintptr_t)width != 0)
        return ordo_fail(ORDO_ERR_ALIGN, "%s.data %p: expected a multiple of %d", name, t->data,
                         (int)width);
    ORDO_TRY(check_strides(p, name, t, &contiguous));

    ordo_extent x = {
        name, (uintptr_t)t->data, width, { packed ? 1 : p->batch, rows, s.heads, s.dim }, { 0 }
    };
    for (int i = packed; i < 4; i++)
        if (__builtin_mul_overflow(contiguous ? tight[i] : t->stride[i], width, &x.stride[i]))
            return ordo_fail(ORDO_ERR_OVERFLOW, "%s.stride[%d] %" PRId64 ": too large", name, i,
                             t->stride[i]);
    ORDO_TRY(add(list, &x, output));
    if (output && !ordo_extent_nests(&x))
        return ordo_fail(ORDO_ERR_ALIGN,
                         "%s.stride %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                         ": expected elements of an output not to overlap",
                         name, t->stride[0], t->stride[1], t->stride[2], t->stride[3]);
    return ORDO_OK;
}

static int64_t all_rows(const ordo_problem *p)
{
    return p->layout == ORDO_PACKED ? p->total_q : p->batch * p->q_len;
}
static int64_t all_keys(const ordo_problem *p)
{
    return p->layout == ORDO_PACKED ? p->total_kv : p->batch * p->kv_len;
}

/* Which gradients are computed: those that are given. */
static ordo_status check_wanted(const ordo_problem *p, const ordo_call *c)
{
    const bool keys = all_keys(p) > 0;
    const bool dk = keys && c->dk.data, dv = keys && c->dv.data;
    if (c->carry & ORDO_CARRY_OUT)
        return ORDO_OK;
    if (dk != dv)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "%s.data NULL, %s.data given: expected both tensors, or neither",
                         dk ? "dv" : "dk", dk ? "dk" : "dv");
    if (c->carry && keys && !dk)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "dk.data and dv.data NULL: expected tensors with carry in; with carry in "
                         "and out they may be NULL");
    if (!c->carry && !dk && !c->dq.data && !c->dbias && all_rows(p) > 0)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "dq.data, dk.data and dv.data NULL: expected a tensor for dq, or for dk "
                         "and dv, or for all");
    return ORDO_OK;
}

static ordo_status check_sums(buffers *list, const ordo_problem *p, bool host, const char *name,
                              const float *sums, int64_t dim, unsigned carry)
{
    if (!carry && sums)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s given: expected NULL with carry 0", name);
    if (!carry)
        return ORDO_OK;
    ORDO_TRY(check_flat(list, name, sums, all_keys(p) * p->kv_heads * dim, true));
    return ordo_check_aligned(name, sums, host ? sizeof *sums : ORDO_CUDA_COPY_BYTES);
}

/* The sink of each head, and in a backward pass its gradients. */
static ordo_status check_sink(buffers *list, const ordo_problem *p, ordo_pass pass,
                              const ordo_call *c)
{
    const struct {
        const char *name;
        float *data;
        int64_t count;
    } gradients[] = { { "dsink", c->dsink, p->heads },
                      { "dsink_parts", c->dsink_parts, p->batch * p->heads } };
    if (c->sink && p->shard.col0 > 0)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "sink given, shard.col0 %" PRId64
                         ": expected NULL; the sink belongs to the call that holds column 0",
                         p->shard.col0);
    ORDO_TRY(add_array(list, "sink", c->sink, 4, p->heads, 1, 0, false));
    for (int i = 0; pass == ORDO_BACKWARD && i < 2; i++) {
        if (gradients[i].data && !c->sink)
            return ordo_fail(ORDO_ERR_ARGUMENT,
                             "%s given, sink NULL: expected the %" PRId64
                             " logits of the forward pass, or %s NULL",
                             gradients[i].name, p->heads, gradients[i].name);
        ORDO_TRY(add_array(list, gradients[i].name, gradients[i].data, 4, gradients[i].count, 1, 0,
                           true));
    }
    return ORDO_OK;
}

/* The bias, and in a backward pass its gradient. */
static ordo_status check_bias(buffers *list, const ordo_problem *p, ordo_pass pass,
                              const ordo_call *c)
{
    const int64_t count = ordo_bias_count(p);
    const ordo_problem matrix = { .dtype = p->bias.dtype, .batch = ordo_bias_sequences(p) };
    const shape s = { ordo_bias_heads(p), 0, p->q_len, p->kv_len };
    if (!p->bias.on && (c->bias.data || c->dbias))
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s given: expected NULL with bias.on false",
                         c->bias.data ? "bias.data" : "dbias");
    if (count > 0)
        ORDO_TRY(check_tensor(list, &matrix, "bias", &c->bias, s, false));
    return pass == ORDO_BACKWARD ? add_array(list, "dbias", c->dbias, 4, count, 1, 0, true)
                                 : ORDO_OK;
}

/* The outputs of the backward pass. Tensors that it does not write become NULL. */
static ordo_status check_gradients(buffers *list, const ordo_problem *p, bool host, ordo_call *c)
{
    const shape q = { p->q_len, p->total_q, p->heads, p->head_dim };
    const shape k = { p->kv_len, p->total_kv, p->kv_heads, p->head_dim };
    const shape v = { p->kv_len, p->total_kv, p->kv_heads, p->v_head_dim };
    if (c->carry & ~(unsigned)(ORDO_CARRY_IN | ORDO_CARRY_OUT))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "carry %#x: expected ORDO_CARRY_IN, ORDO_CARRY_OUT, both or 0", c->carry);
    ORDO_TRY(check_wanted(p, c));
    if (c->carry & ORDO_CARRY_OUT)
        c->dk.data = c->dv.data = NULL;
    if (c->dq.data)
        ORDO_TRY(check_tensor(list, p, "dq", &c->dq, q, true));
    if (c->dk.data)
        ORDO_TRY(check_tensor(list, p, "dk", &c->dk, k, true));
    if (c->dv.data)
        ORDO_TRY(check_tensor(list, p, "dv", &c->dv, v, true));
    ORDO_TRY(check_sums(list, p, host, "dk_sums", c->dk_sums, p->head_dim, c->carry));
    return check_sums(list, p, host, "dv_sums", c->dv_sums, p->v_head_dim, c->carry);
}

static ordo_status check_tensors(buffers *list, const ordo_problem *p, ordo_pass pass, bool host,
                                 ordo_call *c)
{
    const shape q = { p->q_len, p->total_q, p->heads, p->head_dim };
    const ordo_problem keys = ordo_stored_keys(p);
    const shape k = { keys.kv_len, p->total_kv, p->kv_heads, p->head_dim };
    const shape v = { keys.kv_len, p->total_kv, p->kv_heads, p->v_head_dim };
    const shape o = { p->q_len, p->total_q, p->heads, p->v_head_dim };
    const bool backward = pass == ORDO_BACKWARD;
    const int64_t rows = all_rows(p);

    ORDO_TRY(check_tensor(list, p, "q", &c->q, q, false));
    ORDO_TRY(check_tensor(list, &keys, "k", &c->k, k, false));
    ORDO_TRY(check_tensor(list, &keys, "v", &c->v, v, false));
    ORDO_TRY(check_tensor(list, p, "o", &c->o, o, !backward));
    ORDO_TRY(check_flat(list, "lse", c->lse, rows * p->heads, !backward));
    if (!backward)
        return ORDO_OK;
    ORDO_TRY(check_tensor(list, p, "dout", &c->dout, o, false));
    if (c->dlse)
        ORDO_TRY(check_flat(list, "dlse", c->dlse, rows * p->heads, false));
    return check_gradients(list, p, host, c);
}

static ordo_status check_workspace(buffers *list, const ordo_call *c, uint64_t needed)
{
    if (needed == 0)
        return ORDO_OK;
    if (!c->workspace || c->workspace_bytes < needed)
        return ordo_fail(ORDO_ERR_SHAPE, "workspace_bytes %zu: expected at least %" PRIu64,
                         c->workspace ? c->workspace_bytes : 0, needed);
    ORDO_TRY(ordo_check_aligned("workspace", c->workspace, WORKSPACE_ALIGN));
    const ordo_extent x = {
        "workspace", (uintptr_t)c->workspace, 1, { (int64_t)needed, 1, 1, 1 }, { 1, 0, 0, 0 }
    };
    return add(list, &x, true);
}

/* Inputs may share memory with one another; an output with nothing. */
static ordo_status check_overlap(const buffers *list)
{
    for (int i = 0; i < list->count; i++)
        for (int j = i + 1; j < list->count; j++)
            if ((list->output[i] || list->output[j]) &&
                ordo_extent_overlap(&list->at[i], &list->at[j]))
                return ordo_fail(
                    ORDO_ERR_ARGUMENT,
                    "%s and %s overlap in memory: expected outputs that overlap nothing",
                    list->at[i].name, list->at[j].name);
    return ORDO_OK;
}

ordo_status ordo_check_ends(const char *name, const int32_t *ends, int64_t batch, int64_t total,
                            int64_t longest)
{
    if (ends[0] != 0)
        return ordo_fail(ORDO_ERR_SHAPE, "%s[0] %" PRId32 ": expected 0", name, ends[0]);
    for (int64_t b = 0; b < batch; b++) {
        const int64_t length = (int64_t)ends[b + 1] - ends[b];
        if (length < 0 || length > longest)
            return ordo_fail(ORDO_ERR_SHAPE,
                             "%s[%" PRId64 "] %" PRId32 ": expected %" PRId32 "..%" PRId64
                             ", a sequence of 0..%" PRId64,
                             name, b + 1, ends[b + 1], ends[b], ends[b] + longest, longest);
    }
    if (ends[batch] > total)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "%s[%" PRId64 "] %" PRId32 ": expected at most the total, %" PRId64, name,
                         batch, ends[batch], total);
    return ORDO_OK;
}

static ordo_status check_valid(const char *name, const int32_t *lengths, int64_t batch,
                               int64_t longest)
{
    for (int64_t b = 0; b < batch; b++)
        if (lengths[b] < 0 || lengths[b] > longest)
            return ordo_fail(ORDO_ERR_SHAPE, "%s[%" PRId64 "] %" PRId32 ": expected 0..%" PRId64,
                             name, b, lengths[b], longest);
    return ORDO_OK;
}

static ordo_status check_lengths(const ordo_problem *p, bool host, const ordo_call *c)
{
    const bool packed = p->layout == ORDO_PACKED, padded = p->layout == ORDO_PADDED;
    const bool paged = ordo_paged(p);
    const struct {
        const char *name;
        const int32_t *lengths;
        bool wanted;
    } arrays[] = {
        { "cu_q", c->cu_q, packed },
        { "cu_kv", c->cu_kv, packed && !paged },
        { "q_lens", c->q_lens, padded },
        { "kv_lens", c->kv_lens, padded || paged },
    };
    for (int i = 0; i < 4; i++) {
        const bool present = arrays[i].lengths != NULL, wanted = arrays[i].wanted;
        const bool none = wanted && !packed && p->batch == 0; /* to be given */
        if (present != wanted && !none)
            return ordo_fail(ORDO_ERR_ARGUMENT, "%s %s: expected %s in %s layout%s", arrays[i].name,
                             present ? "given" : "NULL", present ? "NULL" : "an array",
                             ordo_layout_name(p->layout), paged ? " with pages" : "");
    }
    if (host && packed)
        ORDO_TRY(ordo_check_ends("cu_q", c->cu_q, p->batch, p->total_q, p->q_len));
    if (host && packed && !paged)
        ORDO_TRY(ordo_check_ends("cu_kv", c->cu_kv, p->batch, p->total_kv, p->kv_len));
    if (host && padded)
        ORDO_TRY(check_valid("q_lens", c->q_lens, p->batch, p->q_len));
    return host && (padded || paged) ? check_valid("kv_lens", c->kv_lens, p->batch, p->kv_len)
                                     : ORDO_OK;
}

/* Columns that are not stored: at most those of the whole sequence, in a pass that can hide them.
 */
static ordo_status check_starts(const ordo_problem *p, ordo_pass pass, bool host,
                                const ordo_call *c)
{
    if (!c->kv_starts)
        return ORDO_OK;
    const char *const why = pass == ORDO_BACKWARD                        ? "in a backward pass"
                            : p->dropout.p > 0                           ? "with dropout"
                            : p->blocks.entries > 0                      ? "with a block mask"
                            : p->seen.on                                 ? "with seen"
                            : !host && !ordo_paged(p)                    ? "on backend cuda"
                            : p->layout != ORDO_PACKED && !ordo_paged(p) ? "without pages"
                                                                         : NULL;
    if (why)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "kv_starts given: expected NULL %s%s", why,
                         p->layout == ORDO_PACKED ? "" : " in this layout");
    for (int64_t b = 0; host && b < p->batch; b++) {
        const int64_t columns = ordo_kv_columns(p, c, b);
        if (c->kv_starts[b] < 0 || c->kv_starts[b] > columns || columns > p->kv_len)
            return ordo_fail(
                ORDO_ERR_SHAPE,
                "kv_starts[%" PRId64 "] %" PRId32 ": expected 0..%" PRId64
                ", so that sequence %" PRId64 " has at most kv_len %" PRId64 " columns",
                b, c->kv_starts[b],
                ordo_paged(p) ? columns : p->kv_len - (columns - c->kv_starts[b]), b, p->kv_len);
    }
    return ORDO_OK;
}

/* The page of each stored column. */
static ordo_status check_pages(buffers *list, const ordo_problem *p, bool host, const ordo_call *c)
{
    if (!ordo_paged(p) && c->page_table)
        return ordo_fail(ORDO_ERR_ARGUMENT, "page_table given: expected NULL without paging");
    if (!ordo_paged(p))
        return ORDO_OK;
    if (!c->page_table)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "page_table NULL: expected %" PRId64 " x %" PRId64 " pages", p->batch,
                         p->paging.table_columns);
    if (c->page_table_stride != 0 && c->page_table_stride < p->paging.table_columns)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "page_table_stride %" PRId64 ": expected 0 or at least %" PRId64
                         " (paging.table_columns)",
                         c->page_table_stride, p->paging.table_columns);
    for (int64_t b = 0; host && b < p->batch; b++)
        for (int64_t column = ordo_kv_start(c, b); column < c->kv_lens[b];
             column += p->paging.page_rows - column % p->paging.page_rows) {
            const int64_t entry = ordo_page_of(p, c, b, column).entry;
            if (c->page_table[entry] < 0 || c->page_table[entry] >= p->paging.pages)
                return ordo_fail(
                    ORDO_ERR_SHAPE,
                    "page_table[%" PRId64 "][%" PRId64 "] %" PRId32 ": expected 0..%" PRId64, b,
                    column / p->paging.page_rows, c->page_table[entry], p->paging.pages - 1);
        }
    return add_array(list, "page_table", c->page_table, 4, p->paging.table_columns, p->batch,
                     c->page_table_stride ? c->page_table_stride : p->paging.table_columns, false);
}

static ordo_status check_slopes(const ordo_problem *p, const ordo_call *c)
{
    if (p->alibi && !c->slopes && p->batch > 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "slopes NULL: expected %" PRId64 " values with alibi",
                         p->heads);
    if (!p->alibi && c->slopes)
        return ordo_fail(ORDO_ERR_ARGUMENT, "slopes given: expected NULL without alibi");
    if (c->slopes_batch_stride < 0 ||
        (p->batch > 1 && c->slopes_batch_stride > (INT64_C(1) << 60) / (p->batch - 1)))
        return ordo_fail(ORDO_ERR_ARGUMENT, "slopes_batch_stride %" PRId64 ": expected 0 or more",
                         c->slopes_batch_stride);
    return ORDO_OK;
}

/* What a pass reads in addition to its tensors. */
static ordo_status check_arrays(buffers *list, const ordo_problem *p, const ordo_call *c)
{
    const struct {
        const char *name;
        const void *data;
        int64_t width, count;
    } flat[] = {
        { "cu_q", c->cu_q, 4, p->batch + 1 },
        { "cu_kv", c->cu_kv, 4, p->batch + 1 },
        { "q_lens", c->q_lens, 4, p->batch },
        { "kv_lens", c->kv_lens, 4, p->batch },
        { "kv_starts", c->kv_starts, 4, p->batch },
        { "sequence_ids", c->sequence_ids, 8, p->batch },
        { "seed_ptr", c->seed_ptr, 8, 1 },
        { "offset_ptr", c->offset_ptr, 8, 1 },
    };
    for (size_t i = 0; i < sizeof flat / sizeof flat[0]; i++)
        ORDO_TRY(
            add_array(list, flat[i].name, flat[i].data, flat[i].width, flat[i].count, 1, 0, false));
    return add_array(list, "slopes", c->slopes, 4, p->heads, p->batch, c->slopes_batch_stride,
                     false);
}

/* Words of the stored bits; of packed sequences whose lengths are out of reach, at least one. */
static int64_t bits_words(const ordo_problem *p, bool host, const ordo_call *c)
{
    int64_t blocks = 0;
    if (p->layout != ORDO_PACKED)
        blocks = p->batch * ordo_keep_blocks(p->q_len, p->kv_len);
    for (int64_t b = 0; p->layout == ORDO_PACKED && host && b < p->batch; b++)
        blocks += ordo_keep_blocks(c->cu_q[b + 1] - c->cu_q[b], c->cu_kv[b + 1] - c->cu_kv[b]);
    return p->layout == ORDO_PACKED && !host ? 1 : blocks * p->heads * ORDO_KEEP_WORDS;
}

/* Stored bits are indexed with 64-bit words; how many there are must fit. */
static ordo_status check_bits(buffers *list, const ordo_problem *p, bool host, const ordo_call *c)
{
    uint64_t bytes = (uint64_t)ordo_keep_blocks(p->q_len, p->kv_len);
    if (!ordo_mul_fits(&bytes, (uint64_t)p->batch) || !ordo_mul_fits(&bytes, (uint64_t)p->heads) ||
        !ordo_mul_fits(&bytes, 4 * ORDO_KEEP_WORDS) || bytes > UINT64_C(1) << 62)
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "keep_bits of batch %" PRId64 " x heads %" PRId64 " x %" PRId64
                         " x %" PRId64 ": expected at most 2^62 bytes",
                         p->batch, p->heads, p->q_len, p->kv_len);
    return add_array(list, "keep_bits", c->keep_bits, 4, bits_words(p, host, c), 1, 0, false);
}

ordo_status ordo_check_keys(const ordo_problem *p, uint64_t offset, const int64_t *ids)
{
    if (p->dropout.keying == ORDO_KEYING_ORDO && offset > UINT32_MAX)
        return ordo_fail(ORDO_ERR_ARGUMENT, "offset %" PRIu64 ": expected less than 2^32", offset);
    const int64_t limit = (INT64_C(1) << 32) / p->shard.heads_total;
    for (int64_t b = 0; ids && b < p->batch; b++)
        if (ids[b] < 0 || ids[b] >= limit)
            return ordo_fail(ORDO_ERR_ARGUMENT,
                             "sequence_ids[%" PRId64 "] %" PRId64 ": expected 0..%" PRId64, b,
                             ids[b], limit - 1);
    return ORDO_OK;
}

static ordo_status check_dropout(buffers *list, const ordo_problem *p, bool host,
                                 const ordo_call *c)
{
    if (p->dropout.p == 0) {
        if (c->keep_bits)
            return ordo_fail(ORDO_ERR_ARGUMENT, "keep_bits given: expected NULL with dropout.p 0");
        return ORDO_OK;
    }
    if (c->keep_bits)
        return check_bits(list, p, host, c);

    uint64_t offset = c->offset;
    if (c->offset_ptr)
        offset = host ? *c->offset_ptr : 0; /* on the device: out of reach */
    return ordo_check_keys(p, offset, host ? c->sequence_ids : NULL);
}

/* The block mask or element mask, copied to `mask`: backends read either as call.block_mask. */
static ordo_status check_blocks(buffers *list, const ordo_problem *p, bool host, ordo_call *c,
                                ordo_block_mask *mask)
{
    ORDO_TRY(ordo_blocks_check(p, host, c->block_mask, c->seen, mask));
    if (!c->block_mask && !c->seen)
        return ORDO_OK;
    c->block_mask = mask;
    const int64_t masks = mask->sequences * mask->heads, starts = ordo_blocks_of(mask->q_len) + 1;
    const struct {
        const char *name;
        const void *data;
        int64_t count;
    } arrays[] = {
        { c->seen ? "seen.start" : "block_mask.start", mask->start, masks * starts },
        { c->seen ? "seen.key" : "block_mask.key", mask->key, mask->entries },
        { "block_mask.first", mask->first, masks * mask->q_len },
        { "block_mask.last", mask->last, masks * mask->q_len },
        { "seen.bits", mask->bits,
          masks * ordo_keep_blocks(mask->q_len, mask->kv_len) * ORDO_KEEP_WORDS },
    };
    for (size_t x = 0; x < sizeof arrays / sizeof arrays[0]; x++)
        ORDO_TRY(add_array(list, arrays[x].name, arrays[x].data, 4, arrays[x].count, 1, 0, false));
    return ORDO_OK;
}

static const ordo_nested call_tensors[] = {
    ORDO_NESTED(ordo_call, q),    ORDO_NESTED(ordo_call, k),
    ORDO_NESTED(ordo_call, v),    ORDO_NESTED(ordo_call, o),
    ORDO_NESTED(ordo_call, dout), ORDO_NESTED(ordo_call, dq),
    ORDO_NESTED(ordo_call, dk),   ORDO_NESTED(ordo_call, dv),
    ORDO_NESTED(ordo_call, bias), { 0 }
};

ordo_status ordo_call_check(const ordo_problem *p, ordo_pass pass, bool host,
                            uint64_t workspace_bytes, const ordo_call *in, ordo_call *out,
                            ordo_block_mask *mask)
{
    buffers list = { .count = 0 };
    ORDO_TRY(ordo_check_pointer("call", in));
    if (pass == ORDO_BACKWARD && ordo_paged(p))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "paging.page_rows %" PRId64 ": expected 0 (no pages) in a backward pass",
                         p->paging.page_rows);
    static const ordo_struct kind = ORDO_STRUCT(ordo_call, "call", ORDO_CALL_INIT, call_tensors);
    ORDO_TRY(ordo_versioned_copy(out, in, &kind));
    ORDO_TRY(check_tensors(&list, p, pass, host, out));
    ORDO_TRY(check_workspace(&list, out, workspace_bytes));
    ORDO_TRY(check_slopes(p, out));
    ORDO_TRY(check_sink(&list, p, pass, out));
    ORDO_TRY(check_bias(&list, p, pass, out));
    ORDO_TRY(check_arrays(&list, p, out));
    ORDO_TRY(check_lengths(p, host, out));
    ORDO_TRY(check_starts(p, pass, host, out));
    ORDO_TRY(check_pages(&list, p, host, out));
    ORDO_TRY(check_dropout(&list, p, host, out));
    ORDO_TRY(check_blocks(&list, p, host, out, mask));
    ORDO_TRY(check_overlap(&list));
    if (out->threads < 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "threads %d: expected 0 or more", out->threads);
    return ORDO_OK;
}

ordo_status ordo_combine_check(const ordo_problem *p, const ordo_combine *in, ordo_combine *out)
{
    ORDO_TRY(ordo_check_pointer("combine", in));
    static const ordo_nested nested[] = { ORDO_NESTED(ordo_combine, o), { 0 } };
    static const ordo_struct kind = ORDO_STRUCT(ordo_combine, "combine", ORDO_COMBINE_INIT, nested);
    ORDO_TRY(ordo_versioned_copy(out, in, &kind));
    ORDO_TRY(ordo_check_range("parts", out->parts, 1, 4096));
    if (!out->o_parts || !out->lse_parts)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected an array of %" PRId64,
                         out->o_parts ? "lse_parts" : "o_parts", out->parts);
    if (out->threads < 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "threads %d: expected 0 or more", out->threads);
    const shape o = { p->q_len, p->total_q, p->heads, p->v_head_dim };
    const int64_t rows = all_rows(p);
    for (int64_t x = 0; x < out->parts; x++) { /* each against the outputs */
        buffers list = { .count = 0 };
        ORDO_TRY(check_tensor(&list, p, "o", &out->o, o, true));
        ORDO_TRY(check_flat(&list, "lse", out->lse, rows * p->heads, true));
        ORDO_TRY(check_tensor(&list, p, "o_parts", &out->o_parts[x], o, false));
        ORDO_TRY(check_flat(&list, "lse_parts", out->lse_parts[x], rows * p->heads, false));
        ORDO_TRY(check_overlap(&list));
    }
    return ORDO_OK;
}
