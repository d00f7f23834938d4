/* backward.c: dk and dv of a key tile, and dq of a query tile, in the order of the backward
 * kernels.
 *
 * A visit is a tile of queries of one head met by a tile of keys:
 *
 *   P = exp2(S scale - lse),  dS = P (dP - delta),  both in 16 bits
 *
 * dk and dv of a key tile add dS^T Q and P^T dO over its visits: the query tiles in the plan's
 * walk, at each the query heads of the group, rows ascending. dq of a query tile adds dS K over the
 * key tiles:
 *
 *   flash      the sum over the keys of a tile begins at zero; the partial sums are added in f32 in
 *              the order of the plan's turns; dS comes from P before its rounding
 *   by phases  one sum over all keys, ascending; dS comes from P after its rounding, and is +0
 * where the mask hides it
 *
 * dbias of a tile adds dS of the logits in f32, from P before its rounding, as ordo/attention.h
 * says. The kept elements of dropout are scaled in the sum of a sequence. */
#include "emulator/units.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "emulator/product.h"
#include "emulator/repair.h"
#include "emulator/special.h"
#include "emulator/tiles.h"
#include "plan/issue.h"

typedef struct backward {
    const ordo_emulator_pass *pass;
    int64_t b;
    int rows, keys;                 /* rows and keys of a visit */
    bool of_logits;                 /* dS is the gradient of logits in f32, for dbias */
    float *sum, *all;               /* rows x keys, of dbias: of a sequence, of all */
    ordo_emulator_tile q, dout;     /* rows x columns */
    ordo_emulator_tile k;           /* keys x columns */
    ordo_emulator_tile kt, vt;      /* columns x keys */
    ordo_emulator_tile pt, dst;     /* keys x rows */
    ordo_emulator_tile ds;          /* rows x keys */
    float *s, *dp;                  /* rows x keys */
    float *dk, *dv;                 /* keys x columns */
    float *dq, *partial;            /* rows x columns */
    float *lse2, *delta;            /* rows */
    uint16_t *p_halves, *ds_halves; /* rows x keys */
    uint16_t *transposed, *row;
    int32_t *order; /* key tiles of a query tile, by turn */
} backward;

static size_t lay_out(const ordo_emulator_pass *pass, void *memory, backward *w)
{
    ordo_emulator_arena arena = { memory, 0 };
    const int rows = pass->backward.rows, keys = pass->backward.keys;
    const size_t wide = (size_t)pass->wide, v_wide = (size_t)pass->v_wide;
    const size_t most = wide > v_wide ? wide : v_wide, scores = (size_t)rows * (size_t)keys;
    const size_t key_tiles = (size_t)(pass->problem->kv_len / keys + 1);
    w->rows = rows;
    w->keys = keys;
    ordo_emulator_tile_take(&arena, &w->q, rows, pass->wide, pass->dtype);
    ordo_emulator_tile_take(&arena, &w->dout, rows, pass->v_wide, pass->dtype);
    ordo_emulator_tile_take(&arena, &w->k, keys, pass->wide, pass->dtype);
    ordo_emulator_tile_take(&arena, &w->kt, pass->wide, keys, pass->dtype);
    ordo_emulator_tile_take(&arena, &w->vt, pass->v_wide, keys, pass->dtype);
    ordo_emulator_tile_take(&arena, &w->pt, keys, rows, pass->dtype);
    ordo_emulator_tile_take(&arena, &w->dst, keys, rows, pass->dtype);
    ordo_emulator_tile_take(&arena, &w->ds, rows, keys, pass->dtype);
    w->s = ordo_emulator_take(&arena, scores * sizeof *w->s);
    w->dp = ordo_emulator_take(&arena, scores * sizeof *w->dp);
    w->dk = ordo_emulator_take(&arena, (size_t)keys * wide * sizeof *w->dk);
    w->dv = ordo_emulator_take(&arena, (size_t)keys * v_wide * sizeof *w->dv);
    w->dq = ordo_emulator_take(&arena, (size_t)rows * wide * sizeof *w->dq);
    w->partial = ordo_emulator_take(&arena, (size_t)rows * wide * sizeof *w->partial);
    w->lse2 = ordo_emulator_take(&arena, (size_t)rows * sizeof *w->lse2);
    w->delta = ordo_emulator_take(&arena, (size_t)rows * sizeof *w->delta);
    w->p_halves = ordo_emulator_take(&arena, scores * sizeof *w->p_halves);
    w->ds_halves = ordo_emulator_take(&arena, scores * sizeof *w->ds_halves);
    w->transposed = ordo_emulator_take(&arena, (most > (size_t)rows ? most : (size_t)rows) *
                                                   (size_t)keys * sizeof *w->transposed);
    w->row = ordo_emulator_take(&arena, 2 * most * sizeof *w->row);
    const size_t bias = pass->call->dbias ? scores : 0;
    w->sum = ordo_emulator_take(&arena, bias * sizeof *w->sum);
    w->all = ordo_emulator_take(&arena, bias * sizeof *w->all);
    w->order = ordo_emulator_take(&arena, key_tiles * sizeof *w->order);
    return arena.used;
}

size_t ordo_emulator_backward_bytes(const ordo_emulator_pass *pass)
{
    backward w;
    return lay_out(pass, NULL, &w);
}

/* ---- walks ---- */

/* The walk of the chains of a key head. By phases there are two: upwards and downwards. */
static ordo_walk walk_of(const ordo_emulator_pass *pass, int64_t b, int64_t kv_head)
{
    const ordo_emulator_sequence *s = &pass->sequences[b];
    ordo_run run = ordo_plan_run(pass->plan, 1, s->q_len, s->kv_len);
    const bool dense = pass->problem->layout == ORDO_DENSE;
    run.band.bq = pass->backward.rows;
    run.band.bk = pass->backward.keys;
    if (!pass->backward.flash)
        run.order =
            run.order == ORDO_ORDER_DESCENDING ? ORDO_ORDER_DESCENDING : ORDO_ORDER_ASCENDING;
    return ordo_run_walk(&run, (int32_t)(dense ? b * run.kv_heads + kv_head : kv_head));
}

/* Steps of key tile j; with lists some of them are left out. */
static int32_t steps_of(const ordo_emulator_pass *pass, const ordo_walk *walk, int32_t j)
{
    return pass->lists ? walk->nq : ordo_walk_steps(walk, j);
}

static int32_t visit_of(const ordo_emulator_pass *pass, const ordo_walk *walk, int32_t j, int32_t t)
{
    return pass->lists ? ordo_lists_visit(walk->nq, walk->kind, t) : ordo_walk_visit(walk, j, t);
}

static bool meet(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t i, int32_t j)
{
    const ordo_lists *lists = ordo_emulator_lists(pass, b, head);
    const int32_t block = j * pass->backward.keys / ORDO_BLOCK;
    return !lists || ordo_lists_turn(lists, ORDO_WALK_ASCENDING, i, block) >= 0;
}

/* The key tiles of query tile i in the order in which they add to it; how many. */
static int32_t order_of(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t i,
                        int32_t *order)
{
    const ordo_walk walk = walk_of(pass, b, head / pass->group);
    const ordo_lists *lists = ordo_emulator_lists(pass, b, head);
    const ordo_span keys = ordo_band_keys(&walk.band, i);
    int32_t count = 0;
    for (int32_t j = keys.first; j <= keys.last; j++) {
        if (!meet(pass, b, head, i, j))
            continue;
        const int32_t turn = !pass->backward.flash ? count
                             : lists               ? ordo_lists_turn(lists, walk.kind, i, j)
                                                   : ordo_walk_turn(&walk, i, j);
        order[turn] = j;
        count++;
    }
    return count;
}

int64_t ordo_emulator_key_scores(const ordo_emulator_pass *pass, int64_t b, int64_t kv_head,
                                 int32_t j)
{
    const ordo_walk walk = walk_of(pass, b, kv_head);
    int64_t visits = 0;
    for (int32_t t = 0; t < steps_of(pass, &walk, j); t++)
        for (int64_t g = 0; g < pass->group; g++)
            visits += meet(pass, b, kv_head * pass->group + g, visit_of(pass, &walk, j, t), j);
    return visits * pass->backward.rows * pass->backward.keys;
}

int64_t ordo_emulator_query_scores(const ordo_emulator_pass *pass, int64_t b, int64_t head,
                                   int32_t i)
{
    const ordo_walk walk = walk_of(pass, b, head / pass->group);
    const ordo_span keys = ordo_band_keys(&walk.band, i);
    int64_t visits = 0;
    for (int32_t j = keys.first; j <= keys.last; j++)
        visits += meet(pass, b, head, i, j);
    return visits * pass->backward.rows * pass->backward.keys;
}

/* ---- a visit ---- */

/* One row of a visit. */
typedef struct visit_row {
    int64_t b, head;
    int32_t row, key0;
    float lse2, delta;
    uint32_t seen[8];
} visit_row;

static void hide(float *x, int n, const uint32_t *seen, float value)
{
    for (int j = 0; j < n; j++)
        if (!ordo_emulator_bit(seen, j))
            x[j] = value;
}

/* P in f32 from scores. Flash hides before lse is subtracted, so that an lse of NaN shows. */
static void probabilities(const backward *w, const visit_row *r, float *x)
{
    const ordo_emulator_pass *pass = w->pass;
    if (pass->has_rule)
        ordo_emulator_apply_rule(pass, x, w->keys, r->b, r->head, r->row, r->key0);
    if (pass->backward.flash)
        hide(x, w->keys, r->seen, -INFINITY);
    for (int j = 0; j < w->keys; j++)
        x[j] = fmaf(x[j], pass->scale_log2, -r->lse2);
    if (!pass->backward.flash)
        hide(x, w->keys, r->seen, -INFINITY);
    ordo_emulator_ex2_row(x, w->keys);
}

static float half_value(const ordo_emulator_pass *pass, uint16_t x)
{
    return pass->f16 ? ordo_f32_from_f16(x) : ordo_f32_from_bf16(x);
}

/* The derivative of softcap at column j; 1 without. */
static float cap_at(const backward *w, const visit_row *r, float p, int j)
{
    const ordo_emulator_pass *pass = w->pass;
    if (!(pass->rule.cap > 0.0f))
        return 1.0f;
    return ordo_emulator_cap_gradient(pass, fabsf(p), r->lse2, r->b, r->head, r->row, r->key0 + j);
}

/* dS from dP (in y), flash: P in f32. A dropped NaN stays one. The gradient of a logit is 0 where
 * it is hidden, and in a row that saw nothing, whatever else is NaN. */
static void flash_row(const backward *w, const visit_row *r, const uint32_t *kept, float *x,
                      float *y, uint16_t *p_halves)
{
    const ordo_emulator_pass *pass = w->pass;
    for (int j = 0; j < w->keys; j++) {
        const float p = x[j];
        const bool dropped = kept && !ordo_emulator_bit(kept, j);
        if (dropped && p == p)
            x[j] = 0.0f;
        y[j] = kept ? fmaf(x[j], y[j], -(p * r->delta)) : p * (y[j] - r->delta);
        if (pass->rule.cap > 0.0f && !w->of_logits)
            y[j] *= cap_at(w, r, p, j);
        if (w->of_logits && (!ordo_emulator_bit(r->seen, j) || r->lse2 == INFINITY))
            y[j] = 0.0f;
    }
    ordo_emulator_round_row(p_halves, x, w->keys, pass->dtype);
}

/* The same by phases: P in 16 bits, with the derivative of softcap in it. */
static void phase_row(const backward *w, const visit_row *r, const uint32_t *kept, float *x,
                      float *y, uint16_t *p_halves)
{
    const ordo_emulator_pass *pass = w->pass;
    const bool capped = pass->rule.cap > 0.0f;
    ordo_emulator_round_row(p_halves, x, w->keys, pass->dtype);
    for (int j = 0; j < w->keys; j++) {
        const uint16_t half =
            capped ? ordo_emulator_round(x[j] * cap_at(w, r, x[j], j), pass->dtype) : p_halves[j];
        const bool dropped = kept && !ordo_emulator_bit(kept, j);
        if (dropped)
            y[j] *= 0.0f;
        if (dropped && x[j] == x[j])
            p_halves[j] = 0;
        y[j] = (y[j] - r->delta) * half_value(pass, half);
    }
    hide(y, w->keys, r->seen, 0.0f);
}

/* P and dS of the queries from row0 on and the keys from key0 on, whose operands are loaded. */
static void gradients(backward *w, int64_t head, int32_t row0, int32_t key0)
{
    const ordo_emulator_pass *pass = w->pass;
    ordo_emulator_product(w->s, w->keys, w->rows, &w->q, 0, 0, &w->kt, 0, 0, w->keys, pass->wide,
                          false);
    ordo_emulator_product(w->dp, w->keys, w->rows, &w->dout, 0, 0, &w->vt, 0, 0, w->keys,
                          pass->v_wide, false);
    for (int i = 0; i < w->rows; i++) {
        const size_t at = (size_t)i * (size_t)w->keys;
        uint32_t bits[8];
        visit_row r = {
            .b = w->b,
            .head = head,
            .row = row0 + i,
            .key0 = key0,
            .lse2 = w->lse2[i],
            .delta = w->delta[i],
        };
        ordo_emulator_sees(pass, w->b, head, r.row, key0, w->keys, r.seen);
        if (pass->dropout)
            ordo_emulator_kept(pass, w->b, head, r.row, key0, w->keys, bits);
        probabilities(w, &r, w->s + at);
        (pass->backward.flash || w->of_logits ? flash_row : phase_row)(
            w, &r, pass->dropout ? bits : NULL, w->s + at, w->dp + at, w->p_halves + at);
        ordo_emulator_round_row(w->ds_halves + at, w->dp + at, w->keys, pass->dtype);
    }
}

static void load_queries(backward *w, int64_t head, int32_t row0)
{
    const ordo_emulator_pass *pass = w->pass;
    ordo_emulator_load(pass, &w->q, &pass->call->q, ORDO_EMULATOR_QUERIES, pass->dim, w->b, head,
                       row0, w->rows);
    ordo_emulator_load(pass, &w->dout, &pass->call->dout, ORDO_EMULATOR_QUERIES, pass->v_dim, w->b,
                       head, row0, w->rows);
    ordo_emulator_statistics(pass, w->b, head, row0, w->rows, w->lse2, w->delta);
}

static void load_keys(backward *w, int64_t kv_head, int32_t key0)
{
    const ordo_emulator_pass *pass = w->pass;
    ordo_emulator_load_transposed(pass, &w->kt, &pass->call->k, ORDO_EMULATOR_KEYS, pass->dim, w->b,
                                  kv_head, key0, w->keys, w->transposed);
    ordo_emulator_load_transposed(pass, &w->vt, &pass->call->v, ORDO_EMULATOR_KEYS, pass->v_dim,
                                  w->b, kv_head, key0, w->keys, w->transposed);
}

static uint16_t *ds_at(const backward *w, const ordo_emulator_ds *ds, int64_t head, int32_t i,
                       int32_t j)
{
    return ds->data + (((head % w->pass->group) * ds->nq + i) * ds->nk + j) * w->rows * w->keys;
}

/* ---- dk and dv ---- */

/* One of dk and dv: a tile of sums and where they go. */
typedef struct key_sums {
    const char *name;
    float *sums; /* sums of the tile, `wide` columns to a row */
    int wide, dim;
    float scale;
    const ordo_tensor *tensor;
    float *carried; /* carried sums of the call; NULL: none */
} key_sums;

static float *carried_row(const backward *w, const key_sums *x, int64_t kv_head, int32_t key)
{
    const ordo_problem *p = w->pass->problem;
    const ordo_emulator_sequence *s = &w->pass->sequences[w->b];
    const int64_t row = (p->layout == ORDO_PACKED ? s->kv_row : w->b * p->kv_len) + key;
    return x->carried + (row * p->kv_heads + kv_head) * x->dim;
}

static void begin_sums(const backward *w, const key_sums *x, int64_t kv_head, int32_t key0)
{
    const bool in = w->pass->call->carry & ORDO_CARRY_IN;
    memset(x->sums, 0, (size_t)w->keys * (size_t)x->wide * sizeof *x->sums);
    for (int n = 0; in && n < w->keys && key0 + n < w->pass->sequences[w->b].kv_len; n++)
        memcpy(x->sums + (ptrdiff_t)n * x->wide, carried_row(w, x, kv_head, key0 + n),
               (size_t)x->dim * sizeof *x->sums);
}

static bool finite_row(const float *x, int n)
{
    for (int c = 0; c < n; c++)
        if (!isfinite(x[c]))
            return false;
    return true;
}

/* The results of one key, from both sums; what is not finite is computed again. */
static void end_key(const backward *w, const key_sums x[2], int64_t kv_head, int32_t key, int n,
                    bool seen)
{
    const ordo_emulator_pass *pass = w->pass;
    const bool in = pass->call->carry & ORDO_CARRY_IN, out = pass->call->carry & ORDO_CARRY_OUT;
    uint16_t *halves[2];
    float *carried[2] = { NULL, NULL };
    bool broken[2];
    for (int y = 0; y < 2; y++) {
        float *sums = x[y].sums + (ptrdiff_t)n * x[y].wide;
        halves[y] =
            w->row + y * (w->pass->wide > w->pass->v_wide ? w->pass->wide : w->pass->v_wide);
        if (in || out)
            carried[y] = carried_row(w, &x[y], kv_head, key);
        if (out) {
            broken[y] = seen && !finite_row(sums, x[y].dim);
            if (!broken[y])
                memcpy(carried[y], sums, (size_t)x[y].dim * sizeof *sums);
            continue;
        }
        for (int c = 0; c < x[y].dim; c++)
            sums[c] *= x[y].scale;
        ordo_emulator_round_row(halves[y], sums, x[y].dim, pass->dtype);
        broken[y] = ordo_emulator_broken(pass, halves[y], x[y].dim);
    }
    if ((broken[0] || broken[1]) &&
        !ordo_emulator_repair_key(
            pass, w->b, kv_head, key, in ? carried[0] : NULL, in ? carried[1] : NULL,
            !out && broken[0] ? halves[0] : NULL, !out && broken[1] ? halves[1] : NULL,
            out && broken[0] ? carried[0] : NULL, out && broken[1] ? carried[1] : NULL)) {
        *pass->unknown = true;
        return;
    }
    for (int y = 0; y < 2 && !out; y++) {
        const ordo_emulator_rows rows =
            ordo_emulator_rows_of(pass, x[y].tensor, ORDO_EMULATOR_KEYS, x[y].dim, w->b, kv_head);
        ordo_emulator_put(pass, x[y].name, w->b, kv_head, key, rows.data + key * rows.stride,
                          halves[y], x[y].dim);
    }
}

void ordo_emulator_key_unit(const ordo_emulator_pass *pass, int64_t b, int64_t kv_head, int32_t j,
                            const ordo_emulator_ds *ds, void *memory)
{
    backward w = { .pass = pass, .b = b };
    (void)lay_out(pass, memory, &w);
    const ordo_call *c = pass->call;
    const float scale = (float)pass->problem->scale;
    const key_sums sums[2] = {
        { "dk", w.dk, pass->wide, pass->dim, pass->dropout ? scale * pass->keep_scale : scale,
          &c->dk, c->dk_sums },
        { "dv", w.dv, pass->v_wide, pass->v_dim, pass->keep_scale, &c->dv, c->dv_sums },
    };
    const ordo_walk walk = walk_of(pass, b, kv_head);
    const int32_t key0 = j * w.keys, steps = steps_of(pass, &walk, j);
    bool seen = false;
    begin_sums(&w, &sums[0], kv_head, key0);
    begin_sums(&w, &sums[1], kv_head, key0);
    load_keys(&w, kv_head, key0);
    for (int32_t t = 0; t < steps; t++)
        for (int64_t head = kv_head * pass->group; head < (kv_head + 1) * pass->group; head++) {
            const int32_t i = visit_of(pass, &walk, j, t);
            if (!meet(pass, b, head, i, j))
                continue;
            seen = true;
            load_queries(&w, head, i * w.rows);
            gradients(&w, head, i * w.rows, key0);
            if (ds && ds->data)
                memcpy(ds_at(&w, ds, head, i, j), w.ds_halves,
                       (size_t)w.rows * (size_t)w.keys * sizeof *w.ds_halves);
            ordo_emulator_transpose(w.transposed, w.p_halves, w.rows, w.keys);
            for (int n = 0; n < w.keys; n++)
                ordo_emulator_tile_set(&w.pt, n, w.transposed + (ptrdiff_t)n * w.rows, w.rows);
            ordo_emulator_transpose(w.transposed, w.ds_halves, w.rows, w.keys);
            for (int n = 0; n < w.keys; n++)
                ordo_emulator_tile_set(&w.dst, n, w.transposed + (ptrdiff_t)n * w.rows, w.rows);
            ordo_emulator_product(w.dv, pass->v_wide, w.keys, &w.pt, 0, 0, &w.dout, 0, 0,
                                  pass->v_wide, w.rows, true);
            ordo_emulator_product(w.dk, pass->wide, w.keys, &w.dst, 0, 0, &w.q, 0, 0, pass->wide,
                                  w.rows, true);
        }
    for (int n = 0; n < w.keys && key0 + n < pass->sequences[b].kv_len; n++)
        end_key(&w, sums, kv_head, key0 + n, n, seen);
}

/* ---- dq ---- */

/* The keys of tile j over which dS K runs: by phases only blocks of 64 that the query tile sees. */
static ordo_span summed(const backward *w, int32_t i, int32_t j)
{
    enum { STEP = 64 };
    const ordo_emulator_sequence *s = &w->pass->sequences[w->b];
    const ordo_band band = { s->q_len, s->kv_len, w->rows, STEP, s->low, s->high };
    const ordo_span keys = ordo_band_keys(&band, i);
    if (w->pass->backward.flash)
        return (ordo_span) { 0, w->keys };
    return (ordo_span) { ordo_max32(0, keys.first * STEP - j * w->keys),
                         ordo_min32(w->keys, (keys.last + 1) * STEP - j * w->keys) };
}

static void add_keys(backward *w, int64_t head, int32_t i, int32_t j, bool first,
                     const ordo_emulator_ds *ds)
{
    const ordo_emulator_pass *pass = w->pass;
    const int64_t kv_head = head / pass->group;
    const size_t count = (size_t)w->rows * (size_t)pass->wide;
    const bool flash = pass->backward.flash;
    const uint16_t *halves = w->ds_halves;
    if (ds && ds->data) {
        halves = ds_at(w, ds, head, i, j);
    } else {
        load_keys(w, kv_head, j * w->keys);
        gradients(w, head, i * w->rows, j * w->keys);
    }
    ordo_emulator_load(pass, &w->k, &pass->call->k, ORDO_EMULATOR_KEYS, pass->dim, w->b, kv_head,
                       j * w->keys, w->keys);
    for (int r = 0; r < w->rows; r++)
        ordo_emulator_tile_set(&w->ds, r, halves + (ptrdiff_t)r * w->keys, w->keys);
    const ordo_span keys = summed(w, i, j);
    ordo_emulator_product(flash && !first ? w->partial : w->dq, pass->wide, w->rows, &w->ds, 0,
                          keys.first, &w->k, keys.first, 0, pass->wide, keys.last - keys.first,
                          !flash);
    for (size_t x = 0; flash && !first && x < count; x++)
        w->dq[x] += w->partial[x];
}

void ordo_emulator_query_unit(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t i,
                              const ordo_emulator_ds *ds, void *memory)
{
    backward w = { .pass = pass, .b = b };
    (void)lay_out(pass, memory, &w);
    const float scale = (float)pass->problem->scale;
    const float factor = pass->dropout ? scale * pass->keep_scale : scale;
    const ordo_emulator_rows dq =
        ordo_emulator_rows_of(pass, &pass->call->dq, ORDO_EMULATOR_QUERIES, pass->dim, b, head);
    const int32_t count = order_of(pass, b, head, i, w.order);
    memset(w.dq, 0, (size_t)w.rows * (size_t)pass->wide * sizeof *w.dq);
    if (!ds || !ds->data)
        load_queries(&w, head, i * w.rows);
    for (int32_t n = 0; n < count; n++)
        add_keys(&w, head, i, w.order[n], n == 0, ds);
    for (int r = 0; r < w.rows && i * w.rows + r < pass->sequences[b].q_len; r++) {
        const int32_t row = i * w.rows + r;
        float *x = w.dq + (ptrdiff_t)r * pass->wide;
        for (int c = 0; c < pass->dim; c++)
            x[c] *= factor;
        ordo_emulator_round_row(w.row, x, pass->dim, pass->dtype);
        if (ordo_emulator_broken(pass, w.row, pass->dim) &&
            !ordo_emulator_repair_query(pass, b, head, row, w.row)) {
            *pass->unknown = true;
            continue;
        }
        ordo_emulator_put(pass, "dq", b, head, row, dq.data + row * dq.stride, w.row, pass->dim);
    }
}

/* ---- dbias ---- */

/* Add dS of one head of sequence w->b to its sum. */
static void add_logits(backward *w, int64_t head, int32_t i, int32_t j)
{
    const ordo_walk walk = walk_of(w->pass, w->b, head / w->pass->group);
    const ordo_span keys = ordo_band_keys(&walk.band, i);
    if (j < keys.first || j > keys.last || !meet(w->pass, w->b, head, i, j))
        return;
    load_queries(w, head, i * w->rows);
    load_keys(w, head / w->pass->group, j * w->keys);
    gradients(w, head, i * w->rows, j * w->keys);
    for (ptrdiff_t x = 0; x < (ptrdiff_t)w->rows * w->keys; x++)
        w->sum[x] += w->dp[x];
}

void ordo_emulator_bias_unit(const ordo_emulator_pass *pass, int64_t sequence, int64_t head,
                             int32_t i, void *memory)
{
    const ordo_problem *p = pass->problem;
    const int64_t b0 = p->bias.per_sequence ? sequence : 0;
    const int64_t b_end = p->bias.per_sequence ? sequence + 1 : p->batch;
    const int64_t h0 = p->bias.per_head ? head : 0;
    const int64_t h_end = p->bias.per_head ? head + 1 : p->heads;
    backward w = { .pass = pass, .of_logits = true };
    (void)lay_out(pass, memory, &w);
    const size_t count = (size_t)w.rows * (size_t)w.keys;
    for (int32_t j = 0; j * w.keys < p->kv_len; j++) {
        memset(w.all, 0, count * sizeof *w.all);
        for (w.b = b0; w.b < b_end; w.b++) {
            memset(w.sum, 0, count * sizeof *w.sum);
            for (int64_t h = h0; h < h_end && i * w.rows < pass->sequences[w.b].q_len; h++)
                add_logits(&w, h, i, j);
            for (size_t x = 0; x < count; x++)
                w.all[x] += w.sum[x] * pass->keep_scale;
        }
        for (int32_t r = 0; r < w.rows && i * w.rows + r < p->q_len; r++)
            for (int32_t c = 0; c < w.keys && j * w.keys + c < p->kv_len; c++)
                ordo_emulator_put_bias(pass, sequence, head, i * w.rows + r, j * w.keys + c,
                                       w.all[r * w.keys + c]);
    }
}

int64_t ordo_emulator_bias_scores(const ordo_emulator_pass *pass, int32_t i)
{
    const ordo_problem *p = pass->problem;
    const int64_t sequences = p->bias.per_sequence ? 1 : p->batch;
    const int64_t heads = p->bias.per_head ? 1 : p->heads, rows = pass->backward.rows;
    const int64_t left = p->q_len - i * rows;
    return sequences * heads * (left < rows ? left : rows) * p->kv_len;
}
