/* workspace.c: adds up the parts of the workspaces, with checks against overflow. */
#include "plan/workspace.h"

#include "base/blocks.h"
#include "base/checked.h"
#include "base/pages.h"
#include "plan/family.h"

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

static bool add_all(uint64_t *bytes, const uint64_t *parts, size_t count)
{
    for (size_t x = 0; x < count; x++)
        if (!ordo_add_fits(bytes, parts[x]))
            return false;
    return true;
}

static uint64_t round_up_16(int64_t n)
{
    return ((uint64_t)n + 15) / 16 * 16;
}

/* Columns of the f32 sum of dQ. CUDA kernels of other forms than flash keep it in registers. */
static uint64_t dq_columns(const ordo_plan *plan)
{
    if (!ordo_plan_of_kernels(plan))
        return round_up_16(plan->problem.head_dim);
    const ordo_family *family = ordo_family_find(plan->family);
    return plan->backward_form == ORDO_FORM_FLASH
               ? (uint64_t)ordo_family_row_of(family, &plan->problem)->head_dim
               : 0;
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

/* ---- block masks on CUDA ---- */

static uint64_t words_of(int64_t length, int64_t tile)
{
    const uint64_t tiles = ((uint64_t)length + (uint64_t)tile - 1) / (uint64_t)tile;
    return (tiles + ORDO_TILE_WORD - 1) / ORDO_TILE_WORD;
}

static uint64_t lists_of(const ordo_problem *p)
{
    return ordo_blocks_per_head(p) ? (uint64_t)p->heads : 1;
}

/* Rows of bits of `tiles` query tiles. */
static bool block_rows(const ordo_plan *plan, uint64_t tiles, uint64_t *bytes)
{
    const ordo_problem *p = &plan->problem;
    *bytes = 0;
    return !ordo_has_blocks(p) ||
           part(bytes, tiles, lists_of(p), words_of(p->kv_len, ORDO_BLOCK), ORDO_TILE_WORD_BYTES);
}

static bool block_columns(const ordo_plan *plan, uint64_t *bytes)
{
    const ordo_problem *p = &plan->problem;
    uint64_t tiles = 0;
    *bytes = 0;
    return !ordo_has_blocks(p) ||
           (ordo_plan_key_blocks(plan, &tiles) &&
            part(bytes, tiles, lists_of(p), words_of(p->q_len, plan->backward_tile.q) + 1, 4));
}

/* ---- passes by phases ---- */

static int64_t query_heads(const ordo_problem *p)
{
    return p->heads / p->kv_heads;
}

/* The largest panels that leave room for the other parts. */
static ordo_phase_panels panels_of(const ordo_plan *plan, bool backward, uint64_t tiles,
                                   uint64_t others)
{
    const ordo_problem *p = &plan->problem;
    const int64_t limit = plan->workspace_limit ? plan->workspace_limit : ORDO_PHASE_BUDGET;
    const ordo_phase_problem phase = {
        .tiles = tiles < INT32_MAX ? (int64_t)tiles : INT32_MAX,
        .tile_rows = plan->backward_tile.q,
        .tile_keys = plan->backward_tile.k,
        .kv_heads = p->kv_heads,
        .group_heads = query_heads(p),
        .kv_len = p->kv_len,
        .kv_rows = p->layout == ORDO_PACKED ? p->total_kv : p->batch * p->kv_len,
        .sum_columns = backward ? p->head_dim + p->v_head_dim : 0,
        .backward = backward,
        .chained = backward && plan->backward_form == ORDO_FORM_CHAIN,
    };
    return ordo_phase_panels_of(&phase, (uint64_t)limit > others ? (uint64_t)limit - others : 0);
}

/* P, or dS, of a panel. */
static bool panel_part(const ordo_plan *plan, const ordo_phase_panels *panels, uint64_t *bytes)
{
    const uint64_t heads = (uint64_t)(panels->section * query_heads(&plan->problem));
    return part(bytes, heads, (uint64_t)(panels->tiles * plan->backward_tile.q),
                (uint64_t)panels->columns, 2);
}

static bool phase_parts(const ordo_plan *plan, uint64_t tiles, ordo_backward_parts *parts)
{
    const ordo_problem *p = &plan->problem;
    const bool packed = p->layout == ORDO_PACKED;
    const uint64_t rows = (uint64_t)(packed ? p->total_kv : p->kv_len);
    const uint64_t sequences = packed ? 1 : (uint64_t)p->batch;
    uint64_t others = 2 * PART_ALIGN; /* dk and dv are rounded up */
    if (!add_all(&others,
                 (const uint64_t[]) { parts->delta, parts->lse2, parts->turns, parts->ticket,
                                      parts->table, parts->broken, parts->words, parts->columns },
                 8))
        return false;
    parts->panels = panels_of(plan, true, tiles, others);
    const uint64_t heads = sequences * (uint64_t)parts->panels.section;
    return (plan->backward_form == ORDO_FORM_CHAIN ||
            panel_part(plan, &parts->panels, &parts->p)) &&
           panel_part(plan, &parts->panels, &parts->ds) &&
           part(&parts->dk, rows, heads, (uint64_t)p->head_dim, 4) &&
           part(&parts->dv, rows, heads, (uint64_t)p->v_head_dim, 4);
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
    if (plan->backend == ORDO_BACKEND_CPU)
        return query_panels(plan, each, rows, parts);
    return broken_rows(plan, parts) && block_rows(plan, tiles, &parts->words) &&
           block_columns(plan, &parts->columns) &&
           (!ordo_plan_by_phases(plan, ORDO_BACKWARD) || phase_parts(plan, tiles, parts));
}

uint64_t ordo_plan_table_bytes(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    uint64_t bytes = 0;
    if (plan->backend == ORDO_BACKEND_CUDA && (p->layout != ORDO_DENSE || p->dropout.p > 0))
        (void)part(&bytes, (uint64_t)p->batch + 1, ORDO_SEQUENCE_BYTES, 1, 1); /* batch <= 2^30 */
    return bytes;
}

int64_t ordo_plan_spread_lines(const ordo_problem *p)
{
    const int64_t lines = p->heads / p->kv_heads * p->q_len;
    return (lines + ORDO_SPREAD_GROUP - 1) / ORDO_SPREAD_GROUP * ORDO_SPREAD_GROUP;
}

/* Bytes of a slot: each line's scores, and their maximum. */
static int64_t slot_bytes(const ordo_plan *plan)
{
    return ordo_plan_spread_lines(&plan->problem) * 4 * (plan->forward_tile.k + 1);
}

int64_t ordo_plan_spread_slots(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const int64_t tiles = (p->kv_len + plan->forward_tile.k - 1) / plan->forward_tile.k;
    const int64_t each = (tiles + ORDO_SPREAD_RUN - 1) / ORDO_SPREAD_RUN * ORDO_SPREAD_RUN;
    const int64_t most = (ORDO_SPREAD_UNITS - 1) / p->kv_heads; /* sequences */
    if (plan->backend != ORDO_BACKEND_CUDA || !ordo_paged(p) || tiles < ORDO_SPREAD_LEAST ||
        p->q_len > ORDO_SPREAD_LINES || p->heads / p->kv_heads * p->q_len > ORDO_SPREAD_LINES)
        return 0;
    const int64_t wanted = (p->batch < most ? p->batch : most) * each;
    const int64_t room = ORDO_SPREAD_BYTES_MAX / (slot_bytes(plan) * p->kv_heads);
    return wanted <= room ? wanted : room / ORDO_SPREAD_RUN * ORDO_SPREAD_RUN;
}

static bool cuda_forward_parts(const ordo_plan *plan, ordo_forward_parts *parts)
{
    uint64_t tiles = 0, others = 0;
    const uint64_t slots = (uint64_t)ordo_plan_spread_slots(plan);
    parts->ticket = PART_ALIGN;
    parts->table = ordo_plan_table_bytes(plan);
    if (slots > 0)
        parts->spread = ORDO_SPREAD_LIST_BYTES + /* whole parts: slots come in runs */
                        slots * (uint64_t)(plan->problem.kv_heads * slot_bytes(plan));
    if (ordo_has_blocks(&plan->problem)) {
        const int64_t each = plan->backward_tile.q / ORDO_FORWARD_LIST_ROWS;
        return ordo_plan_query_tiles(plan, &tiles) && ordo_mul_fits(&tiles, (uint64_t)each) &&
               block_rows(plan, tiles, &parts->words) &&
               part(&parts->spans, tiles, lists_of(&plan->problem), ORDO_TILE_SPAN_BYTES, 1);
    }
    if (!ordo_plan_by_phases(plan, ORDO_FORWARD))
        return true;
    if (!ordo_plan_query_tiles(plan, &tiles) ||
        !part(&parts->weight, tiles, (uint64_t)plan->problem.heads, (uint64_t)plan->backward_tile.q,
              4) ||
        !add_all(&others, (const uint64_t[]) { parts->ticket, parts->table, parts->weight }, 3))
        return false;
    parts->panels = panels_of(plan, false, tiles, others);
    return panel_part(plan, &parts->panels, &parts->p) &&
           part(&parts->shrink, parts->p / 2 / (uint64_t)plan->backward_tile.k, 4, 1, 1);
}

bool ordo_plan_forward_parts(const ordo_plan *plan, uint64_t tiles, ordo_forward_parts *parts)
{
    const ordo_problem *p = &plan->problem;
    const int64_t bq = plan->forward_tile.q, bk = plan->forward_tile.k;
    const int64_t queries = query_heads(p), meet = p->q_len / bq + (p->q_len % bq != 0);
    uint64_t each = tiles; /* tiles of all key heads */
    *parts = (ordo_forward_parts) { 0 };
    if (plan->backend == ORDO_BACKEND_CUDA)
        return cuda_forward_parts(plan, parts);
    if (plan->backend != ORDO_BACKEND_CPU || meet * queries <= ORDO_ITEM_TILES || ordo_paged(p))
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
    if (plan->backend == ORDO_BACKEND_EMULATOR) /* whose threads have separate memory */
        return true;
    if (!all_tiles(p, p->total_kv, p->kv_len, plan->forward_tile.k, &tiles) ||
        !ordo_plan_forward_parts(plan, tiles, &parts))
        return false;
    const uint64_t sizes[] = { parts.kt,    parts.v,      parts.ready, parts.ticket,
                               parts.table, parts.words,  parts.spans, parts.weight,
                               parts.p,     parts.shrink, parts.spread };
    return add_all(bytes, sizes, sizeof sizes / sizeof *sizes);
}

bool ordo_plan_query_tiles(const ordo_plan *plan, uint64_t *tiles)
{
    const ordo_problem *p = &plan->problem;
    return all_tiles(p, p->total_q, p->q_len, plan->backward_tile.q, tiles);
}

bool ordo_plan_key_tiles(const ordo_plan *plan, uint64_t *tiles)
{
    const ordo_problem *p = &plan->problem;
    return all_tiles(p, p->total_kv, p->kv_len, plan->backward_tile.k, tiles);
}

bool ordo_plan_key_blocks(const ordo_plan *plan, uint64_t *blocks)
{
    return ordo_plan_key_tiles(plan, blocks) &&
           ordo_mul_fits(blocks, (uint64_t)(plan->backward_tile.k / ORDO_BLOCK));
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
    if (plan->backend == ORDO_BACKEND_EMULATOR)
        return true;
    if (ordo_paged(&plan->problem)) /* without a backward pass */
        return ordo_plan_forward_bytes(plan, bytes);
    if (!ordo_plan_query_tiles(plan, &tiles) || !ordo_plan_backward_parts(plan, tiles, &w) ||
        !ordo_plan_forward_bytes(plan, &forward))
        return false;
    const uint64_t parts[] = { w.dq,    w.delta,   w.turns, w.ticket, w.q,     w.dout,
                               w.qt,    w.doutt,   w.lse2,  w.ready,  w.table, w.broken,
                               w.words, w.columns, w.p,     w.ds,     w.dk,    w.dv };
    if (!add_all(bytes, parts, sizeof parts / sizeof *parts))
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
    /* All but the last are as long as the first. By phases the last, which is shorter, may take
     * more: its panels have more heads. */
    const ordo_plan longest = ordo_segment_plan(plan, 0);
    const ordo_plan last = ordo_segment_plan(plan, plan->segments - 1);
    uint64_t forward = 0, backward = 0;
    *parts = (ordo_segment_parts) { .buffers = ordo_segment_buffers(plan->segments) };
    if (!ordo_segment_bits(plan, longest.problem.q_len, &parts->bits) ||
        !ordo_add_fits(&parts->bits, ordo_plan_table_bytes(plan)) ||
        !ordo_plan_forward_bytes(&longest, &parts->forward) ||
        !ordo_plan_workspace_bytes(&longest, &parts->backward) ||
        !ordo_plan_forward_bytes(&last, &forward) || !ordo_plan_workspace_bytes(&last, &backward) ||
        !sum_bytes(p, p->head_dim, &parts->dk) || !sum_bytes(p, p->v_head_dim, &parts->dv))
        return false;
    parts->forward = forward > parts->forward ? forward : parts->forward;
    parts->backward = backward > parts->backward ? backward : parts->backward;
    return true;
}
