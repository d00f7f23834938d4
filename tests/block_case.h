/* block_case.h: random block masks for the cases of attention_case.h. */
#ifndef TESTS_BLOCK_CASE_H
#define TESTS_BLOCK_CASE_H

#include "attention_case.h"
#include "base/blocks.h"

enum { BLOCK_KINDS = 7 };

/* One mask: intervals of any kind, or blocks of any density with intervals in some of them. Rows
 * that see nothing, and columns that nobody sees, are among them. */
static inline ordo_block_mask *block_random_one(uint64_t *seed, int64_t q_len, int64_t kv_len,
                                                int kind)
{
    ordo_block_mask *mask = NULL;
    int64_t *ids = calloc((size_t)q_len + 1, sizeof *ids);
    int32_t *first = calloc((size_t)q_len + 1, sizeof *first);
    int32_t *last = calloc((size_t)q_len + 1, sizeof *last);
    const ordo_window window = { true, check_between(seed, 0, 200), check_between(seed, 0, 40) };
    const int64_t prefix = check_between(seed, 0, kv_len);
    for (int64_t r = 0; r < q_len; r++) {
        ids[r] = r == 0 ? 1 : ids[r - 1] + (check_between(seed, 0, 60) == 0);
        first[r] = (int32_t)(kind == 5 ? check_between(seed, 0, kv_len) : 0);
        last[r] = (int32_t)(kind == 5    ? check_between(seed, -1, kv_len - 1)
                            : r < prefix ? prefix - 1
                            : r < kv_len ? r
                                         : kv_len - 1);
    }
    if (kind == 0 && q_len == kv_len)
        case_must(ordo_block_mask_from_documents(&mask, q_len, ids));
    else if (kind == 1)
        case_must(ordo_block_mask_from_chunks(&mask, q_len, kv_len, check_between(seed, 1, 200),
                                              check_between(seed, 0, kv_len)));
    else if (kind == 2)
        case_must(ordo_block_mask_from_band(&mask, q_len, kv_len, ORDO_MASK_CAUSAL, &window));
    else
        case_must(ordo_block_mask_from_intervals(&mask, q_len, kv_len, first, last));
    free(ids);
    free(first);
    free(last);
    return mask;
}

/* Leave out entries of a mask at random, and mark some of the others as whole. */
static inline void block_thin(ordo_block_mask *mask, uint64_t *seed)
{
    int32_t *start = (int32_t *)mask->start, *key = (int32_t *)mask->key;
    const int64_t share = check_between(seed, 0, 10);
    int32_t to = 0, from = 0;
    for (int64_t i = 0; i < ordo_blocks_of(mask->q_len); i++) {
        const bool empty = check_between(seed, 0, 4) == 0;
        for (; from < start[i + 1]; from++)
            if (!empty && check_between(seed, 0, 10) <= share)
                key[to++] = key[from] | (check_between(seed, 0, 2) ? 0 : ORDO_BLOCK_WHOLE);
        start[i + 1] = to;
    }
    mask->entries = to;
}

/* Give the case a random block mask: shared, or one per sequence, per head, or both. */
static inline void block_random(attention_case *c, uint64_t *seed)
{
    const ordo_problem *p = &c->problem;
    const int64_t sequences = check_between(seed, 0, 1) ? p->batch : 1;
    const int64_t heads = check_between(seed, 0, 1) ? p->heads : 1;
    ordo_block_mask *masks[64] = { NULL }, *all = NULL;
    for (int64_t x = 0; x < sequences * heads; x++) {
        const int kind = (int)check_between(seed, 0, BLOCK_KINDS - 1);
        masks[x] = block_random_one(seed, p->q_len, p->kv_len, kind);
        if (kind >= 4)
            block_thin(masks[x], seed);
    }
    case_must(ordo_block_mask_join(&all, (const ordo_block_mask *const *)masks, sequences, heads));
    for (int64_t x = 0; x < sequences * heads; x++)
        ordo_block_mask_destroy(masks[x]);
    case_set_blocks(c, all);
}

/* A case of several blocks each way, with other features by turns. */
static inline void block_open(attention_case *c, ordo_layout layout, ordo_mask mask, int trial)
{
    *c = (attention_case) { .problem = ORDO_PROBLEM_INIT };
    ordo_problem *p = &c->problem;
    p->dtype = (ordo_dtype)(trial % 3);
    p->layout = layout;
    p->batch = 2;
    p->heads = 4;
    p->kv_heads = trial % 2 ? 4 : 2;
    p->q_len = 400;
    p->kv_len = trial % 4 == 3 ? 530 : 400;
    p->head_dim = 24;
    p->v_head_dim = trial % 5 == 4 ? 16 : 24;
    p->mask = mask;
    p->dropout.p = trial % 3 == 1 ? 0.1 : 0;
    p->softcap = trial % 4 == 2 ? 5 : 0;
    p->alibi = trial % 5 == 1;
    for (int b = 0; b < 2; b++) {
        c->ids[b] = 3 + b;
        c->q_lens[b] = (int32_t)p->q_len - 51 * b;
        c->kv_lens[b] = (int32_t)p->kv_len - 51 * b;
        c->cu_q[b + 1] = c->cu_q[b] + c->q_lens[b];
        c->cu_kv[b + 1] = c->cu_kv[b] + c->kv_lens[b];
    }
    if (layout == ORDO_PACKED) {
        p->total_q = c->cu_q[2];
        p->total_kv = c->cu_kv[2];
    }
    if (trial % 3 == 0)
        c->dlse = (float *)1;
    case_open(c, 700 + (uint64_t)trial);
}

static const ordo_order block_orders[] = { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING,
                                           ORDO_ORDER_SPT };

/* Orders and tiles that block masks run in, by turns. */
static inline ordo_plan_options block_options(int trial)
{
    static const int rows[] = { 64, 128, 32 };
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.order = block_orders[trial % 3];
    options.forward_tile = (ordo_tile) { rows[trial % 2], ORDO_BLOCK };
    options.backward_tile = (ordo_tile) { rows[trial / 2 % 3], ORDO_BLOCK };
    return options;
}

#endif
