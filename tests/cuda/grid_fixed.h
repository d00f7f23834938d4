/* grid_fixed.h: combinations of features that are always checked, beside those that are drawn.
 *
 * A rule is a set of features with the lengths of its sequences. It is tried with every head size
 * of a list, and with every mask or every order of sums where it says so. The element type
 * alternates from one to the next, so a rule with all head sizes meets both types in each bucket of
 * head sizes (up to 64, 128, 256 and 576). */
#ifndef TESTS_CUDA_GRID_FIXED_H
#define TESTS_CUDA_GRID_FIXED_H

#include "grid_draw.h"

enum { GRID_SIZES_MAX = 15, GRID_ROW0 = 48, GRID_COL0 = 384 };

typedef struct grid_sizes {
    int count;
    int64_t size[GRID_SIZES_MAX];
} grid_sizes;

/* Three of bucket 64, four of 128, five of 256, three above; one of each; those that have dense
 * kernels. */
static const grid_sizes grid_all = {
    15, { 8, 40, 64, 72, 96, 120, 128, 136, 160, 192, 200, 256, 264, 512, 576 }
};
static const grid_sizes grid_buckets = { 4, { 64, 128, 256, 512 } };
static const grid_sizes grid_dense = { 2, { 64, 128 } };

typedef struct grid_lengths {
    int64_t batch;
    int32_t q[GRID_BATCH_MAX], kv[GRID_BATCH_MAX];
} grid_lengths;

/* One row or one column, no rows, no columns, more rows than columns and fewer, both sides of the
 * edges of tiles. */
static const grid_lengths grid_mixed = { 7,
                                         { 5, 200, 0, 31, 64, 1, 193 },
                                         { 260, 200, 7, 0, 130, 1, 129 } };
static const grid_lengths grid_wide = { 2, { 177, 177 }, { 333, 333 } };
static const grid_lengths grid_square = { 2, { 260, 260 }, { 260, 260 } };
static const grid_lengths grid_tile = { 1, { 128 }, { 128 } };
static const grid_lengths grid_tiles = { 2, { 256, 256 }, { 384, 384 } };
static const grid_lengths grid_odd = { 1, { 333 }, { 333 } };
static const grid_lengths grid_tall = { 1, { 300 }, { 77 } };
static const grid_lengths grid_column = { 1, { 65 }, { 1 } };
static const grid_lengths grid_two_rows = { 1, { 2 }, { 300 } };
static const grid_lengths grid_one = { 1, { 1 }, { 1 } };
static const grid_lengths grid_long = { 2, { 1000, 40 }, { 1000, 700 } };
static const grid_lengths grid_many_tiles = { 1, { 640 }, { 640 } };
static const grid_lengths grid_many_chains = { 2, { 640, 640 }, { 640, 640 } };
static const grid_lengths grid_more_tiles = { 1, { 500 }, { 1000 } };

typedef struct grid_rule {
    const grid_sizes *sizes;
    const grid_lengths *lengths;
    int64_t heads, kv_heads;
    ordo_layout layout;
    bool each_mask, each_order, bf16; /* all masks, all orders, one type only */
    ordo_mask mask;
    ordo_window window;
    double softcap;
    bool alibi, dlse, sinks;
    ordo_dropout dropout;
    bool bits_given;
    bool some_heads; /* a part of the heads of a larger problem */
    bool some_rows;  /* from GRID_ROW0 and GRID_COL0 on, of longer sequences */
    ordo_order order;
    bool whole_heads; /* groups of the order as large as they are by default, not of two */
} grid_rule;

#define GRID_MIXED      &grid_all, &grid_mixed, 4, 2
#define GRID_DENSE      &grid_all, &grid_wide, 4, 2, ORDO_DENSE
#define GRID_SQUARE     &grid_all, &grid_square, 2, 1, ORDO_DENSE
#define GRID_CAUSAL     .mask = ORDO_MASK_CAUSAL
#define GRID_DROP       .dropout = { .p = 0.15 }
#define GRID_EACH_MASK  .each_mask = true, .bf16 = true
#define GRID_EACH_ORDER .each_order = true

static const grid_rule grid_rules[] = {
    /* ragged batches: every score rule, bits given and made inside */
    { GRID_MIXED, ORDO_PACKED },
    { GRID_MIXED, ORDO_PADDED, GRID_CAUSAL, .dlse = true, .order = ORDO_ORDER_SPT_TAIL },
    { GRID_MIXED, ORDO_PACKED, GRID_CAUSAL, GRID_DROP, .bits_given = true, .some_heads = true },
    { GRID_MIXED, ORDO_PADDED, .window = { true, 70, 0 }, GRID_DROP, .bits_given = true,
      .order = ORDO_ORDER_DESCENDING },
    { GRID_MIXED, ORDO_PACKED, .window = { true, 70, 20 }, .softcap = 1.5, GRID_DROP, .dlse = true,
      .order = ORDO_ORDER_ASCENDING },
    { GRID_MIXED, ORDO_PADDED, .window = { true, 70, 20 }, .softcap = 1.5, .alibi = true,
      .order = ORDO_ORDER_SPT },
    { GRID_MIXED, ORDO_PACKED, .alibi = true, .order = ORDO_ORDER_SPT },
    { GRID_MIXED, ORDO_PADDED, GRID_CAUSAL, .window = { true, 100, -1 }, .alibi = true,
      .softcap = 5, .dropout = { .p = 0.15, .rounds = 10, .bits = 10 }, .some_heads = true },
    { GRID_MIXED, ORDO_PACKED, .window = { true, 30, 40 }, .alibi = true },
    { GRID_MIXED, ORDO_PADDED, .mask = ORDO_MASK_CAUSAL_TOP_LEFT, .window = { true, 50, -1 },
      .dropout = { .p = 0.1 }, .bits_given = true },

    /* dense batches, and parts of longer sequences */
    { GRID_DENSE, GRID_CAUSAL },
    { GRID_DENSE, GRID_CAUSAL, GRID_DROP, .bits_given = true },
    { GRID_DENSE, GRID_CAUSAL, .dropout = { .p = 0.15, .rounds = 10, .bits = 11 },
      .some_rows = true },
    { GRID_DENSE, .window = { true, 100, 0 }, .softcap = 5, .alibi = true,
      .dropout = { .p = 0.15, .rounds = 10, .bits = 10 }, .bits_given = true, .some_heads = true,
      .some_rows = true },
    { GRID_DENSE, .window = { true, 90, 0 }, .dlse = true },
    { &grid_all, &grid_wide, 4, 1, ORDO_DENSE, .window = { true, 170, 0 }, GRID_DROP },
    { GRID_DENSE, .softcap = 2 },
    { GRID_SQUARE },
    { GRID_SQUARE, .window = { true, 70, 33 } },
    { GRID_SQUARE, .window = { true, 0, 0 } },
    { GRID_SQUARE, .window = { true, 63, 200 } },
    { GRID_SQUARE, .softcap = 2, .order = ORDO_ORDER_DESCENDING },
    { GRID_SQUARE, GRID_CAUSAL, .softcap = 2, .alibi = true, .order = ORDO_ORDER_DESCENDING },
    { GRID_SQUARE, GRID_CAUSAL, .alibi = true, .dlse = true, .dropout = { .p = 0.2 } },
    { GRID_SQUARE, GRID_CAUSAL, .dropout = { .p = 0.2 }, .order = ORDO_ORDER_DESCENDING },
    { GRID_SQUARE, GRID_CAUSAL, .window = { true, 100, -1 }, .softcap = 3,
      .dropout = { .p = 0.2 } },

    /* sinks: alone, under a window, with dropout either way, with score rules, in ragged batches
     * and with rows that see no key */
    { GRID_SQUARE, GRID_CAUSAL, .sinks = true },
    { GRID_SQUARE, GRID_CAUSAL, .window = { true, 70, -1 }, .sinks = true, .dlse = true },
    { GRID_DENSE, GRID_DROP, .bits_given = true, .sinks = true },
    { GRID_DENSE, GRID_DROP, .softcap = 2, .alibi = true, .sinks = true },
    { GRID_MIXED, ORDO_PACKED, GRID_CAUSAL, .sinks = true, .dlse = true, .some_heads = true },
    { GRID_MIXED, ORDO_PADDED, GRID_CAUSAL, GRID_DROP, .sinks = true },
    { &grid_all, &grid_tall, 4, 2, ORDO_DENSE, GRID_CAUSAL, .sinks = true, .dlse = true },

    /* long sequences: windows of many tiles, and whole tiles */
    { &grid_buckets, &grid_long, 2, 1, ORDO_PACKED, .window = { true, 300, -1 } },
    { &grid_buckets, &grid_long, 2, 1, ORDO_PACKED, GRID_CAUSAL, .window = { true, 400, -1 },
      .order = ORDO_ORDER_SPT_TAIL },
    { &grid_buckets, &grid_long, 2, 1, ORDO_PADDED, GRID_CAUSAL, GRID_DROP, .bits_given = true },

    /* what has dense kernels: every mask, shapes about the edges of tiles, every order */
    { &grid_buckets, &grid_tile, 1, 1, ORDO_DENSE, GRID_EACH_MASK },
    { &grid_buckets, &grid_tiles, 4, 2, ORDO_DENSE, GRID_EACH_MASK },
    { &grid_buckets, &grid_odd, 3, 3, ORDO_DENSE, GRID_EACH_MASK },
    { &grid_buckets, &grid_wide, 3, 1, ORDO_DENSE, GRID_EACH_MASK },
    { &grid_buckets, &grid_tall, 4, 2, ORDO_DENSE, GRID_EACH_MASK },
    { &grid_buckets, &grid_column, 2, 2, ORDO_DENSE, GRID_EACH_MASK },
    { &grid_buckets, &grid_two_rows, 2, 1, ORDO_DENSE, GRID_EACH_MASK },
    { &grid_buckets, &grid_one, 1, 1, ORDO_DENSE, GRID_EACH_MASK },
    { &grid_dense, &grid_more_tiles, 4, 1, ORDO_DENSE, GRID_EACH_MASK },
    { &grid_dense, &grid_tiles, 4, 2, ORDO_DENSE, GRID_EACH_MASK, .dropout = { .p = 0.1 },
      .bits_given = true },
    { &grid_dense, &grid_odd, 3, 3, ORDO_DENSE, GRID_EACH_MASK, .dropout = { .p = 0.17 },
      .bits_given = true },
    { &grid_dense, &grid_more_tiles, 4, 4, ORDO_DENSE, GRID_EACH_MASK, .dropout = { .p = 0.1 },
      .bits_given = true },
    { &grid_dense, &grid_two_rows, 2, 1, ORDO_DENSE, GRID_EACH_MASK, .dropout = { .p = 0.17 } },
    { &grid_dense, &grid_many_tiles, 2, 2, ORDO_DENSE, GRID_EACH_ORDER, .bf16 = true },
    { &grid_dense, &grid_many_tiles, 2, 2, ORDO_DENSE, GRID_EACH_ORDER, .bf16 = true, GRID_CAUSAL },
    { &grid_dense, &grid_many_tiles, 4, 4, ORDO_DENSE, GRID_EACH_ORDER, GRID_CAUSAL, .dlse = true },
    { &grid_dense, &grid_many_tiles, 4, 4, ORDO_DENSE, GRID_EACH_ORDER, GRID_CAUSAL,
      .alibi = true },

    /* many heads of chains that wait on each other in a circle: a block that took two of a head
     * would wait for ever */
    { &grid_dense, &grid_many_chains, 32, 32, ORDO_DENSE, GRID_CAUSAL, .order = ORDO_ORDER_SHIFT,
      .whole_heads = true },
    { &grid_dense, &grid_many_chains, 32, 32, ORDO_DENSE, GRID_CAUSAL,
      .order = ORDO_ORDER_SYMMETRIC, .whole_heads = true },
};

#undef GRID_MIXED
#undef GRID_DENSE
#undef GRID_SQUARE
#undef GRID_CAUSAL
#undef GRID_DROP
#undef GRID_EACH_MASK
#undef GRID_EACH_ORDER

enum { GRID_RULES = sizeof grid_rules / sizeof grid_rules[0] };

static inline int64_t grid_rule_count(const grid_rule *r)
{
    return r->sizes->count * (r->each_mask ? 3 : 1) * (r->each_order ? ORDO_ORDER_COUNT : 1);
}

static inline int64_t grid_fixed_count(void)
{
    int64_t count = 0;
    for (int x = 0; x < GRID_RULES; x++)
        count += grid_rule_count(&grid_rules[x]);
    return count;
}

/* The lengths of a rule, none longer than `longest`. */
static inline void grid_fix_lengths(grid_case *c, const grid_rule *r, int64_t longest)
{
    ordo_problem *p = &c->problem;
    p->batch = r->lengths->batch;
    for (int64_t b = 0; b < p->batch; b++) {
        const int32_t q = r->lengths->q[b], kv = r->lengths->kv[b];
        c->q_lens[b] = q < longest ? q : (int32_t)longest;
        c->kv_lens[b] = kv < longest ? kv : (int32_t)longest;
        c->ids[b] = b;
    }
    grid_settle(c, 0);
    if (r->some_rows)
        p->shard = (ordo_shard) { .row0 = GRID_ROW0,
                                  .col0 = GRID_COL0,
                                  .q_total = p->q_len + 2 * GRID_ROW0,
                                  .kv_total = p->kv_len + GRID_COL0 + GRID_ROW0 };
    if (r->some_heads) {
        p->shard.head0 = 2 * p->heads / p->kv_heads;
        p->shard.heads_total = p->shard.head0 + 2 * p->heads;
    }
}

/* Fixed combination `number`, with its inputs. */
static inline void grid_fix(grid_case *c, const grid_limits *limits, int64_t number)
{
    const grid_rule *r = grid_rules;
    uint64_t state = (uint64_t)number;
    for (; number >= grid_rule_count(r); r++)
        number -= grid_rule_count(r);
    const int64_t size = number % r->sizes->count, variant = number / r->sizes->count;
    const bool odd = (size + variant + (r - grid_rules)) % 2;
    *c = (grid_case) { .problem = ORDO_PROBLEM_INIT, .strength = 1 };
    ordo_problem *p = &c->problem;
    p->dtype = odd && !r->bf16 ? ORDO_F16 : ORDO_BF16;
    p->layout = r->layout;
    p->heads = r->heads;
    p->kv_heads = r->kv_heads;
    p->head_dim = p->v_head_dim = r->sizes->size[size];
    p->mask = r->each_mask ? (ordo_mask)variant : r->mask;
    p->window = r->window;
    p->softcap = r->softcap;
    p->alibi = r->alibi;
    p->dropout = r->dropout;
    grid_fix_lengths(c, r, limits->longest);
    c->order = r->each_order ? (ordo_order)(variant + 1) : r->order;
    if (p->head_dim > 128 && c->order > ORDO_ORDER_DESCENDING) /* CUDA has no others there */
        c->order = ORDO_ORDER_DEFAULT;
    const bool cyclic = c->order == ORDO_ORDER_SHIFT || c->order == ORDO_ORDER_SYMMETRIC;
    c->group = cyclic && !r->whole_heads ? 2 : 0;
    c->bits_given = r->bits_given || grid_by_phases(p);
    c->by_pointer = odd;
    c->nan_padding = true;
    c->dlse = r->dlse;
    c->slopes_each = true;
    grid_draw_slopes(c, &state);
    c->seed = check_random(&state);
    grid_make_inputs(c);
    if (r->sinks)
        grid_draw_sinks(c, &state);
}

#endif
