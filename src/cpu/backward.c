/* backward.c: attention backward on CPU threads, every sum in plan order.
 *
 * A chain owns one key tile: it keeps dK and dV and walks query tiles, for each query head of its
 * key head in turn. A step:
 *
 *   s = q k^T     dp = dout v^T     p, ds from them
 *   dv += p^T dout     dk += ds^T q     dq_part = ds k, from zero
 *
 * then waits for its turn at the query tile and adds dq_part; the first turn stores. The last
 * turn rounds the tile's dQ and writes it out. At large head sizes a few row tiles go through these
 * lines together, line by line: dV and dK then pass through the caches once for all of them. Every
 * sum keeps its terms and their order. Turns and visits come from src/plan. Query tiles to prepare
 * and then chains are drawn in ticket order from one counter and wait only on earlier tickets, so
 * any number of threads completes. Where chains are few, several threads share each (handoff.h). */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/half.h"
#include "base/status.h"
#include "cpu/handoff.h"
#include "cpu/pass.h"
#include "cpu/pool.h"

#define LOG2_E 1.4426950408889634

enum { UNIT_CHAINS = sizeof((ordo_unit *)0)->key / sizeof(int32_t) };

typedef struct backward_job {
    ordo_cpu_pass pass;
    int64_t tiles; /* query tiles of all sequences */
    int64_t group; /* rows of a tile, padded to 16 */
    float *dq;     /* (head, tile, row, dim), f32, rows of dq_ld */
    int dq_ld;
    float *q, *dout;        /* (head, tile, row, dim), f32 panels */
    float *qt, *doutt;      /* (head, tile, dim, row): the same, transposed */
    float *delta;           /* (head, tile, row): row sums of dO.O, less dlse */
    float *lse2;            /* (head, tile, row): lse in powers of two, +inf where it is -inf */
    atomic_int *ready;      /* (head, tile): an ordo_panel_state, of q and dout */
    atomic_int *turns;      /* (head, tile): additions done */
    int parts;              /* of a chain, at most */
    ordo_handoff *handoffs; /* (unit, chain, part), if there is more than one part */
    atomic_llong next;
} backward_job;

/* One worker's panels. */
typedef struct panels {
    float *kt, *vt, *k, *dk, *dv, *s, *dp, *part;
    float *slots; /* partials for the thread that has the chain's next part */
    uint32_t *keep;
    uint64_t random;
    int ld_q, ld_k, groups; /* of rows and of columns; 16 rows a group */
    int depth, ld_s; /* row tiles that s and dp hold together; their columns are ld_s apart */
} panels;

static size_t lay_out(const backward_job *job, void *memory, panels *w)
{
    const ordo_cpu_pass *p = &job->pass;
    const size_t rows = (size_t)p->plan->backward_tile.q, keys = (size_t)p->plan->backward_tile.k;
    const size_t ld = (size_t)p->ld, v_ld = (size_t)p->v_ld;
    w->ld_q = ordo_panel_row((int64_t)rows);
    w->ld_k = ordo_panel_row((int64_t)keys);
    w->groups = (int)(rows + 15) / 16;
    w->depth = ordo_cpu_phase_depth(p);
    w->ld_s = ordo_panel_row((int64_t)rows * w->depth);
    w->random = 0;
    ordo_arena arena = { memory, 0 };
    w->kt = ordo_arena_take(&arena, (size_t)p->dim * (size_t)w->ld_k);
    w->vt = ordo_arena_take(&arena, (size_t)p->v_dim * (size_t)w->ld_k);
    w->k = ordo_arena_take(&arena, keys * ld);
    w->dk = ordo_arena_take(&arena, keys * ld);
    w->dv = ordo_arena_take(&arena, keys * v_ld);
    w->s = ordo_arena_take(&arena, keys * (size_t)w->ld_s);
    w->dp = ordo_arena_take(&arena, keys * (size_t)w->ld_s);
    w->part = ordo_arena_take(&arena, rows * ld);
    w->slots = ordo_arena_take(&arena, job->parts > 1 ? ORDO_SLOTS * rows * ld : 0);
    w->keep = ordo_arena_take(&arena, ordo_cpu_keep_words(keys, w->groups));
    return arena.used;
}

static int rows_of(const ordo_band *band, int32_t i)
{
    return ordo_min32(band->bq, band->q_len - i * band->bq);
}

/* Place of (sequence, head, query tile) among turns; times rows and columns in delta and dq. The
 * tiles of a head that is walked downwards lie in that order: memory likes to be read upwards. */
static int64_t tile_at(const backward_job *job, int64_t b, int64_t head, int32_t i)
{
    const ordo_sequence *s = &job->pass.sequences[b];
    const ordo_walk walk = ordo_run_walk(&s->run, (int32_t)(head / job->pass.queries));
    const int32_t place = walk.kind == ORDO_WALK_DESCENDING ? walk.nq - 1 - i : i;
    return head * job->tiles + s->tile + place;
}

/* ---- turns ---- */

/* Testing: up to delay_us of sleep before a turn, to shake the order of arrival. */
static void delay(const backward_job *job, panels *w)
{
    if (job->pass.delay_us <= 0)
        return;
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    const long ns = (long)((w->random >> 33) % (uint64_t)job->pass.delay_us) * 1000;
    nanosleep(&(struct timespec) { .tv_nsec = ns }, NULL);
}

/* ---- query side: before the chains, and after the last turn ---- */

/* Write dQ rows; NULL: zeros. */
static void write_dq(const backward_job *job, int64_t b, int64_t head, int64_t row, int rows,
                     const float *dq)
{
    const ordo_cpu_pass *p = &job->pass;
    const ordo_rows to = ordo_cpu_rows(p, &p->call->dq, ORDO_QUERIES, p->dim, b, row, head);
    const size_t width = p->problem->dtype == ORDO_F32 ? 4 : 2;
    if (dq)
        p->kernels->store(to.data, p->problem->dtype, to.stride, dq, job->dq_ld, rows, p->dim,
                          (float)p->problem->scale, NULL);
    else
        for (int r = 0; r < rows; r++)
            memset((char *)to.data + (size_t)(r * to.stride) * width, 0, width * (size_t)p->dim);
}

/* Rows that saw nothing though the mask left them something, because their logits are -inf: they
 * add nothing, but 0 times an infinity would say otherwise. */
static void blank_rows(float *panel, int ld, const float *lse2, int rows)
{
    for (int r = 0; r < rows; r++)
        if (lse2[r] == INFINITY)
            memset(panel + (ptrdiff_t)r * ld, 0, (size_t)ld * sizeof *panel);
}
static void blank_scores(const ordo_scores *z, float *s, float *dp, const float *lse2)
{
    for (int r = 0; r < z->rows; r++)
        for (int c = 0; c < z->cols && lse2[r] == INFINITY; c++)
            s[(ptrdiff_t)c * z->ld + r] = dp[(ptrdiff_t)c * z->ld + r] = 0;
}

/* The query side of a tile, once for all chains that will visit it. */
static void prepare_tile(const backward_job *job, const panels *w, int64_t b, int64_t head,
                         int32_t i)
{
    const ordo_cpu_pass *p = &job->pass;
    const ordo_dtype dtype = p->problem->dtype;
    const ordo_band *band = &p->sequences[b].run.band;
    const int64_t row = (int64_t)i * band->bq, at = tile_at(job, b, head, i);
    const int rows = rows_of(band, i);
    const ordo_rows q = ordo_cpu_rows(p, &p->call->q, ORDO_QUERIES, p->dim, b, row, head);
    const ordo_rows o = ordo_cpu_rows(p, &p->call->o, ORDO_QUERIES, p->v_dim, b, row, head);
    const ordo_rows dout = ordo_cpu_rows(p, &p->call->dout, ORDO_QUERIES, p->v_dim, b, row, head);
    const float *lse = p->call->lse + ordo_cpu_lse_at(p, b, head, row);
    const float *dlse = p->call->dlse ? p->call->dlse + (lse - p->call->lse) : NULL;
    float *dout_panel = job->dout + at * band->bq * p->v_ld;
    float *delta = job->delta + at * job->group, *lse2 = job->lse2 + at * job->group;
    bool finite = p->kernels->load(job->q + at * band->bq * p->ld, p->ld, q.data, dtype, q.stride,
                                   rows, p->dim);
    finite &= p->kernels->load(dout_panel, p->v_ld, dout.data, dtype, dout.stride, rows, p->v_dim);
    p->kernels->load_transposed(job->qt + at * p->dim * w->ld_q, w->ld_q, q.data, dtype, q.stride,
                                rows, p->dim);
    p->kernels->load_transposed(job->doutt + at * p->v_dim * w->ld_q, w->ld_q, dout.data, dtype,
                                dout.stride, rows, p->v_dim);
    p->kernels->load(w->dv, p->v_ld, o.data, dtype, o.stride, rows, p->v_dim);
    p->kernels->row_dot(rows, p->v_dim, dout_panel, w->dv, p->v_ld, delta);
    for (int r = 0; r < rows; r++) {
        const bool blind = lse[r] == -INFINITY; /* saw nothing: its dlse is not asked for */
        lse2[r] = blind ? INFINITY : ordo_f32_from_f64((double)lse[r] * LOG2_E);
        delta[r] = blind ? 0 : dlse ? delta[r] - dlse[r] : delta[r];
    }
    if (!finite) {
        ordo_cpu_quiet(job->qt + at * p->dim * w->ld_q, p->dim, w->ld_q, rows);
        blank_rows(job->q + at * band->bq * p->ld, p->ld, lse2, rows);
        blank_rows(dout_panel, p->v_ld, lse2, rows);
    }
    atomic_store_explicit(&job->turns[at], 0, memory_order_relaxed);
    if (ordo_span_count(ordo_band_keys(band, i)) == 0)
        write_dq(job, b, head, row, rows, NULL);
    ordo_panel_fill(&job->ready[at], finite);
}

/* Rows and columns of a padded sequence past its end: gradients 0. */
static void clear_rows(const backward_job *job, int64_t b, int64_t head)
{
    for (int64_t row = job->pass.sequences[b].q_len; row < job->pass.problem->q_len; row++)
        write_dq(job, b, head, row, 1, NULL);
}
static void clear_columns(const backward_job *job, int64_t b, int64_t kv_head)
{
    const ordo_cpu_pass *p = &job->pass;
    const size_t width = p->problem->dtype == ORDO_F32 ? 4 : 2;
    for (int64_t col = p->sequences[b].kv_len; col < p->problem->kv_len; col++) {
        const ordo_rows dk = ordo_cpu_rows(p, &p->call->dk, ORDO_KEYS, p->dim, b, col, kv_head);
        const ordo_rows dv = ordo_cpu_rows(p, &p->call->dv, ORDO_KEYS, p->v_dim, b, col, kv_head);
        memset(dk.data, 0, width * (size_t)p->dim);
        memset(dv.data, 0, width * (size_t)p->v_dim);
    }
}

static int64_t before_tile(const ordo_cpu_pass *pass, int64_t b)
{
    return pass->sequences[b].tile;
}

/* The tiles of each head; then, if padded, the padding of each head and key head. */
static int64_t all_preparations(const backward_job *job)
{
    const ordo_problem *p = job->pass.problem;
    const int64_t padded = p->layout == ORDO_PADDED ? p->batch : 0;
    return p->heads * job->tiles + padded * (p->heads + p->kv_heads);
}

static void prepare(const backward_job *job, const panels *w, int64_t ticket)
{
    const ordo_cpu_pass *p = &job->pass;
    const int64_t heads = p->problem->heads, kv_heads = p->problem->kv_heads;
    if (ticket < heads * job->tiles) {
        const int64_t head = ticket / job->tiles, tile = ticket % job->tiles;
        const int64_t b = ordo_cpu_find(p, tile, before_tile);
        prepare_tile(job, w, b, head, (int32_t)(tile - p->sequences[b].tile));
    } else if ((ticket -= heads * job->tiles) < p->problem->batch * heads) {
        clear_rows(job, ticket / heads, ticket % heads);
    } else {
        ticket -= p->problem->batch * heads;
        clear_columns(job, ticket / kv_heads, ticket % kv_heads);
    }
}

/* ---- chains ---- */

typedef struct chain {
    int64_t b, kv_head;
    ordo_walk walk;
    int32_t j;
    int64_t col; /* its first column */
    int cols;
    bool finite; /* no inf or NaN in its keys and values */
    /* The part of it that this thread has: columns first .. end - 1, and the parts beside it. */
    int first, end;
    ordo_handoff *before, *after; /* NULL: none */
    int steps;                    /* done */
} chain;

static void begin_chain(const backward_job *job, const panels *w, chain *c)
{
    const ordo_cpu_pass *p = &job->pass;
    const ordo_dtype dtype = p->problem->dtype;
    const ordo_rows k = ordo_cpu_rows(p, &p->call->k, ORDO_KEYS, p->dim, c->b, c->col, c->kv_head);
    const ordo_rows v =
        ordo_cpu_rows(p, &p->call->v, ORDO_KEYS, p->v_dim, c->b, c->col, c->kv_head);
    c->finite = p->kernels->load(w->k, p->ld, k.data, dtype, k.stride, c->cols, p->dim);
    p->kernels->load_transposed(w->kt, w->ld_k, k.data, dtype, k.stride, c->cols, p->dim);
    if (!c->finite)
        ordo_cpu_quiet(w->kt, p->dim, w->ld_k, c->cols);
    c->finite &=
        p->kernels->load_transposed(w->vt, w->ld_k, v.data, dtype, v.stride, c->cols, p->v_dim);
    memset(w->dk, 0, (size_t)c->cols * (size_t)p->ld * sizeof(float));
    memset(w->dv, 0, (size_t)c->cols * (size_t)p->v_ld * sizeof(float));
}

typedef struct visit {
    int64_t head;
    int32_t i; /* query tile; -1: none */
} visit;

/* The query side of a step. */
typedef struct rows_panel {
    const float *q, *dout, *qt, *doutt, *lse2, *delta;
} rows_panel;

static rows_panel rows_at(const backward_job *job, const panels *w, const chain *c, int64_t head,
                          int32_t i)
{
    const ordo_cpu_pass *p = &job->pass;
    const int64_t at = tile_at(job, c->b, head, i), row = at * c->walk.band.bq;
    return (rows_panel) { job->q + row * p->ld,
                          job->dout + row * p->v_ld,
                          job->qt + at * p->dim * w->ld_q,
                          job->doutt + at * p->v_dim * w->ld_q,
                          job->lse2 + at * job->group,
                          job->delta + at * job->group };
}

/* Wait until the query side of a step is there; whether it is finite. */
static bool rows_finite(const backward_job *job, const chain *c, int64_t head, int32_t i)
{
    return ordo_panel_finite(&job->ready[tile_at(job, c->b, head, i)]);
}

/* A tile with its keep bits, which stay until the next tile's. */
static ordo_patch patch_at(const backward_job *job, const panels *w, const chain *c, int64_t head,
                           int32_t i)
{
    const ordo_cpu_pass *p = &job->pass;
    ordo_patch patch = ordo_cpu_patch(p, &c->walk.band, i, c->j, c->b, head, w->ld_s);
    ordo_cpu_patch_narrow(&patch, c->first, c->end);
    if (p->dropout) {
        ordo_cpu_keep_tile(p, c->b, head, &patch, w->keep, w->groups);
        patch.scores.keep = w->keep;
        patch.scores.keep_groups = w->groups;
        patch.scores.keep_column = (int)(patch.col % ORDO_KEEP_COLS);
    }
    return patch;
}

/* What is wanted soon, for products to ask for: the query side of the next step and the dQ that
 * this one adds to. */
typedef struct wanted {
    ordo_ahead qt, doutt, dout, q, dq;
} wanted;

static wanted wanted_by(const backward_job *job, const panels *w, const chain *c, visit next)
{
    const ordo_cpu_pass *p = &job->pass;
    const size_t rows = (size_t)c->walk.band.bq;
    if (next.i < 0)
        return (wanted) { 0 };
    const rows_panel r = rows_at(job, w, c, next.head, next.i);
    return (wanted) { .qt = { r.qt, 4 * (size_t)(p->dim * w->ld_q) },
                      .doutt = { r.doutt, 4 * (size_t)(p->v_dim * w->ld_q) },
                      .dout = { r.dout, 4 * rows * (size_t)p->v_ld },
                      .q = { r.q, 4 * rows * (size_t)p->ld } };
}

/* p and ds of a tile, to s and dp. */
static void make_scores(const backward_job *job, const panels *w, const rows_panel *r,
                        const ordo_patch *patch, float *s, float *dp, const wanted *soon)
{
    const ordo_cpu_pass *p = &job->pass;
    const ordo_kernels *k = p->kernels;
    const int rows = patch->rows, cols = patch->cols, skipped = patch->skipped;
    k->product(cols, rows, p->dim, w->kt + skipped, 1, w->ld_k, r->qt, w->ld_q, s, w->ld_s, false,
               &soon->qt);
    k->product(cols, rows, p->v_dim, w->vt + skipped, 1, w->ld_k, r->doutt, w->ld_q, dp, w->ld_s,
               false, &soon->doutt);
    k->gradients(&patch->scores, s, dp, r->lse2, r->delta);
}

/* The five products of a step. `finite`: no inf or NaN among what is multiplied; `more`: dq_part
 * goes on from what is there. */
static void multiply(const backward_job *job, const panels *w, const rows_panel *r,
                     const ordo_patch *patch, bool finite, float *part, bool more,
                     const wanted *soon)
{
    const ordo_cpu_pass *p = &job->pass;
    const ordo_kernels *k = p->kernels;
    const int rows = patch->rows, cols = patch->cols, skipped = patch->skipped;
    const int ld = p->ld, v_ld = p->v_ld, ld_s = w->ld_s;
    float *dk = w->dk + (ptrdiff_t)skipped * ld, *dv = w->dv + (ptrdiff_t)skipped * v_ld;
    const float *key = w->k + (ptrdiff_t)skipped * ld;
    make_scores(job, w, r, patch, w->s, w->dp, soon);
    if (!finite)
        blank_scores(&patch->scores, w->s, w->dp, r->lse2);
    if (!finite && patch->scores.cut) {
        const int64_t low = patch->scores.low, high = patch->scores.high;
        if (!more)
            memset(part, 0, (size_t)rows * (size_t)ld * sizeof(float));
        ordo_cpu_product_careful(cols, p->v_dim, rows, w->s, ld_s, 1, r->dout, v_ld, dv, v_ld,
                                 -high, -low);
        ordo_cpu_product_careful(cols, p->dim, rows, w->dp, ld_s, 1, r->q, ld, dk, ld, -high, -low);
        ordo_cpu_product_careful(rows, p->dim, cols, w->dp, 1, ld_s, key, ld, part, ld, low, high);
        blank_rows(part, ld, r->lse2, rows);
        return;
    }
    k->product(cols, p->v_dim, rows, w->s, ld_s, 1, r->dout, v_ld, dv, v_ld, true, &soon->dout);
    k->product(cols, p->dim, rows, w->dp, ld_s, 1, r->q, ld, dk, ld, true, &soon->q);
    k->product(rows, p->dim, cols, w->dp, 1, ld_s, key, ld, part, ld, more, NULL);
    if (!finite)
        blank_rows(part, ld, r->lse2, rows);
}

/* Add dq_part when its turn comes. */
static void add_in_turn(const backward_job *job, panels *w, const chain *c, int64_t head, int32_t i,
                        int rows)
{
    const ordo_cpu_pass *p = &job->pass;
    const ordo_band *band = &c->walk.band;
    const int64_t at = tile_at(job, c->b, head, i);
    const int turn = ordo_walk_turn(&c->walk, i, c->j);
    float *dq = job->dq + at * band->bq * job->dq_ld;
    delay(job, w);
    ordo_cpu_wait(&job->turns[at], turn);
    p->kernels->accumulate(rows, job->dq_ld, dq, job->dq_ld, w->part, p->ld, turn == 0);
    if (turn == ordo_span_count(ordo_band_keys(band, i)) - 1)
        write_dq(job, c->b, head, (int64_t)i * band->bq, rows, dq);
    atomic_store_explicit(&job->turns[at], turn + 1, memory_order_release);
}

static void step(const backward_job *job, panels *w, chain *c, int64_t head, int32_t i, visit next)
{
    const wanted soon = wanted_by(job, w, c, next);
    const rows_panel r = rows_at(job, w, c, head, i);
    const ordo_patch patch = patch_at(job, w, c, head, i);
    const size_t floats = (size_t)c->walk.band.bq * (size_t)job->pass.ld;
    const bool finite = rows_finite(job, c, head, i) && c->finite;
    float *part = c->after ? ordo_handoff_room(c->after, w->slots, floats, c->steps) : w->part;
    if (c->before)
        ordo_handoff_take(c->before, part, floats, c->steps);
    if (patch.cols > 0)
        multiply(job, w, &r, &patch, finite, part, c->before != NULL, &soon);
    else if (!c->before) /* the mask leaves nothing of this part */
        memset(part, 0, floats * sizeof *part);
    if (c->after)
        ordo_handoff_give(c->after, c->steps);
    else
        add_in_turn(job, w, c, head, i, patch.rows);
    c->steps++;
}

/* ---- row tiles together ---- */

/* Whether visit t begins w->depth row tiles that may go together: one after the other in memory, so
 * that their rows are one matrix, each whole, and nothing among them that needs care. */
static bool together(const backward_job *job, const panels *w, const chain *c, int64_t head,
                     int32_t t)
{
    const ordo_band *band = &c->walk.band;
    if (w->depth == 1 || t + w->depth > ordo_walk_steps(&c->walk, c->j) || !c->finite)
        return false;
    const int64_t first = tile_at(job, c->b, head, ordo_walk_visit(&c->walk, c->j, t));
    for (int32_t x = 0; x < w->depth; x++) {
        const int32_t i = ordo_walk_visit(&c->walk, c->j, t + x);
        if (tile_at(job, c->b, head, i) != first + x || !rows_finite(job, c, head, i))
            return false;
        const ordo_patch patch = ordo_cpu_patch(&job->pass, band, i, c->j, c->b, head, w->ld_s);
        if (patch.rows != band->bq || patch.cols != c->cols)
            return false;
    }
    return true;
}

/* Visits t .. t + depth - 1: scores of all, then dv and dk by one product each, then dq tile by
 * tile. A product goes on where the one before stopped, so its sums are those of single steps. */
static void steps_together(const backward_job *job, panels *w, const chain *c, int64_t head,
                           int32_t t)
{
    const ordo_cpu_pass *p = &job->pass;
    const int bq = c->walk.band.bq, all = w->depth * bq, ld_s = w->ld_s;
    const rows_panel first = rows_at(job, w, c, head, ordo_walk_visit(&c->walk, c->j, t));
    const wanted none = { 0 };
    for (int32_t x = 0; x < w->depth; x++) {
        const int32_t i = ordo_walk_visit(&c->walk, c->j, t + x);
        const rows_panel r = rows_at(job, w, c, head, i);
        const ordo_patch patch = patch_at(job, w, c, head, i);
        make_scores(job, w, &r, &patch, w->s + x * bq, w->dp + x * bq, &none);
    }
    p->kernels->product(c->cols, p->v_dim, all, w->s, ld_s, 1, first.dout, p->v_ld, w->dv, p->v_ld,
                        true, NULL);
    p->kernels->product(c->cols, p->dim, all, w->dp, ld_s, 1, first.q, p->ld, w->dk, p->ld, true,
                        NULL);
    for (int32_t x = 0; x < w->depth; x++) {
        p->kernels->product(bq, p->dim, c->cols, w->dp + x * bq, 1, ld_s, w->k, p->ld, w->part,
                            p->ld, false, NULL);
        add_in_turn(job, w, c, head, ordo_walk_visit(&c->walk, c->j, t + x), bq);
    }
}

/* The step after head g of visit t: where query heads share the keys, each tile is every head's
 * before the next one is any's. */
static visit visit_after(const backward_job *job, const chain *c, int32_t t, int64_t g)
{
    const int64_t queries = job->pass.queries, head0 = c->kv_head * queries;
    if (g + 1 < queries)
        return (visit) { head0 + g + 1, ordo_walk_visit(&c->walk, c->j, t) };
    if (t + 1 < ordo_walk_steps(&c->walk, c->j))
        return (visit) { head0, ordo_walk_visit(&c->walk, c->j, t + 1) };
    return (visit) { head0, -1 };
}

static void walk_chain(const backward_job *job, panels *w, chain *c)
{
    const int64_t queries = job->pass.queries, head0 = c->kv_head * queries;
    const int32_t steps = ordo_walk_steps(&c->walk, c->j);
    const bool whole = !c->before && !c->after;
    for (int32_t t = 0; t < steps;) {
        const int32_t i = ordo_walk_visit(&c->walk, c->j, t);
        const bool many = whole && queries == 1 && together(job, w, c, head0, t);
        if (many)
            steps_together(job, w, c, head0, t);
        else
            for (int64_t g = 0; g < queries; g++)
                step(job, w, c, head0 + g, i, visit_after(job, c, t, g));
        t += many ? w->depth : 1;
    }
}

static void run_chain(const backward_job *job, panels *w, chain *c)
{
    const ordo_cpu_pass *p = &job->pass;
    const int cols = ordo_min32(c->end, c->cols) - c->first;
    begin_chain(job, w, c);
    walk_chain(job, w, c);
    if (cols > 0) {
        const int64_t col = c->col + c->first;
        const ordo_rows dk =
            ordo_cpu_rows(p, &p->call->dk, ORDO_KEYS, p->dim, c->b, col, c->kv_head);
        const ordo_rows dv =
            ordo_cpu_rows(p, &p->call->dv, ORDO_KEYS, p->v_dim, c->b, col, c->kv_head);
        p->kernels->store(dk.data, p->problem->dtype, dk.stride,
                          w->dk + (ptrdiff_t)c->first * p->ld, p->ld, cols, p->dim,
                          (float)p->problem->scale, NULL);
        p->kernels->store(dv.data, p->problem->dtype, dv.stride,
                          w->dv + (ptrdiff_t)c->first * p->v_ld, p->v_ld, cols, p->v_dim, 1, NULL);
    }
    if (c->after)
        ordo_handoff_end(c->after, c->steps);
}

static int64_t before_first(const ordo_cpu_pass *pass, int64_t b)
{
    return pass->sequences[b].tickets[0];
}
static int64_t before_tail(const ordo_cpu_pass *pass, int64_t b)
{
    return pass->sequences[b].tickets[1];
}

/* One part of `parts` of the chains of a unit: one chain, or two that follow each other. */
static void draw(const backward_job *job, int64_t number, int part, int parts, panels *w)
{
    const ordo_cpu_pass *p = &job->pass;
    const int64_t firsts = p->sequences[p->problem->batch].tickets[0];
    const int cls = number >= firsts;
    const int64_t ticket = number - (cls ? firsts : 0);
    const int64_t b = ordo_cpu_find(p, ticket, cls ? before_tail : before_first);
    const ordo_sequence *s = &p->sequences[b];
    const ordo_unit unit = ordo_run_issue(&s->run, cls, ticket - s->tickets[cls]);
    const int32_t bk = s->run.band.bk;
    for (int x = 0; x < unit.keys; x++) {
        chain c = { .b = b,
                    .kv_head = unit.head,
                    .walk = ordo_run_walk(&s->run, unit.head),
                    .j = unit.key[x],
                    .col = (int64_t)unit.key[x] * bk,
                    .first = bk * part / parts,
                    .end = bk * (part + 1) / parts };
        ordo_handoff *own = NULL;
        if (parts > 1)
            own = job->handoffs + (number * UNIT_CHAINS + x) * parts;
        c.cols = ordo_min32(bk, s->run.band.kv_len - (int32_t)c.col);
        if (part > 0)
            c.before = &own[part - 1];
        if (part + 1 < parts)
            c.after = &own[part];
        run_chain(job, w, &c);
    }
}

static int64_t all_chains(const ordo_cpu_pass *p)
{
    const ordo_sequence *totals = &p->sequences[p->problem->batch];
    return totals->tickets[0] + totals->tickets[1];
}

static int parts_of(const ordo_cpu_pass *p, int workers)
{
    return ordo_cpu_parts(all_chains(p), workers, p->plan->backward_tile.k);
}

static void work(void *context, int worker, int workers, void *scratch)
{
    backward_job *job = context;
    const int parts = parts_of(&job->pass, workers);
    const int64_t preparations = all_preparations(job), chains = all_chains(&job->pass);
    panels w;
    lay_out(job, scratch, &w);
    w.random = (uint64_t)worker + 1;
    for (;;) {
        int64_t ticket = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (ticket < preparations)
            prepare(job, &w, ticket);
        else if ((ticket -= preparations) < chains * parts)
            draw(job, ticket / parts, (int)(ticket % parts), parts, &w);
        else
            return;
    }
}

/* ---- */

/* Cut the workspace into the plan's parts. */
static void share_workspace(backward_job *job)
{
    const ordo_cpu_pass *p = &job->pass;
    char *at = p->call->workspace;
    ordo_workspace parts;
    job->tiles = p->sequences[p->problem->batch].tile;
    job->group = (p->plan->backward_tile.q + 15) / 16 * 16;
    job->dq_ld = (p->dim + 15) / 16 * 16;
    ordo_plan_parts(p->plan, (uint64_t)job->tiles, &parts); /* fits: no more than the plan's */
    job->dq = ordo_cut(&at, parts.dq);
    job->delta = ordo_cut(&at, parts.delta);
    job->turns = ordo_cut(&at, parts.turns + parts.ticket);
    job->q = ordo_cut(&at, parts.q);
    job->dout = ordo_cut(&at, parts.dout);
    job->qt = ordo_cut(&at, parts.qt);
    job->doutt = ordo_cut(&at, parts.doutt);
    job->lse2 = ordo_cut(&at, parts.lse2);
    job->ready = ordo_cut(&at, parts.ready);
    memset((void *)job->ready, 0, parts.ready);
}

static ordo_status run(backward_job *job)
{
    const ordo_cpu_pass *p = &job->pass;
    const int threads = ordo_pool_threads(p->call->threads);
    panels none;
    job->parts = parts_of(p, threads);
    const int64_t parts = all_chains(p) * job->parts; /* fewer workers make no more of them */
    if (job->parts > 1 &&
        !(job->handoffs = calloc((size_t)(UNIT_CHAINS * parts), sizeof *job->handoffs)))
        return ordo_fail(ORDO_ERR_MEMORY, "%zu bytes",
                         UNIT_CHAINS * (size_t)parts * sizeof *job->handoffs);
    const size_t bytes = lay_out(job, NULL, &none);
    share_workspace(job);
    const int64_t tickets = all_preparations(job) + parts;
    return ordo_pool_run((int)(tickets < threads ? tickets + (tickets == 0) : threads), bytes, work,
                         job);
}

ordo_status ordo_cpu_backward(const ordo_plan *plan, const ordo_call *call)
{
    backward_job job = { 0 };
    ordo_status status = ordo_cpu_pass_open(&job.pass, plan, call);
    if (status == ORDO_OK)
        status = run(&job);
    free(job.handoffs);
    ordo_cpu_pass_close(&job.pass);
    return status;
}
