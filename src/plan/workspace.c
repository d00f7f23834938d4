/* workspace.c: see the header. */
#include "plan/workspace.h"

#include "base/checked.h"

enum { PART_ALIGN = 256 };

/* *bytes = a * b * c * d, rounded up to PART_ALIGN. */
static bool part(uint64_t *bytes, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    *bytes = a;
    if (!ordo_mul_fits(bytes, b) || !ordo_mul_fits(bytes, c) || !ordo_mul_fits(bytes, d) ||
        !ordo_add_fits(bytes, PART_ALIGN - 1))
        return false;
    *bytes = *bytes / PART_ALIGN * PART_ALIGN;
    return true;
}

static uint64_t round_up_16(int64_t n)
{
    return ((uint64_t)n + 15) / 16 * 16;
}

/* Columns of the f32 sum of dQ. The CUDA kernels for head sizes above 128 keep it in registers. */
static uint64_t dq_columns(const ordo_plan *plan)
{
    const int bucket = ordo_plan_bucket(plan);
    if (plan->backend != ORDO_BACKEND_CUDA)
        return round_up_16(plan->problem.head_dim);
    return bucket < 256 ? (uint64_t)bucket : 0;
}

/* The query side as the CPU kernels read it; `each` tiles of all heads with `rows` rows. */
static bool query_panels(const ordo_plan *plan, uint64_t each, uint64_t rows,
                         ordo_backward_parts *parts)
{
    const ordo_problem *p = &plan->problem;
    const uint64_t ld = (uint64_t)ordo_panel_row(plan->backward_tile.q);
    return part(&parts->q, rows, (uint64_t)ordo_panel_row(p->head_dim), 4, 1) &&
           part(&parts->dout, rows, (uint64_t)ordo_panel_row(p->v_head_dim), 4, 1) &&
           part(&parts->qt, each, (uint64_t)p->head_dim, ld, 4) &&
           part(&parts->doutt, each, (uint64_t)p->v_head_dim, ld, 4) &&
           part(&parts->ready, each, 4, 1, 1);
}

/* One byte per row of dK, then one per row of dV. */
static bool broken_rows(const ordo_plan *plan, ordo_backward_parts *parts)
{
    const ordo_problem *p = &plan->problem;
    const bool packed = p->layout == ORDO_PACKED;
    return part(&parts->broken, packed ? (uint64_t)p->total_kv : (uint64_t)p->kv_len,
                packed ? 1 : (uint64_t)p->batch, (uint64_t)p->kv_heads, 2);
}

bool ordo_plan_backward_parts(const ordo_plan *plan, uint64_t tiles, ordo_backward_parts *parts)
{
    uint64_t each = tiles, rows, padded; /* tiles of all heads; their rows, also padded to 16 */
    *parts = (ordo_backward_parts) { .table = ordo_plan_table_bytes(plan) };
    if (!ordo_mul_fits(&each, (uint64_t)plan->problem.heads))
        return false;
    rows = padded = each;
    if (!ordo_mul_fits(&rows, (uint64_t)plan->backward_tile.q) ||
        !ordo_mul_fits(&padded, round_up_16(plan->backward_tile.q)) ||
        !part(&parts->dq, rows, dq_columns(plan), 4, 1) || !part(&parts->delta, padded, 4, 1, 1) ||
        !part(&parts->lse2, padded, 4, 1, 1) || !part(&parts->turns, each, 4, 1, 1) ||
        !part(&parts->ticket, 2, 4, 1, 1))
        return false;
    return plan->backend == ORDO_BACKEND_CPU ? query_panels(plan, each, rows, parts)
                                             : broken_rows(plan, parts);
}

uint64_t ordo_plan_table_bytes(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    uint64_t bytes = 0;
    if (plan->backend == ORDO_BACKEND_CUDA && (p->layout != ORDO_DENSE || p->dropout.p > 0))
        (void)part(&bytes, (uint64_t)p->batch + 1, ORDO_SEQUENCE_BYTES, 1, 1); /* batch <= 2^30 */
    return bytes;
}

bool ordo_plan_forward_parts(const ordo_plan *plan, uint64_t tiles, ordo_forward_parts *parts)
{
    const ordo_problem *p = &plan->problem;
    const int64_t bq = plan->forward_tile.q, bk = plan->forward_tile.k;
    const int64_t queries = p->heads / p->kv_heads, meet = p->q_len / bq + (p->q_len % bq != 0);
    uint64_t each = tiles; /* tiles of all key heads */
    *parts = (ordo_forward_parts) { 0 };
    if (plan->backend != ORDO_BACKEND_CPU || meet * queries <= ORDO_ITEM_TILES)
        return true;
    return ordo_mul_fits(&each, (uint64_t)p->kv_heads) &&
           part(&parts->kt, each, (uint64_t)p->head_dim, (uint64_t)ordo_panel_row(bk), 4) &&
           part(&parts->v, each, (uint64_t)bk, (uint64_t)ordo_panel_row(p->v_head_dim), 4) &&
           part(&parts->ready, each, 4, 1, 1);
}

/* Tiles of `tile` lines in all sequences, none of which is longer than `longest`. For a packed
 * batch of `total` lines: an upper bound for any lengths. */
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

/* Bytes of a plan with segments, for the pass whose own workspace is `pass` bytes. */
static bool segments_bytes(const ordo_segment_parts *parts, uint64_t pass, uint64_t *bytes)
{
    *bytes = parts->bits;
    return ordo_mul_fits(bytes, (uint64_t)parts->buffers) && ordo_add_fits(bytes, pass);
}

bool ordo_plan_forward_bytes(const ordo_plan *plan, uint64_t *bytes)
{
    const ordo_problem *p = &plan->problem;
    uint64_t tiles = 0;
    ordo_forward_parts parts;
    ordo_segment_parts segments;
    *bytes = 0;
    if (ordo_problem_empty(p))
        return true;
    if (plan->segments)
        return ordo_segment_sizes(plan, &segments) &&
               segments_bytes(&segments, segments.forward, bytes);
    *bytes = plan->backend == ORDO_BACKEND_CUDA ? PART_ALIGN + ordo_plan_table_bytes(plan) : 0;
    return all_tiles(p, p->total_kv, p->kv_len, plan->forward_tile.k, &tiles) &&
           ordo_plan_forward_parts(plan, tiles, &parts) && ordo_add_fits(bytes, parts.kt) &&
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
    ordo_backward_parts w;
    ordo_segment_parts segments;
    if (plan->segments)
        return ordo_segment_sizes(plan, &segments) &&
               segments_bytes(&segments, segments.backward, bytes) &&
               ordo_add_fits(bytes, segments.dk) && ordo_add_fits(bytes, segments.dv);
    if (!ordo_plan_query_tiles(plan, &tiles) || !ordo_plan_backward_parts(plan, tiles, &w) ||
        !ordo_plan_forward_bytes(plan, &forward))
        return false;
    const uint64_t parts[] = { w.dq, w.delta, w.turns, w.ticket, w.q,     w.dout,
                               w.qt, w.doutt, w.lse2,  w.ready,  w.table, w.broken };
    for (size_t x = 0; x < sizeof parts / sizeof *parts; x++)
        if (!ordo_add_fits(bytes, parts[x]))
            return false;
    *bytes = *bytes > forward ? *bytes : forward;
    return true;
}

/* ---- segments ---- */

/* The f32 sum of dk or dv. */
static bool sum_bytes(const ordo_problem *p, int64_t dim, uint64_t *bytes)
{
    uint64_t row = (uint64_t)p->kv_heads;
    return ordo_mul_fits(&row, (uint64_t)dim) &&
           part(bytes, (uint64_t)p->batch, (uint64_t)p->kv_len, row, 4);
}

bool ordo_segment_sizes(const ordo_plan *plan, ordo_segment_parts *parts)
{
    const ordo_problem *p = &plan->problem;
    const ordo_plan longest = ordo_segment_plan(plan, 0);
    *parts = (ordo_segment_parts) { .buffers = ordo_segment_buffers(plan->segments) };
    return ordo_segment_bits(plan, longest.problem.q_len, &parts->bits) &&
           ordo_add_fits(&parts->bits, ordo_plan_table_bytes(plan)) &&
           ordo_plan_forward_bytes(&longest, &parts->forward) &&
           ordo_plan_workspace_bytes(&longest, &parts->backward) &&
           sum_bytes(p, p->head_dim, &parts->dk) && sum_bytes(p, p->v_head_dim, &parts->dv);
}
