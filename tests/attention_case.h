/* attention_case.h: random attention problems with inputs, run through the public API.
 *
 * A case owns every tensor of a call. Inputs are drawn from a seed by (sequence, row, head,
 * column), so that the same sequence in another batch or layout has the same inputs. Outputs are
 * poisoned before each run. */
#ifndef TESTS_ATTENTION_CASE_H
#define TESTS_ATTENTION_CASE_H

#include "base/half.h"
#include "check.h"
#include "ordo/attention.h"
#include "ref/attention.h"

enum { CASE_BATCH_MAX = 8 };

typedef struct attention_case {
    ordo_problem problem;
    ordo_call call;
    int32_t cu_q[CASE_BATCH_MAX + 1], cu_kv[CASE_BATCH_MAX + 1];
    int32_t q_lens[CASE_BATCH_MAX], kv_lens[CASE_BATCH_MAX];
    int64_t ids[CASE_BATCH_MAX];
    float slopes[64];
    float *dlse;
    size_t q_count, k_count, v_count, o_count, lse_count;
    bool backward;
} attention_case;

static inline size_t case_width(const attention_case *c)
{
    return c->problem.dtype == ORDO_F32 ? 4 : 2;
}

static inline void case_put(const attention_case *c, void *data, size_t at, double x)
{
    switch (c->problem.dtype) {
    case ORDO_F32: ((float *)data)[at] = (float)x; break;
    case ORDO_BF16: ((uint16_t *)data)[at] = ordo_bf16_from_f64(x); break;
    case ORDO_F16: ((uint16_t *)data)[at] = ordo_f16_from_f64(x); break;
    }
}

static inline double case_get(const attention_case *c, const void *data, size_t at)
{
    switch (c->problem.dtype) {
    case ORDO_F32: return ((const float *)data)[at];
    case ORDO_BF16: return ordo_f32_from_bf16(((const uint16_t *)data)[at]);
    case ORDO_F16: return ordo_f32_from_f16(((const uint16_t *)data)[at]);
    }
    return 0;
}

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
static inline void case_fill(attention_case *c, void *data, int tensor, bool keys, int64_t dim,
                             uint64_t seed)
{
    const ordo_problem *p = &c->problem;
    const int64_t heads = keys ? p->kv_heads : p->heads;
    size_t at = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t rows = keys ? p->kv_len : p->q_len;
        if (p->layout == ORDO_PACKED)
            rows = keys ? c->cu_kv[b + 1] - c->cu_kv[b] : c->cu_q[b + 1] - c->cu_q[b];
        for (int64_t r = 0; r < rows; r++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t d = 0; d < dim; d++)
                    case_put(c, data, at++, case_value(seed, tensor, c->ids[b], r, h, d));
    }
}

static inline void *case_alloc(size_t count, size_t width)
{
    void *memory = aligned_alloc(64, (count * width + 127) / 64 * 64);
    memset(memory, 0xa5, (count * width + 127) / 64 * 64);
    return memory;
}

/* The problem must be filled in, kv_heads, kv_len and v_head_dim included; lengths and ids in
 * the case. Allocates and fills everything. */
static inline void case_open(attention_case *c, uint64_t seed)
{
    const ordo_problem *p = &c->problem;
    const bool packed = p->layout == ORDO_PACKED;
    const size_t rows = (size_t)(packed ? p->total_q : p->batch * p->q_len);
    const size_t cols = (size_t)(packed ? p->total_kv : p->batch * p->kv_len);
    const size_t width = case_width(c);
    c->q_count = rows * (size_t)(p->heads * p->head_dim);
    c->k_count = cols * (size_t)(p->kv_heads * p->head_dim);
    c->v_count = cols * (size_t)(p->kv_heads * p->v_head_dim);
    c->o_count = rows * (size_t)(p->heads * p->v_head_dim);
    c->lse_count = rows * (size_t)p->heads;
    c->call = (ordo_call)ORDO_CALL_INIT;
    void **const pieces[] = { &c->call.q.data,  &c->call.k.data,  &c->call.v.data, &c->call.o.data,
                              &c->call.dout.data, &c->call.dq.data, &c->call.dk.data,
                              &c->call.dv.data };
    const size_t counts[] = { c->q_count, c->k_count, c->v_count, c->o_count,
                              c->o_count, c->q_count, c->k_count, c->v_count };
    for (int x = 0; x < 8; x++)
        *pieces[x] = case_alloc(counts[x], width);
    c->call.lse = case_alloc(c->lse_count, 4);
    case_fill(c, c->call.q.data, 0, false, p->head_dim, seed);
    case_fill(c, c->call.k.data, 1, true, p->head_dim, seed);
    case_fill(c, c->call.v.data, 2, true, p->v_head_dim, seed);
    case_fill(c, c->call.dout.data, 3, false, p->v_head_dim, seed);
    if (c->dlse) {
        c->dlse = case_alloc(c->lse_count, 4);
        uint64_t state = seed ^ 77;
        for (size_t x = 0; x < c->lse_count; x++)
            c->dlse[x] = (float)check_uniform(&state);
        c->call.dlse = c->dlse;
    }
    if (packed) {
        c->call.cu_q = c->cu_q;
        c->call.cu_kv = c->cu_kv;
    } else if (p->layout == ORDO_PADDED) {
        c->call.q_lens = c->q_lens;
        c->call.kv_lens = c->kv_lens;
    }
    c->call.sequence_ids = c->ids;
    for (int h = 0; h < 64; h++)
        c->slopes[h] = (float)exp2(-1.0 - h % 8);
    if (p->alibi)
        c->call.slopes = c->slopes;
    c->call.seed = seed;
    c->call.offset = 7;
}

static inline void case_close(attention_case *c)
{
    void *const pieces[] = { c->call.q.data,  c->call.k.data,  c->call.v.data,  c->call.o.data,
                             c->call.dout.data, c->call.dq.data, c->call.dk.data, c->call.dv.data,
                             c->call.lse,     c->dlse };
    for (int x = 0; x < 10; x++)
        free(pieces[x]);
}

/* Run forward and backward with outputs poisoned first; the workspace too. */
static inline ordo_status case_run(attention_case *c, const ordo_plan *plan, int threads)
{
    const size_t width = case_width(c), bytes = ordo_plan_workspace(plan);
    memset(c->call.o.data, 0xa5, c->o_count * width);
    memset(c->call.lse, 0xa5, c->lse_count * 4);
    memset(c->call.dq.data, 0xa5, c->q_count * width);
    memset(c->call.dk.data, 0xa5, c->k_count * width);
    memset(c->call.dv.data, 0xa5, c->v_count * width);
    void *workspace = aligned_alloc(256, (bytes + 511) / 256 * 256);
    memset(workspace, 0xa5, bytes);
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

/* A random problem with every feature; `most` rows a sequence. */
static inline void case_random(attention_case *c, uint64_t *seed, int most)
{
    *c = (attention_case){ .problem = ORDO_PROBLEM_INIT };
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
        p->window = (ordo_window){ true, check_between(seed, -1, 90), check_between(seed, -1, 60) };
    if (check_between(seed, 0, 3) == 0)
        p->softcap = 2 + 5 * (1 + check_uniform(seed));
    if (check_between(seed, 0, 3) == 0)
        p->scale = 0.05 + 0.2 * (1 + check_uniform(seed));
    p->alibi = check_between(seed, 0, 3) == 0;
    if (check_between(seed, 0, 1))
        p->dropout.p = check_between(seed, 0, 1) ? 0.1 : 0.17;
    if (check_between(seed, 0, 2) == 0)
        c->dlse = (float *)1; /* wanted */
    for (int64_t b = 0; b < p->batch; b++) {
        c->q_lens[b] = (int32_t)check_between(seed, 0, p->q_len);
        c->kv_lens[b] = p->kv_len == p->q_len ? c->q_lens[b]
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
    case_open(c, check_random(seed) >> 1);
}

static inline void case_print(const attention_case *c)
{
    const ordo_problem *p = &c->problem;
    printf("    dtype %d layout %d batch %d heads %d/%d q %d kv %d dim %d/%d mask %d window %d,%d,%d "
           "softcap %g scale %g alibi %d p %g dlse %d; lengths",
           p->dtype, p->layout, (int)p->batch, (int)p->heads, (int)p->kv_heads, (int)p->q_len,
           (int)p->kv_len, (int)p->head_dim, (int)p->v_head_dim, p->mask, p->window.on,
           (int)p->window.left, (int)p->window.right, p->softcap, p->scale, p->alibi, p->dropout.p,
           c->dlse != NULL);
    for (int b = 0; b < p->batch; b++)
        printf(" %dx%d", c->q_lens[b], c->kv_lens[b]);
    printf("\n");
}

#endif
