/* sampler.h: a training pass over sequences, and what a sampler has of it: the last rows of a part
 * of each, with keys in pages or with those that a window's cache keeps. No sequence is longer than
 * the test's `most_keys`. */
#ifndef TESTS_CPU_SAMPLER_H
#define TESTS_CPU_SAMPLER_H

#include "base/half.h"
#include "check.h"
#include "ordo/attention.h"

/* The test's own: plans and runs a forward pass; a failure is one of the test, and false. */
static bool forward(const ordo_problem *problem, ordo_backend backend, ordo_call *call);

/* A training pass over each sequence by itself: dense, causal. */
typedef struct training {
    ordo_problem problem; /* one sequence; q_len is set for each */
    ordo_backend backend;
    int64_t length[SEQUENCES];
    float slopes[2 * GROUP_MOST], sink[2 * GROUP_MOST];
    uint16_t *q[SEQUENCES], *k[SEQUENCES], *v[SEQUENCES], *o[SEQUENCES];
    float *lse[SEQUENCES];
} training;

/* What a sampler has of it: the last rows of a part of each sequence, and keys in pages. */
typedef struct sampling {
    ordo_problem problem;
    ordo_call call;
    int64_t rows[SEQUENCES], end[SEQUENCES]; /* queries, and keys so far */
    int32_t cu_q[SEQUENCES + 1], cu_kv[SEQUENCES + 1], q_lens[SEQUENCES], kv_lens[SEQUENCES];
    int32_t starts[SEQUENCES], *table;
    uint16_t *q, *k, *v, *o;
    size_t keys; /* elements of k, and of v */
    float *lse;
} sampling;

static inline uint16_t *draw(uint64_t *seed, ordo_dtype dtype, size_t count)
{
    const int least = dtype == ORDO_F16 ? 0x3000 : 0x3e00, most = dtype == ORDO_F16 ? 0xfff : 0x1ff;
    uint16_t *x = malloc(count * sizeof *x + 1);
    for (size_t i = 0; i < count; i++) /* of magnitude 1/8 to 2 */
        x[i] = (uint16_t)((check_random(seed) & 1) << 15 | (least + check_between(seed, 0, most)));
    return x;
}

static inline uint16_t *nans(size_t count)
{
    uint16_t *x = malloc(count * sizeof *x + 1);
    for (size_t i = 0; i < count; i++)
        x[i] = 0x7fff;
    return x;
}

static inline void train(training *t, ordo_backend backend, ordo_dtype dtype, uint64_t *seed)
{
    static const int dims[] = { 64, 128, 32, 16, 192, 40 };
    *t = (training) { .problem = ORDO_PROBLEM_INIT, .backend = backend };
    ordo_problem *p = &t->problem;
    p->dtype = dtype;
    p->batch = 1;
    p->kv_heads = check_between(seed, 1, 2);
    p->heads = p->kv_heads * check_between(seed, 1, GROUP_MOST);
    p->head_dim = dims[check_between(seed, 0, 5)];
    p->v_head_dim = check_between(seed, 0, 3) ? p->head_dim : dims[check_between(seed, 0, 5)];
    p->mask = ORDO_MASK_CAUSAL;
    if (check_between(seed, 0, 1))
        p->window = (ordo_window) { true, check_between(seed, 0, 200), 0 };
    p->softcap = check_between(seed, 0, 2) ? 0 : 3;
    p->alibi = check_between(seed, 0, 3) == 0;
    for (int h = 0; h < 2 * GROUP_MOST; h++) {
        t->slopes[h] = (float)ldexp(1, -1 - h % 8);
        t->sink[h] = (float)check_uniform(seed);
    }
    ordo_call call = ORDO_CALL_INIT;
    call.slopes = p->alibi ? t->slopes : NULL;
    call.sink = check_between(seed, 0, 2) ? NULL : t->sink;
    if (!call.sink)
        t->sink[0] = NAN; /* none */
    for (int b = 0; b < SEQUENCES; b++) {
        const size_t rows = (size_t)(t->length[b] = check_between(seed, 1, most_keys));
        p->q_len = p->kv_len = t->length[b];
        call.q.data = t->q[b] = draw(seed, dtype, rows * (size_t)(p->heads * p->head_dim));
        call.k.data = t->k[b] = draw(seed, dtype, rows * (size_t)(p->kv_heads * p->head_dim));
        call.v.data = t->v[b] = draw(seed, dtype, rows * (size_t)(p->kv_heads * p->v_head_dim));
        call.o.data = t->o[b] = nans(rows * (size_t)(p->heads * p->v_head_dim));
        call.lse = t->lse[b] = malloc(rows * (size_t)p->heads * sizeof(float));
        forward(p, backend, &call);
    }
}

/* A tensor of pages in one of the layouts of engines; both share memory in the last one. */
static inline void lay_out(sampling *s, ordo_tensor *t, uint16_t *data, int64_t dim, int layout,
                           bool second)
{
    const int64_t heads = s->problem.kv_heads, rows = s->problem.paging.page_rows;
    const int64_t row = layout == 2 ? 2 * dim : dim; /* keys and values in one row */
    *t = (ordo_tensor) { data + (layout == 2 && second ? dim : 0), { 0 } };
    const int64_t by_row[4] = { rows * heads * dim, heads * dim, dim, 1 };
    const int64_t by_head[4] = { rows * heads * row, row, rows * row, 1 };
    memcpy(t->stride, layout == 0 ? by_row : by_head, sizeof by_row);
}

/* The entry of the table for a column, as include/ordo/attention.h has it. */
static inline int32_t *entry(const sampling *s, int b, int64_t page)
{
    const int64_t stride = s->call.page_table_stride;
    return &s->table[b * (stride ? stride : s->problem.paging.table_columns) + page];
}

static inline void store(const sampling *s, const ordo_tensor *t, const uint16_t *from, int b,
                         int64_t column, int64_t dim)
{
    const ordo_problem *p = &s->problem;
    const int64_t rows = p->paging.page_rows;
    const int64_t page = *entry(s, b, column / rows);
    for (int64_t h = 0; h < p->kv_heads; h++)
        memcpy((uint16_t *)t->data + page * t->stride[0] + column % rows * t->stride[1] +
                   h * t->stride[2],
               from + (column * p->kv_heads + h) * dim, (size_t)dim * sizeof *from);
}

/* Lengths so far, and what a window lets the cache drop. */
static inline void draw_lengths(sampling *s, const training *t, uint64_t *seed)
{
    const ordo_problem *p = &t->problem;
    const int64_t most = s->problem.q_len;
    for (int b = 0; b < SEQUENCES; b++) {
        s->end[b] = check_between(seed, 1, t->length[b]);
        s->rows[b] = check_between(seed, 0, s->end[b] < most ? s->end[b] : most);
        const int64_t hidden = s->end[b] - s->rows[b] - p->window.left;
        s->starts[b] = p->window.on && hidden > 0 ? (int32_t)check_between(seed, 0, hidden) : 0;
        s->q_lens[b] = (int32_t)s->rows[b];
        s->kv_lens[b] = (int32_t)s->end[b];
        s->cu_q[b + 1] = s->cu_q[b] + s->q_lens[b];
        s->cu_kv[b + 1] = s->cu_kv[b] + s->kv_lens[b] - s->starts[b];
    }
}

static inline void open_pages(sampling *s, const training *t, uint64_t *seed)
{
    ordo_problem *p = &s->problem;
    int64_t rows =
        check_between(seed, 0, 2) ? check_between(seed, 1, 40) : check_between(seed, 1, PAGE_MOST);
    if (check_between(seed, 0, 1)) /* as engines have them */
        rows = (rows + 15) / 16 * 16;
    const int64_t columns = (most_keys + rows - 1) / rows, pages = SEQUENCES * columns + 2;
    p->paging = (ordo_paging) { rows, pages, columns };
    const int64_t more = check_between(seed, 0, 2); /* entries of a line that are no columns */
    s->call.page_table_stride = more ? columns + more : 0;
    s->table = calloc((size_t)(SEQUENCES * (columns + more)), sizeof *s->table);
    for (int64_t x = 0; x < SEQUENCES * (columns + more); x++)
        s->table[x] = -9;
    for (int64_t x = 0; x < SEQUENCES * columns; x++) { /* a permutation, one longer each time */
        const int64_t y = check_between(seed, 0, x);
        int32_t *to = entry(s, (int)(x / columns), x % columns);
        int32_t *from = entry(s, (int)(y / columns), y % columns);
        *to = *from;
        *from = (int32_t)x;
    }
    const int layout = p->head_dim == p->v_head_dim ? (int)check_between(seed, 0, 2) : 0;
    const int64_t most = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
    s->keys = (size_t)(2 * pages * rows * p->kv_heads * most);
    s->k = nans(s->keys);
    s->v = layout == 2 ? s->k : nans(s->keys);
    lay_out(s, &s->call.k, s->k, p->head_dim, layout, false);
    lay_out(s, &s->call.v, s->v, p->v_head_dim, layout, true);
    for (int b = 0; b < SEQUENCES; b++)
        for (int64_t column = s->starts[b]; column < s->end[b]; column++) {
            store(s, &s->call.k, t->k[b], b, column, p->head_dim);
            store(s, &s->call.v, t->v[b], b, column, p->v_head_dim);
        }
    for (int b = 0; b < SEQUENCES; b++) /* what is not read may be anything */
        for (int64_t x = 0; x < columns; x++)
            if (x * rows >= s->end[b] || (x + 1) * rows <= s->starts[b])
                *entry(s, b, x) = -7;
    s->call.page_table = s->table;
    s->call.kv_lens = s->kv_lens;
}

/* The stored keys one after another, without pages. */
static inline void open_packed(sampling *s, const training *t)
{
    const ordo_problem *p = &s->problem;
    s->keys = (size_t)(s->cu_kv[SEQUENCES] * p->kv_heads);
    s->k = nans(s->keys * (size_t)p->head_dim);
    s->v = nans(s->keys * (size_t)p->v_head_dim);
    for (int b = 0; b < SEQUENCES; b++) {
        const size_t count = (size_t)((s->end[b] - s->starts[b]) * p->kv_heads) * 2;
        memcpy(s->k + s->cu_kv[b] * p->kv_heads * p->head_dim,
               t->k[b] + s->starts[b] * p->kv_heads * p->head_dim, count * (size_t)p->head_dim);
        memcpy(s->v + s->cu_kv[b] * p->kv_heads * p->v_head_dim,
               t->v[b] + s->starts[b] * p->kv_heads * p->v_head_dim, count * (size_t)p->v_head_dim);
    }
    s->call.k.data = s->k;
    s->call.v.data = s->v;
    s->call.cu_kv = s->cu_kv;
}

/* First row of a sequence in q, o and lse, which have (heads, total_q) or (batch, heads, q_len). */
static inline int64_t first_row(const sampling *s, int b)
{
    return s->problem.layout == ORDO_PACKED ? s->cu_q[b] : b * s->problem.q_len;
}

static inline void sample(sampling *s, const training *t, bool paged, uint64_t *seed)
{
    *s = (sampling) { .problem = t->problem, .call = ORDO_CALL_INIT };
    ordo_problem *p = &s->problem;
    const int64_t few = 16 / (p->heads / p->kv_heads); /* as many rows as kernels for few take */
    p->q_len = check_between(seed, 0, 1) ? few > 0 ? few : 1 : ROWS_MOST;
    draw_lengths(s, t, seed);
    p->layout = paged && check_between(seed, 0, 1) ? ORDO_PADDED : ORDO_PACKED;
    p->batch = SEQUENCES;
    p->kv_len = most_keys;
    if (p->layout == ORDO_PACKED)
        p->total_q = s->cu_q[SEQUENCES];
    if (paged)
        open_pages(s, t, seed);
    else
        open_packed(s, t);
    if (!paged)
        p->total_kv = s->cu_kv[SEQUENCES] ? s->cu_kv[SEQUENCES] : ORDO_NO_KEYS;
    const int64_t all = p->layout == ORDO_PACKED ? p->total_q : SEQUENCES * p->q_len;
    s->q = nans((size_t)(all * p->heads * p->head_dim));
    s->o = nans((size_t)(all * p->heads * p->v_head_dim));
    s->lse = malloc((size_t)(all * p->heads) * sizeof *s->lse + 1);
    for (int b = 0; b < SEQUENCES; b++)
        memcpy(s->q + first_row(s, b) * p->heads * p->head_dim,
               t->q[b] + (s->end[b] - s->rows[b]) * p->heads * p->head_dim,
               (size_t)(s->rows[b] * p->heads * p->head_dim) * sizeof *s->q);
    s->call.q.data = s->q;
    s->call.o.data = s->o;
    s->call.lse = s->lse;
    s->call.kv_starts = s->starts;
    s->call.cu_q = p->layout == ORDO_PACKED ? s->cu_q : NULL;
    s->call.q_lens = p->layout == ORDO_PADDED ? s->q_lens : NULL;
    s->call.slopes = p->alibi ? t->slopes : NULL;
    s->call.sink = isnan(t->sink[0]) ? NULL : t->sink;
}

static inline void sample_free(sampling *s)
{
    if (s->v != s->k)
        free(s->v);
    free(s->k);
    free(s->q);
    free(s->o);
    free(s->lse);
    free(s->table);
}

static inline void train_free(training *t)
{
    for (int b = 0; b < SEQUENCES; b++) {
        free(t->q[b]);
        free(t->k[b]);
        free(t->v[b]);
        free(t->o[b]);
        free(t->lse[b]);
    }
}

/* Elements of o and lse that differ from those of the training pass. */
static inline int64_t differing(const sampling *s, const training *t)
{
    const ordo_problem *p = &s->problem;
    int64_t count = 0;
    for (int b = 0; b < SEQUENCES; b++)
        for (int64_t r = 0; r < s->rows[b]; r++) {
            const int64_t then = s->end[b] - s->rows[b] + r, now = first_row(s, b) + r;
            const int64_t line = p->heads * p->v_head_dim;
            for (int64_t x = 0; x < line; x++)
                count += s->o[now * line + x] != t->o[b][then * line + x];
            for (int64_t h = 0; h < p->heads; h++) {
                const int64_t at = p->layout == ORDO_PACKED ? h * p->total_q + now
                                                            : (b * p->heads + h) * p->q_len + r;
                count +=
                    ordo_f32_bits(s->lse[at]) != ordo_f32_bits(t->lse[b][h * t->length[b] + then]);
            }
        }
    return count;
}

#endif
