/* attention_case.h: random attention problems with inputs, run through the public API.
 *
 * A case owns every tensor of a call. Inputs are drawn from a seed by (sequence id, row, head of
 * the whole model, column), so that the same sequence in another batch, layout or shard has the
 * same inputs. Outputs and workspace are poisoned before each run.
 *
 *   attention_case c;
 *   case_random(&c, &seed, 200);
 *   ordo_plan *plan = case_plan(&c, NULL);
 *   case_run(&c, plan, 2);             results are in c.call.o, c.call.lse, ...
 *   case_results one = case_keep(&c);  and copied here
 *
 * case_same() compares all bits of a run with a copy, case_same_sequence() one sequence of a case
 * with one of another. */
#ifndef TESTS_ATTENTION_CASE_H
#define TESTS_ATTENTION_CASE_H

#include "base/bias.h"
#include "base/half.h"
#include "base/keep.h"
#include "check.h"
#include "ordo/attention.h"
#include "ordo/seen.h"
#include "ref/attention.h"

enum { CASE_BATCH_MAX = 8, CASE_SLOPES = 64, CASE_POISON = 0xa5 };

typedef struct attention_case {
    ordo_problem problem;
    ordo_call call;
    int32_t cu_q[CASE_BATCH_MAX + 1], cu_kv[CASE_BATCH_MAX + 1];
    int32_t q_lens[CASE_BATCH_MAX], kv_lens[CASE_BATCH_MAX];
    int64_t ids[CASE_BATCH_MAX];
    float slopes[CASE_SLOPES];
    bool sinks; /* set before case_open(): one for each head */
    float sink[CASE_SLOPES], dsink[CASE_SLOPES], dsink_parts[CASE_BATCH_MAX * CASE_SLOPES];
    uint32_t *bits;          /* stored keep bits, or NULL */
    ordo_block_mask *blocks; /* or NULL */
    ordo_block_mask seen;    /* an element mask, or zeros, */
    void *seen_memory;       /* and where it lies */
    float *dlse;             /* set before case_open(): wanted */
    double strength;         /* factor of q and k; 0 = 1 */
    int poison;              /* byte that outputs and workspace are filled with; 0 = CASE_POISON */
    size_t q_count, k_count, v_count, o_count, lse_count, bias_count;
} attention_case;

static inline size_t case_width(const attention_case *c)
{
    return c->problem.dtype == ORDO_F32 ? 4 : 2;
}

static inline void case_put_as(ordo_dtype dtype, void *data, size_t at, double x)
{
    switch (dtype) {
    case ORDO_F32: ((float *)data)[at] = (float)x; break;
    case ORDO_BF16: ((uint16_t *)data)[at] = ordo_bf16_from_f64(x); break;
    case ORDO_F16: ((uint16_t *)data)[at] = ordo_f16_from_f64(x); break;
    }
}
static inline void case_put(const attention_case *c, void *data, size_t at, double x)
{
    case_put_as(c->problem.dtype, data, at, x);
}

static inline double case_get_as(ordo_dtype dtype, const void *data, size_t at)
{
    switch (dtype) {
    case ORDO_F32: return (double)((const float *)data)[at];
    case ORDO_BF16: return (double)ordo_f32_from_bf16(((const uint16_t *)data)[at]);
    case ORDO_F16: return (double)ordo_f32_from_f16(((const uint16_t *)data)[at]);
    }
    return 0;
}
static inline double case_get(const attention_case *c, const void *data, size_t at)
{
    return case_get_as(c->problem.dtype, data, at);
}

/* ---- where things are ---- */

/* Rows (or columns) that the memory of sequence b has, and those of them that are valid. */
static inline int64_t case_space(const attention_case *c, bool keys, int64_t b)
{
    if (c->problem.layout == ORDO_PACKED)
        return keys ? c->cu_kv[b + 1] - c->cu_kv[b] : c->cu_q[b + 1] - c->cu_q[b];
    return keys ? c->problem.kv_len : c->problem.q_len;
}
static inline int64_t case_length(const attention_case *c, bool keys, int64_t b)
{
    if (c->problem.layout == ORDO_PADDED)
        return keys ? c->kv_lens[b] : c->q_lens[b];
    return case_space(c, keys, b);
}

/* Index of element (b, row, head, 0) of a contiguous tensor with rows of `dim`. */
static inline size_t case_at(const attention_case *c, bool keys, int64_t dim, int64_t b,
                             int64_t row, int64_t head)
{
    const ordo_problem *p = &c->problem;
    const int64_t heads = keys ? p->kv_heads : p->heads, length = keys ? p->kv_len : p->q_len;
    const int64_t first = p->layout == ORDO_PACKED ? (keys ? c->cu_kv[b] : c->cu_q[b]) : b * length;
    return (size_t)(((first + row) * heads + head) * dim);
}
static inline size_t case_lse_at(const attention_case *c, int64_t b, int64_t row, int64_t head)
{
    const ordo_problem *p = &c->problem;
    if (p->layout == ORDO_PACKED)
        return (size_t)(head * p->total_q + c->cu_q[b] + row);
    return (size_t)((b * p->heads + head) * p->q_len + row);
}

/* Index of row 0 of the bias of (b, head), and of its gradient. */
static inline size_t case_bias_at(const ordo_problem *p, int64_t b, int64_t head)
{
    const int64_t sequence = p->bias.per_sequence ? b : 0, own = p->bias.per_head ? head : 0;
    return (size_t)((sequence * ordo_bias_heads(p) + own) * p->q_len * p->kv_len);
}

/* ---- making one ---- */

/* Bell-shaped, from coordinates. */
static inline double case_value(uint64_t seed, int tensor, int64_t id, int64_t row, int64_t head,
                                int64_t d)
{
    uint64_t state = seed * 31 + (uint64_t)tensor;
    state = state * 1000003 + (uint64_t)id;
    state = state * 1000003 + (uint64_t)row;
    state = state * 1000003 + (uint64_t)head;
    state = state * 1000003 + (uint64_t)d;
    check_random(&state);
    return check_uniform(&state) + check_uniform(&state) + check_uniform(&state);
}

/* Fill a contiguous (batch, row, head, dim) or packed (row, head, dim) tensor. */
static inline void case_fill(const attention_case *c, void *data, int tensor, bool keys,
                             int64_t dim, uint64_t seed, double strength)
{
    const ordo_problem *p = &c->problem;
    const int64_t heads = keys ? p->kv_heads : p->heads;
    const int64_t head0 = keys ? p->shard.head0 / (p->heads / p->kv_heads) : p->shard.head0;
    size_t at = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t r = 0; r < case_space(c, keys, b); r++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t d = 0; d < dim; d++)
                    case_put(c, data, at++,
                             strength * case_value(seed, tensor, c->ids[b], r, head0 + h, d));
}

static inline void *case_alloc(size_t count, size_t width)
{
    const size_t bytes = (count * width + 127) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    if (!memory)
        abort();
    memset(memory, CASE_POISON, bytes);
    return memory;
}

static inline void case_fill_dlse(attention_case *c, uint64_t seed)
{
    c->dlse = case_alloc(c->lse_count, 4);
    c->call.dlse = c->dlse;
    for (int64_t b = 0; b < c->problem.batch; b++)
        for (int64_t h = 0; h < c->problem.heads; h++)
            for (int64_t r = 0; r < case_space(c, false, b); r++)
                c->dlse[case_lse_at(c, b, r, h)] =
                    (float)case_value(seed, 4, c->ids[b], r, c->problem.shard.head0 + h, 0);
}

/* Sinks of all sizes, by the head of the whole model: from far below the logits to far above. */
static inline void case_fill_sinks(attention_case *c, uint64_t seed)
{
    for (int64_t h = 0; h < c->problem.heads; h++)
        c->sink[h] = (float)(3 * case_value(seed, 5, 0, 0, c->problem.shard.head0 + h, 0));
    c->call.sink = c->sink;
    c->call.dsink = c->dsink;
    c->call.dsink_parts = c->dsink_parts;
}

/* A bias that hides some rows and some elements, by -inf and by large numbers. */
static inline void case_fill_bias(attention_case *c, uint64_t seed)
{
    const ordo_problem *p = &c->problem;
    const size_t width = p->bias.dtype == ORDO_F32 ? 4 : 2;
    c->bias_count = (size_t)ordo_bias_count(p);
    c->call.bias.data = case_alloc(c->bias_count, width);
    c->call.dbias = case_alloc(c->bias_count, 4);
    for (int64_t b = 0; b < ordo_bias_sequences(p); b++)
        for (int64_t h = 0; h < ordo_bias_heads(p); h++)
            for (int64_t r = 0; r < p->q_len; r++)
                for (int64_t j = 0; j < p->kv_len; j++) {
                    const int64_t id = p->bias.per_sequence ? c->ids[b] : 0;
                    const int64_t head = p->bias.per_head ? p->shard.head0 + h : 0;
                    const double x = case_value(seed, 6, id, r, head, j);
                    const bool far = fabs(x) > 1.6 || (r + id + head) % 29 == 7;
                    const double hidden = j % 3 && p->bias.dtype != ORDO_F16 ? -3e38 : -INFINITY;
                    case_put_as(p->bias.dtype, c->call.bias.data,
                                case_bias_at(p, b, h) + (size_t)(r * p->kv_len + j),
                                far ? hidden : 2 * x);
                }
}

/* Random rules: a mask, a window, a cap of logits, slopes. */
static inline void case_draw_rules(ordo_problem *p, uint64_t *seed)
{
    p->mask = (ordo_mask)check_between(seed, 0, 2);
    if (check_between(seed, 0, 2) == 0)
        p->window =
            (ordo_window) { true, check_between(seed, -1, 150), check_between(seed, -1, 90) };
    p->softcap = check_between(seed, 0, 3) ? 0 : 3;
    p->alibi = check_between(seed, 0, 3) == 0;
}

/* The problem must be filled in, kv_heads, kv_len and v_head_dim included; lengths and ids in
 * the case. Allocates and fills everything. The call then points into the case: do not copy it. */
static inline void case_open(attention_case *c, uint64_t seed)
{
    const ordo_problem *p = &c->problem;
    const bool packed = p->layout == ORDO_PACKED;
    const size_t rows = (size_t)(packed ? p->total_q : p->batch * p->q_len);
    const size_t cols = (size_t)(packed ? p->total_kv : p->batch * p->kv_len);
    const size_t width = case_width(c);
    const double strength = c->strength == 0 ? 1 : c->strength;
    c->q_count = rows * (size_t)(p->heads * p->head_dim);
    c->k_count = cols * (size_t)(p->kv_heads * p->head_dim);
    c->v_count = cols * (size_t)(p->kv_heads * p->v_head_dim);
    c->o_count = rows * (size_t)(p->heads * p->v_head_dim);
    c->lse_count = rows * (size_t)p->heads;
    c->call = (ordo_call)ORDO_CALL_INIT;
    void **const pieces[] = { &c->call.q.data,    &c->call.k.data,  &c->call.v.data,
                              &c->call.o.data,    &c->call.dq.data, &c->call.dk.data,
                              &c->call.dout.data, &c->call.dv.data };
    const size_t counts[] = { c->q_count, c->k_count, c->v_count, c->o_count,
                              c->q_count, c->k_count, c->o_count, c->v_count };
    for (int x = 0; x < 8; x++)
        *pieces[x] = case_alloc(counts[x], width);
    c->call.lse = case_alloc(c->lse_count, 4);
    case_fill(c, c->call.q.data, 0, false, p->head_dim, seed, strength);
    case_fill(c, c->call.k.data, 1, true, p->head_dim, seed, strength);
    case_fill(c, c->call.v.data, 2, true, p->v_head_dim, seed, 1);
    case_fill(c, c->call.dout.data, 3, false, p->v_head_dim, seed, 1);
    if (c->dlse)
        case_fill_dlse(c, seed);
    if (c->sinks)
        case_fill_sinks(c, seed);
    if (p->bias.on)
        case_fill_bias(c, seed);
    if (packed) {
        c->call.cu_q = c->cu_q;
        c->call.cu_kv = c->cu_kv;
    } else if (p->layout == ORDO_PADDED) {
        c->call.q_lens = c->q_lens;
        c->call.kv_lens = c->kv_lens;
    }
    c->call.sequence_ids = c->ids;
    for (int h = 0; h < CASE_SLOPES; h++)
        c->slopes[h] = (float)ldexp(1, -1 - (int)((h + p->shard.head0) % 8));
    if (p->alibi)
        c->call.slopes = c->slopes;
    c->call.seed = seed;
    c->call.offset = 7;
}

/* Keep bits of any values, instead of generated ones. */
static inline void case_store_bits(attention_case *c, uint64_t *seed)
{
    int64_t blocks = 0;
    for (int64_t b = 0; b < c->problem.batch; b++)
        blocks +=
            c->problem.heads * ordo_keep_blocks(case_space(c, false, b), case_space(c, true, b));
    c->bits = case_alloc((size_t)blocks * ORDO_KEEP_WORDS, 4);
    for (int64_t w = 0; w < blocks * ORDO_KEEP_WORDS; w++)
        c->bits[w] = (uint32_t)(check_random(seed) | check_random(seed));
    c->call.keep_bits = c->bits;
}

static inline void case_close(attention_case *c)
{
    void *const pieces[] = { c->call.q.data,  c->call.k.data,  c->call.v.data, c->call.o.data,
                             c->call.dq.data, c->call.dk.data, c->call.lse,    c->call.dout.data,
                             c->call.dv.data, c->dlse,         c->bits,        c->call.bias.data,
                             c->call.dbias };
    for (int x = 0; x < 13; x++)
        free(pieces[x]);
    ordo_block_mask_destroy(c->blocks);
    free(c->seen_memory);
}

/* What a test cannot go on without. */
static inline void case_must(ordo_status status)
{
    if (status != ORDO_OK) {
        printf("  %s\n", ordo_last_error());
        exit(1);
    }
}

/* Give the case an element mask of bytes (sequences or 1, heads or 1, q_len, kv_len). */
static inline void case_set_seen(attention_case *c, const unsigned char *elements,
                                 bool per_sequence, bool per_head)
{
    ordo_problem *p = &c->problem;
    const int64_t head = p->q_len * p->kv_len, heads = per_head ? p->heads : 1;
    const int64_t strides[] = { heads * head, head, p->kv_len, 1 };
    size_t bytes = 0;
    p->seen = (ordo_seen_limits) { true, per_sequence, per_head };
    case_must(ordo_seen_bytes(p, &bytes));
    free(c->seen_memory);
    c->seen_memory = case_alloc(bytes, 1);
    c->seen = (ordo_block_mask)ORDO_BLOCK_MASK_INIT;
    case_must(ordo_seen_make(&c->seen, p, elements, strides, c->seen_memory, bytes));
    c->call.seen = &c->seen;
}

/* Give the case a block mask, which it then owns. */
static inline void case_set_blocks(attention_case *c, ordo_block_mask *mask)
{
    ordo_block_mask_destroy(c->blocks);
    c->blocks = mask;
    c->call.block_mask = mask;
    c->problem.blocks =
        (ordo_block_limits) { mask->entries + 1, mask->sequences > 1, mask->heads > 1 };
}

/* Lengths of packed and padded sequences, 0 included; a packed batch of none becomes padded. */
static inline void case_random_lengths(attention_case *c, uint64_t *seed)
{
    ordo_problem *p = &c->problem;
    for (int64_t b = 0; b < p->batch; b++) {
        c->q_lens[b] = (int32_t)check_between(seed, 0, p->q_len);
        c->kv_lens[b] = p->kv_len == p->q_len && check_between(seed, 0, 3)
                            ? c->q_lens[b]
                            : (int32_t)check_between(seed, 0, p->kv_len);
        c->cu_q[b + 1] = c->cu_q[b] + c->q_lens[b];
        c->cu_kv[b + 1] = c->cu_kv[b] + c->kv_lens[b];
        c->ids[b] = 5 + 3 * b;
    }
    if (p->layout == ORDO_PACKED) {
        p->total_q = c->cu_q[p->batch];
        p->total_kv = c->cu_kv[p->batch];
        if (p->total_q == 0 || p->total_kv == 0)
            p->layout = ORDO_PADDED, p->total_q = p->total_kv = 0;
    }
}

/* A random problem with every feature; `most` rows a sequence. */
static inline void case_random(attention_case *c, uint64_t *seed, int most)
{
    uint64_t own = *seed + 77; /* so that sinks and biases shift none of the draws below */
    *c = (attention_case) { .problem = ORDO_PROBLEM_INIT, .sinks = check_between(&own, 0, 2) == 0 };
    ordo_problem *p = &c->problem;
    static const int dims[] = { 64, 128, 32, 16, 96, 80, 1, 7, 24, 40, 100 };
    p->dtype = (ordo_dtype)check_between(seed, 0, 2);
    p->layout = (ordo_layout)check_between(seed, 0, 2);
    p->batch = check_between(seed, 1, 3);
    p->kv_heads = check_between(seed, 1, 3);
    p->heads = p->kv_heads * check_between(seed, 1, 3);
    p->head_dim = dims[check_between(seed, 0, 10)];
    p->v_head_dim = check_between(seed, 0, 3) ? p->head_dim : dims[check_between(seed, 0, 10)];
    p->q_len = check_between(seed, 1, most);
    p->kv_len = check_between(seed, 0, 2) ? p->q_len : check_between(seed, 1, most);
    p->mask = (ordo_mask)check_between(seed, 0, 2);
    if (check_between(seed, 0, 3) == 0)
        p->window =
            (ordo_window) { true, check_between(seed, -1, 90), check_between(seed, -1, 60) };
    if (check_between(seed, 0, 3) == 0)
        p->softcap = 2 + 5 * (1 + check_uniform(seed));
    if (check_between(seed, 0, 3) == 0)
        p->scale = 0.05 + 0.2 * (1 + check_uniform(seed));
    if (check_between(seed, 0, 15) == 0)
        p->scale = -0.11;
    p->alibi = check_between(seed, 0, 3) == 0;
    const bool dropout = check_between(seed, 0, 1);
    if (dropout)
        p->dropout.p = check_between(seed, 0, 1) ? 0.1 : 0.17;
    if (dropout && check_between(seed, 0, 3) == 0) {
        p->dropout.bits = (int)check_between(seed, 4, 16);
        p->dropout.rounds = check_between(seed, 0, 1) ? 7 : 10;
    } else if (dropout && check_between(seed, 0, 3) == 0) {
        p->dropout.keying = ORDO_KEYING_FA2;
    }
    if (check_between(seed, 0, 3) == 0) { /* a shard of a larger model */
        const int64_t group = p->heads / p->kv_heads;
        p->shard.head0 = group * check_between(seed, 0, 5);
        p->shard.heads_total = p->shard.head0 + p->heads + group * check_between(seed, 0, 2);
    }
    if (check_between(seed, 0, 2) == 0)
        c->dlse = (float *)1; /* wanted */
    case_random_lengths(c, seed);
    if (p->layout != ORDO_PACKED && check_between(&own, 0, 2) == 0)
        p->bias = (ordo_bias) { true, check_between(&own, 0, 1), check_between(&own, 0, 1),
                                check_between(&own, 0, 1) ? p->dtype : ORDO_F32 };
    case_open(c, check_random(seed) >> 1);
    if (dropout && check_between(seed, 0, 3) == 0)
        case_store_bits(c, seed);
    if (p->alibi && check_between(seed, 0, 1))
        c->call.slopes_batch_stride = p->heads;
}

static inline void case_print(const attention_case *c)
{
    const ordo_problem *p = &c->problem;
    printf("    dtype %d layout %d batch %d heads %d/%d from %d of %d q %d kv %d dim %d/%d mask %d "
           "window %d,%d,%d softcap %g scale %g alibi %d p %g bits %d keying %d stored %d dlse %d "
           "sinks %d seen %d,%d,%d bias %d,%d,%d,%d; lengths",
           (int)p->dtype, (int)p->layout, (int)p->batch, (int)p->heads, (int)p->kv_heads,
           (int)p->shard.head0, (int)p->shard.heads_total, (int)p->q_len, (int)p->kv_len,
           (int)p->head_dim, (int)p->v_head_dim, (int)p->mask, p->window.on, (int)p->window.left,
           (int)p->window.right, p->softcap, p->scale, p->alibi, p->dropout.p, p->dropout.bits,
           (int)p->dropout.keying, c->bits != NULL, c->dlse != NULL, c->call.sink != NULL,
           p->seen.on, p->seen.per_sequence, p->seen.per_head, p->bias.on, p->bias.per_sequence,
           p->bias.per_head, (int)p->bias.dtype);
    for (int b = 0; b < p->batch; b++)
        printf(" %dx%d", (int)case_length(c, false, b), (int)case_length(c, true, b));
    printf("\n");
}

/* ---- running it ---- */

/* A plan of the cpu backend; `options` NULL = defaults. The test ends if there is none. */
static inline ordo_plan *case_plan(const attention_case *c, const ordo_plan_options *options)
{
    ordo_plan_options cpu = ORDO_PLAN_OPTIONS_INIT;
    if (options)
        cpu = *options;
    cpu.backend = ORDO_BACKEND_CPU;
    ordo_plan *plan = NULL;
    if (ordo_plan_create(&plan, &c->problem, NULL, &cpu) != ORDO_OK) {
        printf("  no plan: %s\n", ordo_last_error());
        case_print(c);
        exit(1);
    }
    return plan;
}

/* Run forward and backward with outputs poisoned first; the workspace too. */
static inline ordo_status case_run(attention_case *c, const ordo_plan *plan, int threads)
{
    const size_t width = case_width(c), bytes = ordo_plan_workspace(plan);
    const int poison = c->poison ? c->poison : CASE_POISON;
    memset(c->call.o.data, poison, c->o_count * width);
    memset(c->call.lse, poison, c->lse_count * 4);
    memset(c->call.dq.data, poison, c->q_count * width);
    memset(c->call.dk.data, poison, c->k_count * width);
    memset(c->call.dv.data, poison, c->v_count * width);
    if (c->call.dbias)
        memset(c->call.dbias, poison, c->bias_count * 4);
    memset(c->dsink, poison, sizeof c->dsink);
    memset(c->dsink_parts, poison, sizeof c->dsink_parts);
    void *workspace = aligned_alloc(256, (bytes + 511) / 256 * 256);
    if (!workspace)
        abort();
    memset(workspace, poison, bytes);
    c->call.workspace = workspace;
    c->call.workspace_bytes = bytes;
    c->call.threads = threads;
    ordo_status status = ordo_attention_forward(plan, &c->call);
    if (status == ORDO_OK)
        status = ordo_attention_backward(plan, &c->call);
    free(workspace);
    c->call.workspace = NULL;
    return status;
}

/* ---- comparing bits ---- */

enum { CASE_OUTPUTS = 5 };
static const char *const case_output_names[CASE_OUTPUTS] = { "o", "lse", "dq", "dk", "dv" };

typedef struct case_results {
    unsigned char *data[CASE_OUTPUTS];
    size_t width[CASE_OUTPUTS], count[CASE_OUTPUTS];
    float dsink[CASE_SLOPES], dsink_parts[CASE_BATCH_MAX * CASE_SLOPES];
    float *dbias; /* NULL: none */
} case_results;

/* The outputs of a case as they lie in its call; no copies. */
static inline case_results case_outputs(const attention_case *c)
{
    const size_t width = case_width(c);
    return (case_results) {
        { c->call.o.data, (unsigned char *)c->call.lse, c->call.dq.data, c->call.dk.data,
          c->call.dv.data },
        { width, 4, width, width, width },
        { c->o_count, c->lse_count, c->q_count, c->k_count, c->v_count },
    };
}

static inline case_results case_keep(const attention_case *c)
{
    case_results r = case_outputs(c);
    for (int x = 0; x < CASE_OUTPUTS; x++) {
        unsigned char *copy = case_alloc(r.count[x], r.width[x]);
        memcpy(copy, r.data[x], r.count[x] * r.width[x]);
        r.data[x] = copy;
    }
    if (c->call.dbias) {
        r.dbias = case_alloc(c->bias_count, 4);
        memcpy(r.dbias, c->call.dbias, c->bias_count * 4);
    }
    memcpy(r.dsink, c->dsink, sizeof r.dsink);
    memcpy(r.dsink_parts, c->dsink_parts, sizeof r.dsink_parts);
    return r;
}

static inline void case_drop(case_results *r)
{
    for (int x = 0; x < CASE_OUTPUTS; x++)
        free(r->data[x]);
    free(r->dbias);
}

/* Bits of one element. */
static inline uint64_t case_bits(const case_results *r, int output, size_t at)
{
    uint64_t bits = 0;
    memcpy(&bits, r->data[output] + at * r->width[output], r->width[output]);
    return bits;
}

/* All outputs of the last run equal `one` bit for bit; `what` was changed between them. Prints the
 * first that is not, and says so. */
static inline bool case_same(const attention_case *c, const case_results *one, const char *what)
{
    const case_results r = case_outputs(c);
    for (int x = 0; x < CASE_OUTPUTS; x++) {
        if (memcmp(r.data[x], one->data[x], r.count[x] * r.width[x]) == 0)
            continue;
        size_t at = 0;
        while (case_bits(&r, x, at) == case_bits(one, x, at))
            at++;
        CHECK_FAIL("%s: %s[%zu] is %#" PRIx64 ", was %#" PRIx64, what, case_output_names[x], at,
                   case_bits(&r, x, at), case_bits(one, x, at));
        if (check_failures <= 20)
            case_print(c);
        return false;
    }
    if (c->call.dbias && one->dbias && memcmp(c->call.dbias, one->dbias, c->bias_count * 4) != 0) {
        CHECK_FAIL("%s: dbias has other bits", what);
        if (check_failures <= 20)
            case_print(c);
        return false;
    }
    const size_t sinks = c->call.sink ? 4 * (size_t)c->problem.heads : 0; /* bytes */
    if (memcmp(c->dsink, one->dsink, sinks) != 0 ||
        memcmp(c->dsink_parts, one->dsink_parts, sinks * (size_t)c->problem.batch) != 0) {
        CHECK_FAIL("%s: dsink or dsink_parts has other bits", what);
        if (check_failures <= 20)
            case_print(c);
        return false;
    }
    return true;
}

/* Rows of one output of (sequence b, head h) of `a` equal those of (other, g) of `c`. */
static inline bool case_same_rows(const attention_case *a, int64_t b, int64_t h,
                                  const attention_case *c, int64_t other, int64_t g, int output)
{
    const bool keys = output >= 3;
    const ordo_problem *p = &a->problem;
    const int64_t dim = output == 1 ? 1 : output == 0 || output == 4 ? p->v_head_dim : p->head_dim;
    const case_results x = case_outputs(a), y = case_outputs(c);
    for (int64_t row = 0; row < case_length(a, keys, b); row++)
        for (int64_t d = 0; d < dim; d++) {
            const size_t i = output == 1 ? case_lse_at(a, b, row, h)
                                         : case_at(a, keys, dim, b, row, h) + (size_t)d;
            const size_t j = output == 1 ? case_lse_at(c, other, row, g)
                                         : case_at(c, keys, dim, other, row, g) + (size_t)d;
            if (case_bits(&x, output, i) != case_bits(&y, output, j)) {
                CHECK_FAIL("%s(sequence %d, head %d, row %d, %d) is %#" PRIx64
                           ", in the other case %#" PRIx64,
                           case_output_names[output], (int)b, (int)h, (int)row, (int)d,
                           case_bits(&x, output, i), case_bits(&y, output, j));
                return false;
            }
        }
    return true;
}

/* dbias of sequence b of `a` equals that of `other` of `c`, if each head has its own. */
static inline bool case_same_bias(const attention_case *a, int64_t b, const attention_case *c,
                                  int64_t other)
{
    const ordo_problem *p = &a->problem, *q = &c->problem;
    if (!a->call.dbias || !p->bias.per_sequence || !p->bias.per_head)
        return true;
    const int64_t shift = p->shard.head0 - q->shard.head0, cols = case_length(a, true, b);
    for (int64_t h = 0; h < p->heads; h++)
        for (int64_t r = 0; r < case_length(a, false, b); r++)
            if (memcmp(a->call.dbias + case_bias_at(p, b, h) + r * p->kv_len,
                       c->call.dbias + case_bias_at(q, other, h + shift) + r * q->kv_len,
                       4 * (size_t)cols) != 0) {
                CHECK_FAIL("dbias(sequence %d, head %d, row %d) has other bits in the other case",
                           (int)b, (int)h, (int)r);
                return false;
            }
    return true;
}

/* Sequence b of `a` has the bits of sequence `other` of `c`, whose heads are all or more of the
 * same model: both say by head0 where theirs begin. */
static inline bool case_same_sequence(const attention_case *a, int64_t b, const attention_case *c,
                                      int64_t other)
{
    const int64_t group = a->problem.heads / a->problem.kv_heads;
    const int64_t shift = a->problem.shard.head0 - c->problem.shard.head0;
    bool same = true;
    for (int output = 0; output < CASE_OUTPUTS; output++) {
        const bool keys = output >= 3;
        for (int64_t h = 0; h < (keys ? a->problem.kv_heads : a->problem.heads); h++)
            same &= case_same_rows(a, b, h, c, other, h + (keys ? shift / group : shift), output);
    }
    for (int64_t h = 0; a->call.sink && h < a->problem.heads; h++) {
        const float *x = &a->dsink_parts[b * a->problem.heads + h];
        const float *y = &c->dsink_parts[other * c->problem.heads + h + shift];
        uint32_t a_bits, c_bits;
        memcpy(&a_bits, x, sizeof a_bits);
        memcpy(&c_bits, y, sizeof c_bits);
        if (a_bits != c_bits) {
            CHECK_FAIL("dsink_parts(sequence %d, head %d) is %.9g, in the other case %.9g", (int)b,
                       (int)h, (double)*x, (double)*y);
            same = false;
        }
    }
    same &= case_same_bias(a, b, c, other);
    if (!same && check_failures <= 20) {
        case_print(a);
        case_print(c);
    }
    return same;
}

/* Run with a plan, and copy the results: those that case_again() must find. */
static inline case_results case_first(attention_case *c, const ordo_plan *plan, int threads)
{
    if (case_run(c, plan, threads) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    return case_keep(c);
}

static inline bool case_again(attention_case *c, const ordo_plan *plan, int threads,
                              const case_results *one, const char *what)
{
    if (case_run(c, plan, threads) != ORDO_OK)
        CHECK_FAIL("%s: %s", what, ordo_last_error());
    return case_same(c, one, what);
}

/* Run with a plan of these options; NULL = defaults. */
static inline void case_compute(attention_case *c, const ordo_plan_options *options, int threads)
{
    ordo_plan *plan = case_plan(c, options);
    if (case_run(c, plan, threads) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_plan_destroy(plan);
}

/* A rotating seed: ORDO_TEST_SEED if set, else `fixed`; printed. */
static inline uint64_t case_seed(uint64_t fixed)
{
    const char *text = getenv("ORDO_TEST_SEED");
    const uint64_t seed = text && *text ? strtoull(text, NULL, 0) : fixed;
    printf("  seed %" PRIu64 "\n", seed);
    return seed;
}

#endif
