/* query_side.c: prepares query tiles for the chains of a backward pass. */
#include "cpu/query_side.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/constants.h"
#include "base/half.h"
#include "cpu/key_side.h"

void ordo_query_side_open(ordo_query_side *side, const ordo_cpu_pass *pass)
{
    ordo_arena arena = { pass->workspace, 0 };
    const int64_t tiles = pass->sequences[pass->problem->batch].tile;
    const ordo_tile tile = pass->plan->backward_tile;
    ordo_backward_parts parts;
    (void)ordo_plan_backward_parts(pass->plan, (uint64_t)tiles, &parts); /* fits */
    *side = (ordo_query_side) {
        .pass = pass,
        .tiles = tiles,
        .group = (tile.q + 15) / 16 * 16,
        .ld = (pass->dim + 15) / 16 * 16,
        .ld_t = ordo_panel_row(tile.q),
    };
    side->dq = ordo_arena_take(&arena, parts.dq / 4);
    side->delta = ordo_arena_take(&arena, parts.delta / 4);
    side->turns = ordo_arena_take(&arena, (parts.turns + parts.ticket) / 4);
    side->q = ordo_arena_take(&arena, parts.q / 4);
    side->dout = ordo_arena_take(&arena, parts.dout / 4);
    side->qt = ordo_arena_take(&arena, parts.qt / 4);
    side->doutt = ordo_arena_take(&arena, parts.doutt / 4);
    side->lse2 = ordo_arena_take(&arena, parts.lse2 / 4);
    side->ready = ordo_arena_take(&arena, parts.ready / 4);
    assert(arena.used - 9 * ORDO_GAP <= pass->call->workspace_bytes);
    memset((void *)side->ready, 0, parts.ready);
}

static bool all_zero(const float *row, int dim)
{
    for (int d = 0; d < dim; d++)
        if (row[d] != 0)
            return false;
    return true;
}

/* A row that sees nothing is +0, whatever its tile sees: a negative scale would make it -0. */
void ordo_query_write(const ordo_query_side *side, int64_t b, int64_t head, int64_t row, int rows,
                      const float *dq)
{
    const ordo_cpu_pass *p = side->pass;
    if (!p->dq)
        return;
    const ordo_rows to = ordo_cpu_rows(p, &p->call->dq, ORDO_QUERIES, p->dim, b, row, head);
    const size_t width = p->problem->dtype == ORDO_F32 ? 4 : 2;
    if (dq)
        p->kernels->store(to.data, p->problem->dtype, to.stride, dq, side->ld, rows, p->dim,
                          (float)p->problem->scale, NULL);
    for (int r = 0; r < rows; r++)
        if (!dq || (p->problem->scale < 0 && all_zero(dq + (ptrdiff_t)r * side->ld, p->dim)))
            memset((char *)to.data + (size_t)(r * to.stride) * width, 0, width * (size_t)p->dim);
}

void ordo_query_blank(float *panel, int ld, const float *lse2, int rows)
{
    for (int r = 0; r < rows; r++)
        if (lse2[r] == INFINITY)
            memset(panel + (ptrdiff_t)r * ld, 0, (size_t)ld * sizeof *panel);
}

/* ---- tickets ---- */

static void prepare_tile(const ordo_query_side *side, int64_t b, int64_t head, int32_t i,
                         float *scratch)
{
    const ordo_cpu_pass *p = side->pass;
    const ordo_kernels *kernels = p->kernels;
    const ordo_dtype dtype = p->problem->dtype;
    const ordo_band *band = &p->sequences[b].run.band;
    const int64_t row = (int64_t)i * band->bq, at = ordo_query_place(side, b, head, i);
    const int rows = ordo_query_rows(band, i);
    const ordo_rows q = ordo_cpu_rows(p, &p->call->q, ORDO_QUERIES, p->dim, b, row, head);
    const ordo_rows o = ordo_cpu_rows(p, &p->call->o, ORDO_QUERIES, p->v_dim, b, row, head);
    const ordo_rows dout = ordo_cpu_rows(p, &p->call->dout, ORDO_QUERIES, p->v_dim, b, row, head);
    const float *lse = p->call->lse + ordo_cpu_lse_at(p, b, head, row);
    const float *dlse = p->call->dlse ? p->call->dlse + (lse - p->call->lse) : NULL;
    const ordo_query_tile t = ordo_query_tile_at(side, at);
    bool finite = kernels->load(t.q, p->ld, q.data, dtype, q.stride, rows, p->dim);
    finite &= kernels->load(t.dout, p->v_ld, dout.data, dtype, dout.stride, rows, p->v_dim);
    kernels->load_transposed(t.qt, side->ld_t, q.data, dtype, q.stride, rows, p->dim);
    kernels->load_transposed(t.doutt, side->ld_t, dout.data, dtype, dout.stride, rows, p->v_dim);
    kernels->load(scratch, p->v_ld, o.data, dtype, o.stride, rows, p->v_dim);
    kernels->row_dot(rows, p->v_dim, t.dout, scratch, p->v_ld, t.delta);
    for (int r = 0; r < rows; r++) {
        const bool blind = lse[r] == -INFINITY; /* saw nothing: its dlse is not needed */
        t.lse2[r] = blind ? INFINITY : ordo_f32_from_f64((double)lse[r] * ORDO_LOG2_E);
        t.delta[r] = blind ? 0 : dlse ? t.delta[r] - dlse[r] : t.delta[r];
    }
    if (!finite) {
        ordo_cpu_quiet(t.qt, p->dim, side->ld_t, rows);
        ordo_query_blank(t.q, p->ld, t.lse2, rows);
        ordo_query_blank(t.dout, p->v_ld, t.lse2, rows);
    }
    atomic_store_explicit(&side->turns[at], 0, memory_order_relaxed);
    if (ordo_query_keys(side, b, head, i) == 0)
        ordo_query_write(side, b, head, row, rows, NULL);
    ordo_panel_fill(&side->ready[at], finite);
}

/* Rows of a padded sequence past its end: gradients 0. */
static void clear_rows(const ordo_query_side *side, int64_t b, int64_t head)
{
    const ordo_cpu_pass *p = side->pass;
    for (int64_t row = p->sequences[b].q_len; row < p->problem->q_len; row++)
        ordo_query_write(side, b, head, row, 1, NULL);
}

static int64_t before_tile(const ordo_cpu_pass *pass, int64_t b)
{
    return pass->sequences[b].tile;
}

/* The tiles of each head; then, if padded, the padding of each head and key head. */
int64_t ordo_query_side_tickets(const ordo_query_side *side)
{
    const ordo_problem *p = side->pass->problem;
    const int64_t padded = p->layout == ORDO_PADDED ? p->batch : 0;
    return p->heads * side->tiles + padded * (p->heads + p->kv_heads);
}

void ordo_query_side_prepare(const ordo_query_side *side, int64_t ticket, float *scratch)
{
    const ordo_cpu_pass *p = side->pass;
    const int64_t heads = p->problem->heads, kv_heads = p->problem->kv_heads;
    const int64_t tiles = heads * side->tiles, padding = p->problem->batch * heads;
    if (ticket < tiles) {
        const int64_t head = ticket / side->tiles, tile = ticket % side->tiles;
        const int64_t b = ordo_cpu_find(p, tile, before_tile);
        prepare_tile(side, b, head, (int32_t)(tile - p->sequences[b].tile), scratch);
    } else if (ticket < tiles + padding) {
        clear_rows(side, (ticket - tiles) / heads, (ticket - tiles) % heads);
    } else {
        ticket -= tiles + padding;
        ordo_key_clear(p, ticket / kv_heads, ticket % kv_heads);
    }
}
