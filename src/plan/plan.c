/* plan.c: what follows from a plan: masks, runs, workspace, promise, numeric key. */
#include "plan/plan.h"

#include <stdio.h>

#include "base/checked.h"

static int32_t clamp(int64_t x)
{
    return (int32_t)(x < -ORDO_BAND_OPEN  ? -ORDO_BAND_OPEN
                     : x > ORDO_BAND_OPEN ? ORDO_BAND_OPEN
                                          : x);
}

/* Where the diagonal j = i of a bottom-right (or top-left) mask lies in local coordinates. */
static int64_t diagonal(const ordo_problem *p, int64_t q_len, int64_t kv_len)
{
    const bool whole = p->layout != ORDO_DENSE; /* whose sequences are never cut */
    const int64_t q = whole ? q_len : p->shard.q_total;
    const int64_t kv = whole ? kv_len : p->shard.kv_total;
    const int64_t delta = p->mask == ORDO_MASK_CAUSAL_TOP_LEFT ? 0 : kv - q;
    return delta + p->shard.row0 - p->shard.col0;
}

ordo_band ordo_plan_band(const ordo_plan *plan, int64_t q_len, int64_t kv_len)
{
    const ordo_problem *p = &plan->problem;
    const int64_t middle = diagonal(p, q_len, kv_len);
    ordo_band band = { .q_len = (int32_t)q_len,
                       .kv_len = (int32_t)kv_len,
                       .bq = (int32_t)plan->backward_tile.q,
                       .bk = (int32_t)plan->backward_tile.k,
                       .low = -ORDO_BAND_OPEN,
                       .high = ORDO_BAND_OPEN };
    if (p->mask != ORDO_MASK_FULL)
        band.high = clamp(middle);
    if (p->window.on && p->window.left >= 0)
        band.low = clamp(middle - p->window.left);
    if (p->window.on && p->window.right >= 0)
        band.high = ordo_min32(band.high, clamp(middle + p->window.right));
    return band;
}

ordo_run ordo_plan_run(const ordo_plan *plan, int64_t sequences, int64_t q_len, int64_t kv_len)
{
    const ordo_problem *p = &plan->problem;
    const int64_t queries = p->heads / p->kv_heads;
    return (ordo_run) {
        .band = ordo_plan_band(plan, q_len, kv_len),
        .sequences = (int32_t)sequences,
        .kv_heads = (int32_t)p->kv_heads,
        .head0 = (int32_t)(p->shard.head0 / queries),
        .group_heads = (int32_t)queries,
        .order = plan->order,
        .group = plan->group == ORDO_GROUP_WAVES ? 0
                 : plan->group > 0               ? (int32_t)plan->group
                                                 : 1,
        .issue = plan->issue,
        .section = (int32_t)plan->section,
        .assign = plan->assign,
        .workers = (int32_t)plan->workers,
    };
}

int32_t ordo_plan_coresident(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    int64_t q_len = p->q_len, kv_len = p->kv_len;
    /* Of a packed or padded batch other lengths than the largest can need more: symmetric folds
     * where they are equal, and twin pins a head in pairs only where the workers hold it. */
    if (p->layout != ORDO_DENSE && plan->order == ORDO_ORDER_SYMMETRIC)
        q_len = kv_len = ordo_min32((int32_t)q_len, (int32_t)kv_len);
    if (p->layout != ORDO_DENSE && plan->order == ORDO_ORDER_TWIN &&
        kv_len > plan->workers * plan->backward_tile.k)
        kv_len = plan->workers * plan->backward_tile.k;
    const ordo_run run = ordo_plan_run(plan, 1, q_len, kv_len);
    return ordo_run_coresident(&run);
}

/* *part = a b c d, rounded up to 256. */
static bool part(uint64_t *part, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    *part = a;
    if (!ordo_mul_fits(part, b) || !ordo_mul_fits(part, c) || !ordo_mul_fits(part, d) ||
        !ordo_add_fits(part, 255))
        return false;
    *part = *part / 256 * 256;
    return true;
}

bool ordo_plan_parts(const ordo_plan *plan, uint64_t tiles, ordo_workspace *parts)
{
    const ordo_problem *p = &plan->problem;
    const uint64_t heads = (uint64_t)p->heads, split = (uint64_t)plan->split;
    const bool gpu = plan->backend == ORDO_BACKEND_CUDA;
    const int bucket = ordo_plan_bucket(plan);
    const uint64_t dim = !gpu           ? ((uint64_t)p->head_dim + 15) / 16 * 16 /* whole vectors */
                         : bucket < 256 ? (uint64_t)bucket
                                        : 0;
    const uint64_t group = ((uint64_t)plan->backward_tile.q + 15) / 16 * 16;
    uint64_t each = tiles, rows, groups; /* tiles of all heads; their rows, also padded to 16 */
    *parts = (ordo_workspace) { 0 };
    if (!ordo_mul_fits(&each, heads))
        return false;
    rows = groups = each;
    if (!ordo_mul_fits(&rows, (uint64_t)plan->backward_tile.q) || !ordo_mul_fits(&groups, group) ||
        !part(&parts->dq, rows, dim, 4, split) || !part(&parts->delta, groups, 4, 1, 1) ||
        !part(&parts->turns, each, 4, split, 1) || !part(&parts->ticket, 2, 4, 1, 1))
        return false;
    if (!part(&parts->lse2, groups, 4, 1, 1))
        return false;
    parts->table = ordo_plan_table_bytes(plan);
    if (plan->backend != ORDO_BACKEND_CPU)
        return true;
    const uint64_t ld = (uint64_t)ordo_panel_row(plan->backward_tile.q);
    return part(&parts->q, rows, (uint64_t)ordo_panel_row(p->head_dim), 4, 1) &&
           part(&parts->dout, rows, (uint64_t)ordo_panel_row(p->v_head_dim), 4, 1) &&
           part(&parts->qt, each, (uint64_t)p->head_dim, ld, 4) &&
           part(&parts->doutt, each, (uint64_t)p->v_head_dim, ld, 4) &&
           part(&parts->ready, each, 4, 1, 1);
}

uint64_t ordo_plan_table_bytes(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    uint64_t bytes = 0;
    if (plan->backend == ORDO_BACKEND_CUDA && (p->layout != ORDO_DENSE || p->dropout.p > 0))
        (void)part(&bytes, (uint64_t)p->batch + 1, ORDO_SEQUENCE_BYTES, 1, 1); /* batch <= 2^30 */
    return bytes;
}

bool ordo_plan_key_parts(const ordo_plan *plan, uint64_t tiles, ordo_key_parts *parts)
{
    const ordo_problem *p = &plan->problem;
    const int64_t bq = plan->forward_tile.q, bk = plan->forward_tile.k;
    const int64_t queries = p->heads / p->kv_heads, meet = p->q_len / bq + (p->q_len % bq != 0);
    uint64_t each = tiles; /* tiles of all key heads */
    *parts = (ordo_key_parts) { 0 };
    if (plan->backend != ORDO_BACKEND_CPU || meet * queries <= ORDO_ITEM_TILES)
        return true;
    return ordo_mul_fits(&each, (uint64_t)p->kv_heads) &&
           part(&parts->kt, each, (uint64_t)p->head_dim, (uint64_t)ordo_panel_row(bk), 4) &&
           part(&parts->v, each, (uint64_t)bk, (uint64_t)ordo_panel_row(p->v_head_dim), 4) &&
           part(&parts->ready, each, 4, 1, 1);
}

/* Tiles of `tile` in all sequences of at most `longest`; of a packed batch of `total` no more
 * than this, however it is cut. */
static bool all_tiles(const ordo_problem *p, int64_t total, int64_t longest, int64_t tile,
                      uint64_t *tiles)
{
    const uint64_t batch = (uint64_t)p->batch, size = (uint64_t)tile;
    if (p->layout == ORDO_PACKED) {
        *tiles = (uint64_t)total / size + batch;
        return true;
    }
    *tiles = ((uint64_t)longest + size - 1) / size;
    return ordo_mul_fits(tiles, batch);
}

bool ordo_plan_forward_bytes(const ordo_plan *plan, uint64_t *bytes)
{
    const ordo_problem *p = &plan->problem;
    uint64_t tiles = 0;
    ordo_key_parts parts;
    *bytes = 0;
    if (ordo_problem_empty(p))
        return true;
    *bytes = plan->backend == ORDO_BACKEND_CUDA ? 256 + ordo_plan_table_bytes(plan) : 0;
    return all_tiles(p, p->total_kv, p->kv_len, plan->forward_tile.k, &tiles) &&
           ordo_plan_key_parts(plan, tiles, &parts) && ordo_add_fits(bytes, parts.kt) &&
           ordo_add_fits(bytes, parts.v) && ordo_add_fits(bytes, parts.ready);
}

bool ordo_plan_query_tiles(const ordo_plan *plan, uint64_t *tiles)
{
    const ordo_problem *p = &plan->problem;
    return all_tiles(p, p->total_q, p->q_len, plan->backward_tile.q, tiles);
}

bool ordo_plan_workspace_bytes(const ordo_plan *plan, uint64_t *bytes)
{
    *bytes = 0;
    if (plan->backend == ORDO_BACKEND_REF || ordo_problem_empty(&plan->problem))
        return true;
    uint64_t tiles = 0, forward = 0;
    ordo_workspace w;
    if (!ordo_plan_query_tiles(plan, &tiles) || !ordo_plan_parts(plan, tiles, &w) ||
        !ordo_plan_forward_bytes(plan, &forward))
        return false;
    const uint64_t parts[] = { w.dq, w.delta, w.turns, w.ticket, w.q,    w.dout,
                               w.qt, w.doutt, w.lse2,  w.ready,  w.table };
    for (size_t x = 0; x < sizeof parts / sizeof *parts; x++)
        if (!ordo_add_fits(bytes, parts[x]))
            return false;
    *bytes = *bytes > forward ? *bytes : forward;
    return true;
}

unsigned ordo_plan_promise(const ordo_plan *plan)
{
    const unsigned all = ORDO_PROMISE_REPEAT | ORDO_PROMISE_PORTABLE | ORDO_PROMISE_BATCH |
                         ORDO_PROMISE_SPLIT | ORDO_PROMISE_MASK;
    /* Waves cut a head where the workers end: the order of its sums then depends on how many
     * there are and on how many heads come before it. */
    if (plan->group == ORDO_GROUP_WAVES)
        return ORDO_PROMISE_REPEAT | ORDO_PROMISE_MASK;
    return all;
}

void ordo_order_key(ordo_order order, int64_t group, int64_t workers, int64_t split, char *text,
                    size_t capacity)
{
    const char *name = ordo_order_name(order);
    if (!ordo_order_cyclic(order))
        snprintf(text, capacity, "%s/k%lld", name, (long long)split);
    else if (group == ORDO_GROUP_WAVES)
        snprintf(text, capacity, "%s.w%lld/k%lld", name, (long long)workers, (long long)split);
    else
        snprintf(text, capacity, "%s.g%lld/k%lld", name, (long long)group, (long long)split);
}

void ordo_plan_key(const ordo_plan *plan, char *text, size_t capacity)
{
    char order[64], random[32] = "plain";
    ordo_order_key(plan->order, plan->group, plan->workers, plan->split, order, sizeof order);
    if (plan->problem.dropout.keying == ORDO_KEYING_FA2)
        snprintf(random, sizeof random, "fa2"); /* which has one layout */
    else if (plan->problem.dropout.rounds > 0)
        snprintf(random, sizeof random, "philox%dx%d", plan->problem.dropout.rounds,
                 plan->problem.dropout.bits);
    snprintf(text, capacity, "%s.r%d/f%lldx%lld/b%lldx%lld/%s/%s", plan->family, plan->revision,
             (long long)plan->forward_tile.q, (long long)plan->forward_tile.k,
             (long long)plan->backward_tile.q, (long long)plan->backward_tile.k, order, random);
}
