/* grid_draw.h: random combinations of features: which, and in words.
 *
 * Combination n of a seed is always the same, whatever else is drawn. */
#ifndef TESTS_CUDA_GRID_DRAW_H
#define TESTS_CUDA_GRID_DRAW_H

#include "grid_case.h"

enum { GRID_DRAWN_BATCH = 5 }; /* most sequences */

/* What may be drawn. */
typedef struct grid_limits {
    uint64_t seed;
    int64_t longest; /* rows of a sequence */
    double work;     /* sum of rows * columns * head size over heads, in millions */
    int64_t blocks;  /* largest head size with block masks, */
    int64_t seen;    /* with element masks, */
    int64_t bias;    /* and with a bias, */
    bool bias_alone; /* beside neither masks of blocks or elements nor softcap */
} grid_limits;

static inline bool grid_one_in(uint64_t *state, int n)
{
    return check_between(state, 1, n) == 1;
}

/* Short ones, ones around the edges of tiles, and any. */
static inline int64_t grid_draw_length(uint64_t *state, int64_t longest)
{
    static const int64_t tiles[] = { 64, 128, 192 };
    const int64_t tile = tiles[check_between(state, 0, 2)];
    int64_t length = check_between(state, 1, longest);
    switch (check_between(state, 0, 3)) {
    case 0: length = check_between(state, 1, 64); break;
    case 1:
        length = tile * check_between(state, 1, 1 + longest / tile) + check_between(state, -2, 2);
        break;
    default: break;
    }
    return length < 1 ? 1 : length > longest ? longest : length;
}

static inline int64_t grid_draw_dim(uint64_t *state)
{
    static const int64_t dims[] = { 64, 96, 128, 192, 256, 512 };
    return check_between(state, 0, 2)
               ? dims[check_between(state, 0, 5)]
               : 8 * check_between(state, 1, grid_one_in(state, 3) ? 72 : 32);
}

static inline void grid_draw_rules(ordo_problem *p, uint64_t *state)
{
    p->mask = (ordo_mask)check_between(state, 0, 2);
    if (grid_one_in(state, 4))
        p->window =
            (ordo_window) { true, check_between(state, -1, 200), check_between(state, -1, 100) };
    if (grid_one_in(state, 4))
        p->softcap = ldexp(1 + check_uniform(state) / 2, (int)check_between(state, 1, 5));
    if (grid_one_in(state, 6))
        p->scale = 0.02 + 0.1 * (1 + check_uniform(state));
    if (grid_one_in(state, 50))
        p->scale = -0.11;
    p->alibi = grid_one_in(state, 4);
}

static inline void grid_draw_dropout(grid_case *c, uint64_t *state)
{
    ordo_dropout *d = &c->problem.dropout;
    static const double p[] = { 0, 0.1, 0.17 };
    d->p = p[check_between(state, 0, 2)];
    c->bits_given = check_between(state, 0, 1) || grid_by_phases(&c->problem);
    c->by_pointer = check_between(state, 0, 1);
    c->offset = (uint64_t)check_between(state, 0, 1000);
    if (d->p > 0 && grid_one_in(state, 4)) {
        d->rounds = check_between(state, 0, 1) ? 7 : 10;
        d->bits = (int)check_between(state, 3, 16);
    } else if (d->p > 0 && grid_one_in(state, 8)) {
        d->keying = ORDO_KEYING_FA2;
    }
}

static inline double grid_work(const grid_case *c)
{
    const ordo_problem *p = &c->problem;
    double pairs = 0;
    for (int64_t b = 0; b < p->batch; b++)
        pairs += (double)c->q_lens[b] * (double)c->kv_lens[b];
    return pairs * (double)(p->heads * (p->head_dim + 16)) * 1e-6;
}

static inline void grid_draw_lengths(grid_case *c, uint64_t *state, int64_t longest)
{
    const bool square = check_between(state, 0, 1), ragged = grid_ragged(c);
    int64_t q = 0, kv = 0;
    for (int64_t b = 0; b < GRID_DRAWN_BATCH; b++) {
        if (b == 0 || ragged) {
            q = ragged && grid_one_in(state, 10) ? 0 : grid_draw_length(state, longest);
            kv = ragged && grid_one_in(state, 10) ? 0 : grid_draw_length(state, longest);
        }
        c->q_lens[b] = (int32_t)q;
        c->kv_lens[b] = (int32_t)(square ? q : kv);
    }
}

/* Fewer sequences, heads or rows, until the work is what it may be. */
static inline void grid_shrink(grid_case *c, uint64_t *state, int64_t longest, double work)
{
    ordo_problem *p = &c->problem;
    while (grid_work(c) > work) {
        const int64_t group = p->heads / p->kv_heads, what = check_between(state, 0, 4);
        if (what == 0 && p->batch > 1) {
            p->batch--;
        } else if (what == 1 && p->kv_heads > 1) {
            p->kv_heads--;
            p->heads = p->kv_heads * group;
        } else if (what == 2) {
            p->heads = p->kv_heads * ((group + 1) / 2);
        } else {
            longest = longest > 8 ? longest * 3 / 4 : longest;
            grid_draw_lengths(c, state, longest);
        }
    }
}

static inline void grid_draw_slopes(grid_case *c, uint64_t *state)
{
    for (int64_t x = 0; x < GRID_DRAWN_BATCH * GRID_HEADS_MAX; x++)
        c->slopes[x] = (float)ldexp(1 + check_uniform(state) / 4, -(int)check_between(state, 1, 9));
}

/* Where it lies in a larger problem, and what its sequences are called. */
static inline void grid_draw_place(grid_case *c, uint64_t *state)
{
    ordo_problem *p = &c->problem;
    const int64_t group = p->heads / p->kv_heads;
    if (grid_one_in(state, 3)) {
        p->shard.head0 = group * check_between(state, 0, 5);
        p->shard.heads_total = p->shard.head0 + p->heads + group * check_between(state, 0, 2);
    }
    p->shard.batch0 = grid_one_in(state, 3) ? check_between(state, 1, 9) : 0;
    c->ids_given = grid_one_in(state, 3);
    for (int64_t b = 0; b < GRID_DRAWN_BATCH; b++)
        c->ids[b] = c->ids_given ? 3 + 7 * ((b * 3) % 5) : p->shard.batch0 + b;
    c->slopes_each = grid_one_in(state, 2);
    grid_draw_slopes(c, state);
}

/* What most of training is: kernels may be made for it. */
static inline void grid_make_plain(grid_case *c, uint64_t *state)
{
    ordo_problem *p = &c->problem;
    p->dtype = ORDO_BF16;
    p->layout = ORDO_DENSE;
    p->head_dim = p->v_head_dim = check_between(state, 0, 1) ? 64 : 128;
    c->dlse = false;
}

static inline void grid_fill(grid_case *c, int tensor, uint64_t state, double strength)
{
    const bool keys = grid_tensors[tensor].keys;
    for (int64_t b = 0; b < c->problem.batch; b++)
        for (int64_t r = 0; r < grid_length(c, keys, b); r++)
            for (int64_t h = 0; h < grid_heads(c, tensor); h++)
                for (int64_t d = 0; d < grid_dim(c, tensor); d++) {
                    const uint64_t u = check_random(&state); /* three uniform ones: bell-shaped */
                    const int64_t sum =
                        (int64_t)((u & 0x1fffff) + (u >> 21 & 0x1fffff) + (u >> 42 & 0x1fffff));
                    const double x = strength * (double)(sum - 3 * 0x100000) * 0x1p-20;
                    unsigned char *to = c->data[tensor] + grid_at(c, tensor, b, r, h);
                    if (grid_tensors[tensor].row)
                        ((float *)to)[d] = (float)x;
                    else
                        ((uint16_t *)to)[d] = grid_half(c, x);
                }
}

/* Tensors of a case whose problem is settled, and their numbers. */
static inline void grid_make_inputs(grid_case *c)
{
    grid_open(c);
    for (int t = 0; t < GRID_OUTPUTS; t++)
        grid_fill(c, t, c->seed + (uint64_t)t, t == GRID_Q || t == GRID_K ? c->strength : 1);
}

/* Sinks among the logits, far above and far below them, and none. */
static inline void grid_draw_sinks(grid_case *c, uint64_t *state)
{
    static const float far[] = { 40, -40, -INFINITY };
    c->sinks = true;
    for (int64_t h = 0; h < GRID_HEADS_MAX; h++) {
        const int64_t kind = check_between(state, 0, 7);
        c->sink[h] = kind < 3 ? far[kind] : (float)(4 * check_uniform(state));
    }
}

/* One mask for all, or one for each sequence, each head, or both. */
static inline void grid_draw_blocks(grid_case *c, bool seen, uint64_t *state)
{
    c->blocks = (grid_blocks) {
        .kind = (grid_block_kind)check_between(state, 1, seen ? GRID_ELEMENTS : GRID_BAND),
        .seed = check_random(state),
        .per_sequence = check_between(state, 0, 1),
        .per_head = grid_one_in(state, 4),
        .seen = seen,
    };
    const bool sparse = c->blocks.kind == GRID_SPARSE || c->blocks.kind == GRID_ELEMENTS;
    c->blocks.size =
        sparse ? check_between(state, 5, 256) : check_between(state, 1, c->problem.q_len);
    c->mask = grid_block_mask(&c->blocks, &c->problem);
}

static inline void grid_draw_bias(grid_case *c, uint64_t *state)
{
    c->bias = (grid_bias) {
        .on = true,
        .per_sequence = check_between(state, 0, 1),
        .per_head = check_between(state, 0, 1),
        .f32 = check_between(state, 0, 1),
        .holes = grid_one_in(state, 3),
        .wide = check_between(state, 0, 1),
        .seed = check_random(state),
    };
    free(c->dbias);
    c->dbias = grid_bias_open(&c->bias, &c->problem);
}

/* Combination `number` of a seed, with its inputs. */
static inline void grid_draw(grid_case *c, const grid_limits *limits, int64_t number)
{
    uint64_t state = limits->seed * 0x9e3779b97f4a7c15u + (uint64_t)number;
    (void)check_random(&state);
    *c = (grid_case) { .problem = ORDO_PROBLEM_INIT };
    ordo_problem *p = &c->problem;
    p->dtype = check_between(&state, 0, 1) ? ORDO_BF16 : ORDO_F16;
    p->layout = (ordo_layout)check_between(&state, 0, 2);
    p->batch = check_between(&state, 1, GRID_DRAWN_BATCH);
    p->kv_heads = check_between(&state, 1, 4);
    p->heads = p->kv_heads * check_between(&state, 1, 8);
    p->head_dim = p->v_head_dim = grid_draw_dim(&state);
    if (grid_one_in(&state, 60))
        p->v_head_dim = grid_draw_dim(&state);
    c->nan_padding = grid_one_in(&state, 8);
    c->dlse = grid_one_in(&state, 3);
    c->plain = grid_one_in(&state, 5);
    if (c->plain)
        grid_make_plain(c, &state);
    c->strength = grid_one_in(&state, 6) ? 2.5 : 1;
    if (grid_one_in(&state, 6)) {
        c->head_gap = 8 * check_between(&state, 0, 2);
        c->row_gap = 8 * check_between(&state, 0, 3);
    }
    grid_draw_lengths(c, &state, limits->longest);
    grid_shrink(c, &state, limits->longest, limits->work * exp2(-3 * (1 + check_uniform(&state))));
    grid_settle(c, grid_one_in(&state, 2) ? check_between(&state, 0, 70) : 0);
    if (c->plain)
        p->mask = (ordo_mask)check_between(&state, 0, 2);
    else
        grid_draw_rules(p, &state);
    grid_draw_dropout(c, &state);
    grid_draw_place(c, &state);
    c->seed = check_random(&state);
    grid_make_inputs(c);
    if (grid_one_in(&state, 4)) /* the last draws: those before them stay as they were */
        grid_draw_sinks(c, &state);
    if (grid_one_in(&state, 5) && p->head_dim <= limits->blocks && p->v_head_dim <= limits->blocks)
        grid_draw_blocks(c, false, &state);
    if (!c->mask && grid_one_in(&state, 5) && p->head_dim <= limits->seen &&
        p->v_head_dim <= limits->seen)
        grid_draw_blocks(c, true, &state);
    if (grid_one_in(&state, 4) && p->layout != ORDO_PACKED && p->head_dim <= limits->bias &&
        p->v_head_dim <= limits->bias && !(limits->bias_alone && (c->mask || p->softcap > 0)))
        grid_draw_bias(c, &state);
}

/* One line about it. */
static inline void grid_describe(const grid_case *c, char *text, size_t size)
{
    const ordo_problem *p = &c->problem;
    int used = snprintf(
        text, size, "%s%s %s D%d%s%.0d H%d/%d from %d of %d %s", c->plain ? "plain " : "",
        ordo_dtype_name(p->dtype), ordo_layout_name(p->layout), (int)p->head_dim,
        p->v_head_dim != p->head_dim ? "/" : "",
        p->v_head_dim != p->head_dim ? (int)p->v_head_dim : 0, (int)p->heads, (int)p->kv_heads,
        (int)p->shard.head0, (int)p->shard.heads_total, ordo_mask_name(p->mask));
    char more[400];
    int at = 0;
    if (p->window.on)
        at += snprintf(more + at, sizeof more - (size_t)at, " window %d,%d", (int)p->window.left,
                       (int)p->window.right);
    if (p->softcap > 0)
        at += snprintf(more + at, sizeof more - (size_t)at, " softcap %.3g", p->softcap);
    if (p->scale != 0)
        at += snprintf(more + at, sizeof more - (size_t)at, " scale %.3g", p->scale);
    if (p->dropout.p > 0)
        at += snprintf(more + at, sizeof more - (size_t)at, " p %g %s%s%s rounds %d bits %d",
                       p->dropout.p, ordo_keying_name(p->dropout.keying),
                       c->bits_given ? " given" : " inside", c->by_pointer ? " by pointer" : "",
                       p->dropout.rounds, p->dropout.bits);
    if (grid_cut(c))
        at += snprintf(more + at, sizeof more - (size_t)at, " rows from %d, columns from %d",
                       (int)p->shard.row0, (int)p->shard.col0);
    if (c->mask)
        at += snprintf(more + at, sizeof more - (size_t)at, " %s %s %d%s%s",
                       c->blocks.seen ? "seen" : "blocks", grid_block_names[c->blocks.kind],
                       (int)c->blocks.size, c->blocks.per_sequence ? " per sequence" : "",
                       c->blocks.per_head ? " per head" : "");
    if (c->bias.on)
        at += snprintf(more + at, sizeof more - (size_t)at, " bias %s%s%s%s%s",
                       ordo_dtype_name(p->bias.dtype), c->bias.per_sequence ? " per sequence" : "",
                       c->bias.per_head ? " per head" : "", c->bias.holes ? " holes" : "",
                       c->bias.wide ? " wide" : "");
    if (c->order > 0)
        at += snprintf(more + at, sizeof more - (size_t)at, " %s", ordo_order_name(c->order));
    at += snprintf(more + at, sizeof more - (size_t)at, "%s%s%s%s%s%s%s;",
                   grid_by_phases(p)  ? " phases"
                   : grid_rounds_p(p) ? " chains"
                                      : "",
                   p->alibi ? " alibi" : "", c->sinks ? " sinks" : "", c->dlse ? " dlse" : "",
                   c->ids_given ? " ids" : "", c->head_gap || c->row_gap ? " strided" : "",
                   c->nan_padding && grid_ragged(c) ? " nan-padding" : "");
    for (int64_t b = 0; b < p->batch; b++)
        at += snprintf(more + at, sizeof more - (size_t)at, " %dx%d", (int)c->q_lens[b],
                       (int)c->kv_lens[b]);
    if (p->layout == ORDO_PADDED)
        (void)snprintf(more + at, sizeof more - (size_t)at, " in %dx%d", (int)p->q_len,
                       (int)p->kv_len);
    (void)snprintf(text + used, size - (size_t)used, "%s", more);
}

#endif
