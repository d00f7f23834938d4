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
 * sum keeps its terms and their order. A pass that computes only dq, or only dk and dv, leaves out
 * the other products. Turns and visits come from src/plan. Query tiles to prepare
 * and then chains are drawn in ticket order from one counter and wait only on earlier tickets, so
 * any number of threads completes. Where chains are few, several threads share each (handoff.h). */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"
#include "base/status.h"
#include "cpu/bias.h"
#include "cpu/blocks.h"
#include "cpu/handoff.h"
#include "cpu/key_side.h"
#include "cpu/pass.h"
#include "cpu/query_side.h"
#include "cpu/sink.h"

enum { UNIT_CHAINS = sizeof((ordo_unit *)0)->key / sizeof(int32_t) };

typedef struct backward_job {
    ordo_cpu_pass pass;
    ordo_query_side rows;
    int parts;              /* parts of a chain, at most */
    ordo_handoff *handoffs; /* (unit, chain, part), if there is more than one part */
    atomic_llong next;
} backward_job;

/* One worker's panels. */
typedef struct panels {
    float *kt, *vt, *k, *dk, *dv, *s, *dp, *part;
    float *slots;   /* partials for the thread that has the chain's next part */
    uint32_t *seen; /* elements of a partial block */
    float *bias;
    uint32_t *keep;
    uint64_t random;
    int ld_q, ld_k, groups; /* leading dimensions of rows and of columns; 16 rows per group */
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
    w->dv = ordo_arena_take(&arena, (rows > keys ? rows : keys) * v_ld); /* first a tile of o */
    w->s = ordo_arena_take(&arena, keys * (size_t)w->ld_s);
    w->dp = ordo_arena_take(&arena, keys * (size_t)w->ld_s);
    w->part = ordo_arena_take(&arena, rows * ld);
    w->slots = ordo_arena_take(&arena, job->parts > 1 ? ORDO_SLOTS * rows * ld : 0);
    w->seen = ordo_arena_take(&arena, p->lists ? ORDO_BLOCK / 2 * (size_t)w->groups : 0);
    w->bias = ordo_arena_take(&arena, ordo_cpu_bias_floats(p, keys, w->groups));
    w->keep = ordo_arena_take(&arena, ordo_cpu_keep_words(keys, w->groups));
    return arena.used;
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

/* ---- chains ---- */

typedef struct chain {
    int64_t b, kv_head;
    ordo_walk walk;
    int32_t j;
    int64_t col; /* its first column */
    int cols;
    bool finite; /* no inf or NaN in its keys and values */
    /* The part of it that this thread has: columns first .. end - 1, and its neighbours. */
    int first, end;
    ordo_handoff *before, *after; /* NULL: none */
    int steps;                    /* done */
} chain;

static ordo_key_tile sums_of(const panels *w, const chain *c)
{
    return (ordo_key_tile) { .b = c->b,
                             .kv_head = c->kv_head,
                             .col = c->col,
                             .first = c->first,
                             .end = ordo_min32(c->end, c->cols),
                             .dk = w->dk,
                             .dv = w->dv };
}

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
    const ordo_key_tile sums = sums_of(w, c);
    ordo_key_begin(p, &sums);
}

typedef struct visit {
    int64_t head;
    int32_t i; /* query tile; -1: none */
} visit;

/* The query side of a step. */
static int64_t place_of(const backward_job *job, const chain *c, int64_t head, int32_t i)
{
    return ordo_query_place(&job->rows, c->b, head, i);
}
static ordo_query_tile rows_at(const backward_job *job, const chain *c, int64_t head, int32_t i)
{
    return ordo_query_tile_at(&job->rows, place_of(job, c, head, i));
}

/* Wait until the query side of a step is there; whether it is finite. */
static bool rows_finite(const backward_job *job, const chain *c, int64_t head, int32_t i)
{
    return ordo_panel_finite(&job->rows.ready[place_of(job, c, head, i)]);
}

/* A tile as the mask leaves it, whose elements stay until the next tile's. */
static ordo_patch bare_patch(const backward_job *job, const panels *w, const chain *c, int64_t head,
                             int32_t i)
{
    ordo_patch patch = ordo_cpu_patch(&job->pass, &c->walk.band, i, c->j, c->b, head, w->ld_s);
    ordo_cpu_patch_elements(&job->pass, c->b, head, &patch, w->seen);
    return patch;
}

/* A tile with its bias and keep bits, which stay likewise. */
static ordo_patch patch_at(const backward_job *job, const panels *w, const chain *c, int64_t head,
                           int32_t i)
{
    const ordo_cpu_pass *p = &job->pass;
    ordo_patch patch = bare_patch(job, w, c, head, i);
    ordo_cpu_patch_narrow(&patch, c->first, c->end);
    ordo_cpu_patch_load(p, c->b, head, &patch, w->bias, w->keep, w->groups);
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
    const ordo_query_tile r = rows_at(job, c, next.head, next.i);
    return (wanted) { .qt = { r.qt, 4 * (size_t)(p->dim * w->ld_q) },
                      .doutt = { r.doutt, 4 * (size_t)(p->v_dim * w->ld_q) },
                      .dout = { r.dout, 4 * rows * (size_t)p->v_ld },
                      .q = { r.q, 4 * rows * (size_t)p->ld } };
}

/* p and ds of a tile, to s and dp. */
static void make_scores(const backward_job *job, const panels *w, const ordo_query_tile *r,
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

/* As ordo_query_blank() does: of rows that saw nothing. */
static void blank_scores(const ordo_scores *z, float *s, float *dp, const float *lse2)
{
    for (int r = 0; r < z->rows; r++)
        for (int c = 0; c < z->cols && lse2[r] == INFINITY; c++)
            s[(ptrdiff_t)c * z->ld + r] = dp[(ptrdiff_t)c * z->ld + r] = 0;
}

/* The products of a step: five, if all gradients are computed. `finite`: no inf or NaN among what
 * is multiplied; `more`: dq_part goes on from what is there. */
static void multiply(const backward_job *job, const panels *w, const ordo_query_tile *r,
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
    if (!finite && patch->scores.partial) {
        const ordo_scores *z = &patch->scores;
        if (p->dk_dv) {
            ordo_cpu_product_careful(z, true, cols, p->v_dim, rows, w->s, ld_s, 1, r->dout, v_ld,
                                     dv, v_ld);
            ordo_cpu_product_careful(z, true, cols, p->dim, rows, w->dp, ld_s, 1, r->q, ld, dk, ld);
        }
        if (!p->dq)
            return;
        if (!more)
            memset(part, 0, (size_t)rows * (size_t)ld * sizeof(float));
        ordo_cpu_product_careful(z, false, rows, p->dim, cols, w->dp, 1, ld_s, key, ld, part, ld);
        ordo_query_blank(part, ld, r->lse2, rows);
        return;
    }
    if (p->dk_dv) {
        k->product(cols, p->v_dim, rows, w->s, ld_s, 1, r->dout, v_ld, dv, v_ld, true, &soon->dout);
        k->product(cols, p->dim, rows, w->dp, ld_s, 1, r->q, ld, dk, ld, true, &soon->q);
    }
    if (!p->dq)
        return;
    k->product(rows, p->dim, cols, w->dp, 1, ld_s, key, ld, part, ld, more, NULL);
    if (!finite)
        ordo_query_blank(part, ld, r->lse2, rows);
}

/* Add dq_part when its turn comes. */
static void add_in_turn(const backward_job *job, panels *w, const chain *c, int64_t head, int32_t i,
                        int rows)
{
    const ordo_cpu_pass *p = &job->pass;
    const ordo_band *band = &c->walk.band;
    const int64_t at = place_of(job, c, head, i);
    const ordo_lists *lists = ordo_cpu_lists(p, c->b, head);
    const int turn =
        lists ? ordo_lists_turn(lists, c->walk.kind, i, c->j) : ordo_walk_turn(&c->walk, i, c->j);
    float *dq = ordo_query_tile_at(&job->rows, at).dq;
    delay(job, w);
    ordo_cpu_wait(&job->rows.turns[at], turn);
    p->kernels->accumulate(rows, job->rows.ld, dq, job->rows.ld, w->part, p->ld, turn == 0);
    if (turn == ordo_query_keys(&job->rows, c->b, head, i) - 1)
        ordo_query_write(&job->rows, c->b, head, (int64_t)i * band->bq, rows, dq);
    atomic_store_explicit(&job->rows.turns[at], turn + 1, memory_order_release);
}

static void step(const backward_job *job, panels *w, chain *c, int64_t head, int32_t i, visit next)
{
    const wanted soon = wanted_by(job, w, c, next);
    const ordo_query_tile r = rows_at(job, c, head, i);
    const ordo_patch patch = patch_at(job, w, c, head, i);
    const size_t floats = (size_t)c->walk.band.bq * (size_t)job->pass.ld;
    const bool finite = rows_finite(job, c, head, i) && c->finite;
    if (!job->pass.dq) {
        if (patch.cols > 0)
            multiply(job, w, &r, &patch, finite, NULL, false, &soon);
        return;
    }
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
    if (w->depth == 1 || t + w->depth > ordo_cpu_steps(&job->pass, &c->walk, c->j) || !c->finite)
        return false;
    const int64_t first = place_of(job, c, head, ordo_cpu_visit(&job->pass, &c->walk, c->j, t));
    for (int32_t x = 0; x < w->depth; x++) {
        const int32_t i = ordo_cpu_visit(&job->pass, &c->walk, c->j, t + x);
        if (place_of(job, c, head, i) != first + x ||
            !ordo_cpu_sees(&job->pass, c->b, head, i, c->j) || !rows_finite(job, c, head, i))
            return false;
        const ordo_patch patch = bare_patch(job, w, c, head, i);
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
    const ordo_query_tile first =
        rows_at(job, c, head, ordo_cpu_visit(&job->pass, &c->walk, c->j, t));
    const wanted none = { 0 };
    for (int32_t x = 0; x < w->depth; x++) {
        const int32_t i = ordo_cpu_visit(&job->pass, &c->walk, c->j, t + x);
        const ordo_query_tile r = rows_at(job, c, head, i);
        const ordo_patch patch = patch_at(job, w, c, head, i);
        make_scores(job, w, &r, &patch, w->s + x * bq, w->dp + x * bq, &none);
    }
    if (p->dk_dv) {
        p->kernels->product(c->cols, p->v_dim, all, w->s, ld_s, 1, first.dout, p->v_ld, w->dv,
                            p->v_ld, true, NULL);
        p->kernels->product(c->cols, p->dim, all, w->dp, ld_s, 1, first.q, p->ld, w->dk, p->ld,
                            true, NULL);
    }
    for (int32_t x = 0; p->dq && x < w->depth; x++) {
        p->kernels->product(bq, p->dim, c->cols, w->dp + x * bq, 1, ld_s, w->k, p->ld, w->part,
                            p->ld, false, NULL);
        add_in_turn(job, w, c, head, ordo_cpu_visit(&job->pass, &c->walk, c->j, t + x), bq);
    }
}

/* The step after head g of visit t: where query heads share the keys, each tile is every head's
 * before the next one is any's. */
static visit visit_after(const backward_job *job, const chain *c, int32_t t, int64_t g)
{
    const int64_t queries = job->pass.queries, head0 = c->kv_head * queries;
    if (g + 1 < queries)
        return (visit) { head0 + g + 1, ordo_cpu_visit(&job->pass, &c->walk, c->j, t) };
    if (t + 1 < ordo_cpu_steps(&job->pass, &c->walk, c->j))
        return (visit) { head0, ordo_cpu_visit(&job->pass, &c->walk, c->j, t + 1) };
    return (visit) { head0, -1 };
}

static void walk_chain(const backward_job *job, panels *w, chain *c)
{
    const int64_t queries = job->pass.queries, head0 = c->kv_head * queries;
    const int32_t steps = ordo_cpu_steps(&job->pass, &c->walk, c->j);
    const bool whole = !c->before && !c->after && c->first == 0 && c->end >= c->cols;
    for (int32_t t = 0; t < steps;) {
        const int32_t i = ordo_cpu_visit(&job->pass, &c->walk, c->j, t);
        const bool many = whole && queries == 1 && together(job, w, c, head0, t);
        if (many)
            steps_together(job, w, c, head0, t);
        else
            for (int64_t g = 0; g < queries; g++)
                if (ordo_cpu_sees(&job->pass, c->b, head0 + g, i, c->j))
                    step(job, w, c, head0 + g, i, visit_after(job, c, t, g));
        t += many ? w->depth : 1;
    }
}

static void run_chain(const backward_job *job, panels *w, chain *c)
{
    begin_chain(job, w, c);
    walk_chain(job, w, c);
    const ordo_key_tile sums = sums_of(w, c);
    ordo_key_end(&job->pass, &sums);
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
        if (parts > 1 && p->dq)
            own = job->handoffs + (number * UNIT_CHAINS + x) * parts;
        c.cols = ordo_min32(bk, s->run.band.kv_len - (int32_t)c.col);
        if (own && part > 0)
            c.before = &own[part - 1];
        if (own && part + 1 < parts)
            c.after = &own[part];
        run_chain(job, w, &c);
    }
}

/* Chains of the pass; none if only dbias is wanted. */
static int64_t all_chains(const ordo_cpu_pass *p)
{
    const ordo_sequence *totals = &p->sequences[p->problem->batch];
    return p->dq || p->dk_dv ? totals->tickets[0] + totals->tickets[1] : 0;
}

static int parts_of(const ordo_cpu_pass *p, int workers)
{
    return ordo_cpu_parts(all_chains(p), workers, p->plan->backward_tile.k);
}

static void work(void *context, int worker, int workers, void *scratch)
{
    backward_job *job = context;
    const int parts = parts_of(&job->pass, workers);
    const int64_t preparations = ordo_query_side_tickets(&job->rows),
                  chains = all_chains(&job->pass);
    panels w;
    lay_out(job, scratch, &w);
    w.random = (uint64_t)worker + 1;
    for (;;) {
        int64_t ticket = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (ticket < preparations)
            ordo_query_side_prepare(&job->rows, ticket, w.dv);
        else if ((ticket -= preparations) < chains * parts)
            draw(job, ticket / parts, (int)(ticket % parts), parts, &w);
        else
            return;
    }
}

/* ---- */

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
    ordo_query_side_open(&job->rows, p);
    const int64_t tickets = ordo_query_side_tickets(&job->rows) + parts;
    ORDO_TRY(ordo_pool_run((int)(tickets < threads ? tickets + (tickets == 0) : threads), bytes,
                           work, job));
    ORDO_TRY(ordo_cpu_bias_gradient(&job->rows));
    return ordo_cpu_sink_gradient(&job->rows);
}

ordo_status ordo_cpu_backward(const ordo_plan *plan, const ordo_call *call)
{
    backward_job job = { 0 };
    ordo_status status = ordo_cpu_pass_open(&job.pass, plan, call);
    if (status == ORDO_OK)
        status = ordo_cpu_lists_open(&job.pass, plan->backward_tile);
    if (status == ORDO_OK)
        status = run(&job);
    free(job.handoffs);
    ordo_cpu_pass_close(&job.pass);
    return status;
}
