/* grid_case.h: a combination of features, its tensors in host memory, and the same sequences and
 * heads in other batches, layouts and shards.
 *
 *   grid_case c, alone;
 *   grid_draw(&c, &limits, 7);                   see grid_draw.h
 *   grid_part part = { ORDO_DENSE, .sequence = 2, .sequences = 1 };
 *   grid_part_of(&alone, &c, &part);             its sequence 2 in a batch of one
 *   grid_differ(&c, &alone, &part, &at)          after both have run
 *
 * Every tensor is seen as slices of one (sequence, row, head), whatever the layout. */
#ifndef TESTS_CUDA_GRID_CASE_H
#define TESTS_CUDA_GRID_CASE_H

#include "base/half.h"
#include "check.h"
#include "grid_bias.h"
#include "grid_blocks.h"
#include "ordo/ordo.h"
#include "plan/forms.h"

enum { GRID_BATCH_MAX = 7, GRID_HEADS_MAX = 32 };

/* Inputs, then outputs. */
enum {
    GRID_Q,
    GRID_K,
    GRID_V,
    GRID_DOUT,
    GRID_DLSE,
    GRID_O,
    GRID_LSE,
    GRID_DQ,
    GRID_DK,
    GRID_DV,
    GRID_TENSORS,
    GRID_OUTPUTS = GRID_O
};

static const struct {
    const char *name;
    bool keys;   /* a row a key, not a query */
    bool values; /* v_head_dim wide, not head_dim */
    bool row;    /* one f32 a (row, head) */
} grid_tensors[GRID_TENSORS] = {
    [GRID_Q] = { "q", false, false, false },      [GRID_K] = { "k", true, false, false },
    [GRID_V] = { "v", true, true, false },        [GRID_DOUT] = { "dout", false, true, false },
    [GRID_DLSE] = { "dlse", false, false, true }, [GRID_O] = { "o", false, true, false },
    [GRID_LSE] = { "lse", false, false, true },   [GRID_DQ] = { "dq", false, false, false },
    [GRID_DK] = { "dk", true, false, false },     [GRID_DV] = { "dv", true, true, false },
};

/* Whether CUDA runs the backward pass in chains or by phases, which round P before they compute dS
 * from it; and both by phases, which make no keep bits. */
static inline bool grid_rounds_p(const ordo_problem *p)
{
    return p->head_dim > 128 || p->v_head_dim > 128;
}

static inline bool grid_by_phases(const ordo_problem *p)
{
    return p->head_dim > 256 || p->v_head_dim > 256;
}

typedef struct grid_case {
    ordo_problem problem; /* kv_heads, kv_len and v_head_dim filled in */
    ordo_order order;     /* order of sums; 0: the plan's choice, and then `group` is not read */
    int64_t group;
    int32_t q_lens[GRID_BATCH_MAX], kv_lens[GRID_BATCH_MAX];
    int32_t cu_q[GRID_BATCH_MAX + 1], cu_kv[GRID_BATCH_MAX + 1];
    int64_t ids[GRID_BATCH_MAX];
    bool ids_given; /* else they count on from shard.batch0 */
    float slopes[GRID_BATCH_MAX * GRID_HEADS_MAX];
    bool slopes_each; /* sequence has its own */
    bool sinks;       /* one for each head */
    float sink[GRID_HEADS_MAX];
    float dsink[GRID_HEADS_MAX], dsink_parts[GRID_BATCH_MAX * GRID_HEADS_MAX]; /* written */
    grid_blocks blocks;
    ordo_block_mask *mask; /* made from them by grid_open() */
    grid_bias bias;
    float *dbias; /* its gradient, made by grid_open(), written */
    bool plain, bits_given, by_pointer, dlse;
    bool nan_padding;          /* else large numbers */
    double strength;           /* factor of q and k */
    int64_t head_gap, row_gap; /* elements between heads and rows; both 0: contiguous */
    uint64_t seed, offset;
    unsigned char *data[GRID_TENSORS];
} grid_case;

/* An element of a tensor. */
typedef struct grid_place {
    int tensor;
    int64_t sequence, head, row, column;
    uint32_t bits, expected; /* there, and in what it is compared with */
} grid_place;

/* ---- where things are ---- */

static inline bool grid_ragged(const grid_case *c)
{
    return c->problem.layout != ORDO_DENSE;
}

/* Whether it holds rows or columns of longer sequences, which only dense batches can. */
static inline bool grid_cut(const grid_case *c)
{
    return c->problem.shard.q_total > 0 || c->problem.shard.kv_total > 0;
}

/* Valid rows of sequence b, and what its memory has room for. */
static inline int64_t grid_length(const grid_case *c, bool keys, int64_t b)
{
    return keys ? c->kv_lens[b] : c->q_lens[b];
}

static inline int64_t grid_space(const grid_case *c, bool keys, int64_t b)
{
    if (c->problem.layout == ORDO_PACKED)
        return grid_length(c, keys, b);
    return keys ? c->problem.kv_len : c->problem.q_len;
}

static inline int64_t grid_first(const grid_case *c, bool keys, int64_t b)
{
    if (c->problem.layout == ORDO_PACKED)
        return keys ? c->cu_kv[b] : c->cu_q[b];
    return b * (keys ? c->problem.kv_len : c->problem.q_len);
}

static inline int64_t grid_rows(const grid_case *c, bool keys)
{
    const ordo_problem *p = &c->problem;
    if (p->layout == ORDO_PACKED)
        return keys ? p->total_kv : p->total_q;
    return p->batch * (keys ? p->kv_len : p->q_len);
}

static inline int64_t grid_heads(const grid_case *c, int tensor)
{
    return grid_tensors[tensor].keys ? c->problem.kv_heads : c->problem.heads;
}

/* Elements of a slice, their bytes, and bytes of the whole. */
static inline int64_t grid_dim(const grid_case *c, int tensor)
{
    if (grid_tensors[tensor].row)
        return 1;
    return grid_tensors[tensor].values ? c->problem.v_head_dim : c->problem.head_dim;
}

static inline size_t grid_width(int tensor)
{
    return grid_tensors[tensor].row ? sizeof(float) : sizeof(uint16_t);
}

static inline size_t grid_slice(const grid_case *c, int tensor)
{
    return (size_t)grid_dim(c, tensor) * grid_width(tensor);
}

/* Elements from a head to the next, and from a row to the next. */
static inline int64_t grid_head_stride(const grid_case *c, int tensor)
{
    return grid_dim(c, tensor) + c->head_gap;
}

static inline int64_t grid_row_stride(const grid_case *c, int tensor)
{
    return grid_heads(c, tensor) * grid_head_stride(c, tensor) + c->row_gap;
}

/* Elements between rows of the bias. */
static inline int64_t grid_bias_gap(const grid_case *c)
{
    return c->bias.wide ? -c->problem.kv_len & 7 : c->row_gap;
}

static inline size_t grid_bytes(const grid_case *c, int tensor)
{
    const int64_t rows = grid_rows(c, grid_tensors[tensor].keys);
    if (grid_tensors[tensor].row)
        return (size_t)(rows * c->problem.heads) * sizeof(float);
    return (size_t)(rows * grid_row_stride(c, tensor)) * grid_width(tensor);
}

/* Where a slice begins, in bytes. */
static inline size_t grid_at(const grid_case *c, int tensor, int64_t b, int64_t row, int64_t head)
{
    const ordo_problem *p = &c->problem;
    const int64_t first = grid_first(c, grid_tensors[tensor].keys, b);
    if (!grid_tensors[tensor].row)
        return (size_t)((first + row) * grid_row_stride(c, tensor) +
                        head * grid_head_stride(c, tensor)) *
               grid_width(tensor);
    if (p->layout == ORDO_PACKED)
        return (size_t)(head * p->total_q + first + row) * sizeof(float);
    return (size_t)((b * p->heads + head) * p->q_len + row) * sizeof(float);
}

/* A tensor as a call describes it. */
static inline ordo_tensor grid_tensor(const grid_case *c, int tensor, void *data)
{
    const int64_t row = grid_row_stride(c, tensor);
    ordo_tensor view = { .data = data };
    if (c->head_gap == 0 && c->row_gap == 0)
        return view;
    view.stride[0] = grid_space(c, grid_tensors[tensor].keys, 0) * row; /* not read if packed */
    view.stride[1] = row;
    view.stride[2] = grid_head_stride(c, tensor);
    view.stride[3] = 1;
    return view;
}

static inline double grid_value(const grid_case *c, uint16_t half)
{
    return (double)(c->problem.dtype == ORDO_BF16 ? ordo_f32_from_bf16(half)
                                                  : ordo_f32_from_f16(half));
}

static inline uint16_t grid_half(const grid_case *c, double x)
{
    return c->problem.dtype == ORDO_BF16 ? ordo_bf16_from_f64(x) : ordo_f16_from_f64(x);
}

/* ---- memory ---- */

static inline void grid_close(grid_case *c)
{
    for (int t = 0; t < GRID_TENSORS; t++)
        free(c->data[t]);
    free(c->dbias);
    grid_block_destroy(c->mask);
}

/* The mask of blocks or elements, and room for all tensors. What is in padding must not matter:
 * numbers that would show, or NaN. */
static inline void grid_open(grid_case *c)
{
    c->mask = grid_block_mask(&c->blocks, &c->problem);
    c->dbias = grid_bias_open(&c->bias, &c->problem);
    const uint16_t trash = c->nan_padding ? 0xffff : grid_half(c, 3e4);
    for (int t = 0; t < GRID_TENSORS; t++) {
        const size_t bytes = grid_bytes(c, t);
        c->data[t] = malloc(bytes + 1);
        if (!c->data[t])
            abort();
        for (size_t x = 0; t < GRID_OUTPUTS && x + 1 < bytes; x += 2)
            memcpy(c->data[t] + x, &trash, sizeof trash);
    }
}

/* ---- the same elsewhere ---- */

/* Lengths, then what follows from them. A packed batch of no rows at all has no tensors. */
static inline void grid_settle(grid_case *c, int64_t spare)
{
    ordo_problem *p = &c->problem;
    p->q_len = p->kv_len = 1;
    for (int64_t b = 0; b < p->batch; b++) {
        c->cu_q[b + 1] = c->cu_q[b] + c->q_lens[b];
        c->cu_kv[b + 1] = c->cu_kv[b] + c->kv_lens[b];
        if (p->q_len < c->q_lens[b])
            p->q_len = c->q_lens[b];
        if (p->kv_len < c->kv_lens[b])
            p->kv_len = c->kv_lens[b];
    }
    if (p->layout == ORDO_PACKED && (c->cu_q[p->batch] == 0 || c->cu_kv[p->batch] == 0))
        p->layout = ORDO_PADDED;
    p->total_q = p->layout == ORDO_PACKED ? c->cu_q[p->batch] : 0;
    p->total_kv = p->layout == ORDO_PACKED ? c->cu_kv[p->batch] : 0;
    if (grid_ragged(c)) { /* maxima may be larger than the longest */
        p->q_len += spare;
        p->kv_len += spare;
    }
}

/* Sequences and key heads of another case; count 0: all. */
typedef struct grid_part {
    ordo_layout layout;
    int64_t sequence, sequences;
    int64_t kv_head, kv_heads;
    bool lone; /* all sequences but this one become NaN, and are not compared */
    int64_t sane;
    unsigned tensors; /* bits of the outputs that are compared; 0: all of them */
} grid_part;

static inline void grid_copy_inputs(grid_case *to, const grid_case *from, const grid_part *part)
{
    const int64_t group = from->problem.heads / from->problem.kv_heads;
    for (int t = 0; t < GRID_OUTPUTS; t++) {
        const bool keys = grid_tensors[t].keys;
        const int64_t head0 = keys ? part->kv_head : part->kv_head * group;
        for (int64_t b = 0; b < to->problem.batch; b++)
            for (int64_t r = 0; r < grid_length(to, keys, b); r++)
                for (int64_t h = 0; h < grid_heads(to, t); h++)
                    memcpy(to->data[t] + grid_at(to, t, b, r, h),
                           from->data[t] + grid_at(from, t, part->sequence + b, r, head0 + h),
                           grid_slice(to, t));
    }
}

/* All that sequence b brings becomes NaN. */
static inline void grid_make_nan(grid_case *c, int64_t b)
{
    for (int t = 0; t < GRID_OUTPUTS; t++) {
        const bool keys = grid_tensors[t].keys;
        for (int64_t r = 0; r < grid_length(c, keys, b); r++)
            for (int64_t h = 0; h < grid_heads(c, t); h++)
                memset(c->data[t] + grid_at(c, t, b, r, h), 0xff, grid_slice(c, t));
    }
}

/* Part of a case as a case of its own: same ids, same heads of the whole, same inputs. */
static inline void grid_part_of(grid_case *to, const grid_case *from, grid_part *part)
{
    const int64_t group = from->problem.heads / from->problem.kv_heads;
    if (part->sequences == 0)
        part->sequences = from->problem.batch;
    if (part->kv_heads == 0)
        part->kv_heads = from->problem.kv_heads;
    *to = *from;
    ordo_problem *p = &to->problem;
    p->layout = part->layout;
    p->batch = part->sequences;
    p->kv_heads = part->kv_heads;
    p->heads = part->kv_heads * group;
    p->shard.batch0 += part->sequence;
    p->shard.head0 += part->kv_head * group;
    if (p->shard.heads_total == 0)
        p->shard.heads_total = from->problem.heads;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t was = part->sequence + b;
        to->q_lens[b] = from->q_lens[was];
        to->kv_lens[b] = from->kv_lens[was];
        to->ids[b] = from->ids[was];
        for (int64_t h = 0; h < p->heads; h++)
            to->slopes[b * p->heads + h] =
                from->slopes[(from->slopes_each ? was * from->problem.heads : 0) +
                             part->kv_head * group + h];
    }
    memcpy(to->sink, from->sink + part->kv_head * group, (size_t)p->heads * sizeof *to->sink);
    to->slopes_each = true;
    to->blocks.sequence0 += part->sequence;
    to->blocks.head0 += part->kv_head * group;
    to->bias.sequence0 += part->sequence;
    to->bias.head0 += part->kv_head * group;
    to->head_gap = to->row_gap = 0;
    grid_settle(to, 0);
    grid_open(to);
    grid_copy_inputs(to, from, part);
    for (int64_t b = 0; b < p->batch && part->lone; b++)
        if (b != part->sane)
            grid_make_nan(to, b);
}

/* ---- comparing bits ---- */

static inline uint32_t grid_bits(const grid_case *c, int tensor, size_t at)
{
    uint32_t bits = 0;
    memcpy(&bits, c->data[tensor] + at, grid_width(tensor));
    return bits;
}

static inline bool grid_slice_differs(const grid_case *whole, size_t a, const grid_case *part,
                                      size_t b, grid_place *at)
{
    const int t = at->tensor;
    if (memcmp(whole->data[t] + a, part->data[t] + b, grid_slice(part, t)) == 0)
        return false;
    for (int64_t d = 0; d < grid_dim(part, t); d++) {
        const size_t shift = (size_t)d * grid_width(t);
        at->column = d;
        at->bits = grid_bits(part, t, b + shift);
        at->expected = grid_bits(whole, t, a + shift);
        if (at->bits != at->expected)
            break;
    }
    return true;
}

static inline uint32_t grid_part_bits(const grid_case *c, int64_t sequence, int64_t head)
{
    uint32_t bits;
    memcpy(&bits, &c->dsink_parts[sequence * c->problem.heads + head], sizeof bits);
    return bits;
}

/* The same of the gradients of sinks, sequence by sequence. */
static inline bool grid_sinks_differ(const grid_case *whole, const grid_case *part,
                                     const grid_part *p, int64_t *sequence, int64_t *head)
{
    const int64_t head0 = p->kv_head * (whole->problem.heads / whole->problem.kv_heads);
    for (*sequence = 0; part->sinks && *sequence < part->problem.batch; ++*sequence)
        for (*head = 0; *head < part->problem.heads && !(p->lone && *sequence != p->sane); ++*head)
            if (grid_part_bits(part, *sequence, *head) !=
                grid_part_bits(whole, p->sequence + *sequence, head0 + *head))
                return true;
    return false;
}

/* The same of the gradient of a bias, from element (row, column) of the whole on; of sequences and
 * heads that share it, if the part has them all. */
static inline bool grid_bias_differs(const grid_case *whole, const grid_case *part,
                                     const grid_part *p, int64_t row, int64_t column)
{
    const ordo_problem *a = &whole->problem, *b = &part->problem;
    const int64_t head0 = p->kv_head * (a->heads / a->kv_heads);
    if (!part->bias.on || (!part->bias.per_sequence && (p->lone || b->batch < a->batch)) ||
        (!part->bias.per_head && b->heads < a->heads))
        return false;
    for (int64_t n = 0; n < ordo_bias_sequences(b) * ordo_bias_heads(b); n++) {
        const int64_t sequence = n / ordo_bias_heads(b), head = n % ordo_bias_heads(b);
        for (int64_t i = 0; i < b->q_len && row + i < a->q_len; i++)
            for (int64_t j = 0; j < b->kv_len && column + j < a->kv_len; j++)
                if (!(p->lone && sequence != p->sane) &&
                    ordo_f32_bits(part->dbias[grid_bias_at(b, sequence, head, i, j)]) !=
                        ordo_f32_bits(whole->dbias[grid_bias_at(
                            a, p->sequence + sequence, head0 + head, row + i, column + j)]))
                    return true;
    }
    return false;
}

/* Whether an output of the part has other bits than the whole; `at` is the first that has. */
static inline bool grid_differ(const grid_case *whole, const grid_case *part, const grid_part *p,
                               grid_place *at)
{
    const int64_t group = whole->problem.heads / whole->problem.kv_heads;
    for (int t = GRID_OUTPUTS; t < GRID_TENSORS; t++) {
        const bool keys = grid_tensors[t].keys;
        const int64_t head0 = keys ? p->kv_head : p->kv_head * group;
        for (int64_t b = 0; b < part->problem.batch && (!p->tensors || p->tensors >> t & 1); b++)
            for (int64_t r = 0; r < grid_length(part, keys, b) && !(p->lone && b != p->sane); r++)
                for (int64_t h = 0; h < grid_heads(part, t); h++) {
                    *at = (grid_place) { .tensor = t, .sequence = b, .head = h, .row = r };
                    if (grid_slice_differs(whole, grid_at(whole, t, p->sequence + b, r, head0 + h),
                                           part, grid_at(part, t, b, r, h), at))
                        return true;
                }
    }
    return false;
}

#endif
