/* forward.c: attention forward on CPU threads.
 *
 * An item is a block of query rows of one head, up to eight tiles, that meet each key tile one
 * after the other while it is near. Rows are independent; a row meets its key tiles upwards, with
 * a running maximum m (in powers of two), sum l and output o:
 *
 *   s = q k^T    p = exp2(s scale2 - m)    o = o alpha + p v    l = l alpha + sum p
 *
 * Where several items meet a key tile, keys and values become panels in the workspace once for all
 * of them; else each item converts its own. Panels, then items are drawn from one counter, for
 * causal masks the longest items first; where all are equally long and few, the last ones are
 * single tiles, so that threads finish together. How rows are gathered into items changes no bit.
 */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/pages.h"
#include "base/pool.h"
#include "base/status.h"
#include "cpu/blocks.h"
#include "cpu/sink.h"
#include "cpu/wait.h"

typedef struct forward_job {
    ordo_cpu_pass pass;
    int tiles;    /* query tiles an item */
    bool singles; /* but one an item in the first quarter of a sequence, which is drawn last */
    int64_t items;
    /* Panels that items share, if they do: (key head, tile), transposed keys and values. */
    bool shared;
    int64_t key_tiles; /* key tiles of all sequences */
    float *kt, *v;
    atomic_int *ready; /* (key head, tile): an ordo_panel_state */
    atomic_llong next;
} forward_job;

/* One worker's panels; its own kt and v if keys are not shared. */
typedef struct panels {
    float *qt, *o, *s, *kt, *v, *m, *l, *alpha;
    void *stored;   /* a tile of keys or values whose rows are not all in one place */
    uint32_t *seen; /* elements of a partial block */
    float *bias;
    uint32_t *keep;
    int ld_q, ld_k, groups; /* leading dimensions of rows and of columns; 16 rows per group */
} panels;

/* Whether a key tile may lie in several places, or have columns that are not stored. Its items then
 * convert their own keys. */
static bool scattered(const ordo_cpu_pass *pass)
{
    return ordo_paged(pass->problem) || pass->call->kv_starts;
}

/* Lay the panels out in `memory`; returns the bytes they take. */
static size_t lay_out(const forward_job *job, void *memory, panels *w)
{
    const ordo_cpu_pass *p = &job->pass;
    const size_t bq = (size_t)p->plan->forward_tile.q, bk = (size_t)p->plan->forward_tile.k;
    const size_t rows = (bq + 15) / 16 * 16, tiles = (size_t)job->tiles;
    w->ld_k = ordo_panel_row((int64_t)bk);
    w->groups = (int)(bq + 15) / 16;
    ordo_arena arena = { memory, 0 };
    w->ld_q = ordo_panel_row((int64_t)bq);
    w->qt = ordo_arena_take(&arena, tiles * (size_t)p->dim * (size_t)w->ld_q);
    w->o = ordo_arena_take(&arena, tiles * rows * (size_t)p->v_ld);
    w->s = ordo_arena_take(&arena, bk * (size_t)w->ld_q);
    w->kt = ordo_arena_take(&arena, job->shared ? 0 : (size_t)p->dim * (size_t)w->ld_k);
    w->v = ordo_arena_take(&arena, job->shared ? 0 : bk * (size_t)p->v_ld);
    w->m = ordo_arena_take(&arena, tiles * rows);
    w->l = ordo_arena_take(&arena, tiles * rows);
    w->alpha = ordo_arena_take(&arena, rows);
    w->seen = ordo_arena_take(&arena, p->lists ? ORDO_BLOCK / 32 * rows : 0);
    const int most = p->dim > p->v_dim ? p->dim : p->v_dim;
    w->stored = ordo_arena_take(&arena, scattered(p) ? bk * (size_t)most : 0);
    w->bias = ordo_arena_take(&arena, ordo_cpu_bias_floats(p, bk, w->groups));
    w->keep = ordo_arena_take(&arena, ordo_cpu_keep_words(bk, w->groups));
    return arena.used;
}

static ordo_band forward_band(const ordo_cpu_pass *p, int64_t b)
{
    ordo_band band = p->sequences[b].run.band;
    band.bq = (int32_t)p->plan->forward_tile.q;
    band.bk = (int32_t)p->plan->forward_tile.k;
    return band;
}

/* ---- one item ---- */

typedef struct item {
    int64_t b, head;
    int32_t first, last; /* query tiles, forward */
    ordo_band band;      /* band of its sequence, in forward tiles */
} item;

static size_t panel_row(const forward_job *job, int32_t tile)
{
    return (size_t)(tile * ((job->pass.plan->forward_tile.q + 15) / 16 * 16));
}

/* Queries of a tile, transposed: dim x rows. */
static float *queries(const forward_job *job, const panels *w, int32_t tile)
{
    return w->qt + (size_t)tile * (size_t)job->pass.dim * (size_t)w->ld_q;
}

static void begin(const forward_job *job, const panels *w, const item *it)
{
    const ordo_cpu_pass *p = &job->pass;
    for (int32_t i = it->first; i <= it->last; i++) {
        const size_t at = panel_row(job, i - it->first);
        const int64_t row = (int64_t)i * it->band.bq;
        const int rows = ordo_min32(it->band.bq, it->band.q_len - (int32_t)row);
        const ordo_rows q =
            ordo_cpu_rows(p, &p->call->q, ORDO_QUERIES, p->dim, it->b, row, it->head);
        float *qt = queries(job, w, i - it->first);
        if (!p->kernels->load_transposed(qt, w->ld_q, q.data, p->problem->dtype, q.stride, rows,
                                         p->dim))
            ordo_cpu_quiet(qt, p->dim, w->ld_q, rows);
        memset(w->o + at * (size_t)p->v_ld, 0, (size_t)rows * (size_t)p->v_ld * sizeof(float));
        for (size_t r = at; r < at + (size_t)rows; r++) {
            w->m[r] = -INFINITY;
            w->l[r] = 0;
        }
    }
}

/* ---- keys ---- */

typedef struct key_panels {
    float *kt, *v;
    bool finite; /* no inf or NaN in the values */
} key_panels;

static int key_columns(const ordo_band *band, int32_t j)
{
    return ordo_min32(band->bk, band->kv_len - j * band->bk);
}

/* The columns of a tile from `col` on, copied to `stored` if they are scattered; those that are not
 * stored are 0. */
static ordo_rows key_rows(const ordo_cpu_pass *p, const panels *w, const ordo_tensor *tensor,
                          int dim, int64_t b, int64_t col, int cols, int64_t kv_head)
{
    if (!scattered(p))
        return ordo_cpu_rows(p, tensor, ORDO_KEYS, dim, b, col, kv_head);
    const size_t bytes = (size_t)dim * (p->problem->dtype == ORDO_F32 ? 4 : 2);
    for (int c = 0; c < cols; c++) {
        char *to = (char *)w->stored + (size_t)c * bytes;
        if (col + c < p->sequences[b].kv_start)
            memset(to, 0, bytes);
        else
            memcpy(to, ordo_cpu_rows(p, tensor, ORDO_KEYS, dim, b, col + c, kv_head).data, bytes);
    }
    return (ordo_rows) { w->stored, dim };
}

/* Key tile j of a key head to panels. */
static void load_keys(const forward_job *job, const panels *w, int64_t b, int64_t kv_head,
                      const ordo_band *band, int32_t j, key_panels *to)
{
    const ordo_cpu_pass *p = &job->pass;
    const ordo_dtype dtype = p->problem->dtype;
    const int64_t col = (int64_t)j * band->bk;
    const int cols = key_columns(band, j);
    const ordo_rows k = key_rows(p, w, &p->call->k, p->dim, b, col, cols, kv_head);
    if (!scattered(p)) /* on its way while keys are transposed */
        ordo_cpu_fetch(p, key_rows(p, w, &p->call->v, p->v_dim, b, col, cols, kv_head), 0, cols,
                       p->v_dim);
    if (!p->kernels->load_transposed(to->kt, w->ld_k, k.data, dtype, k.stride, cols, p->dim))
        ordo_cpu_quiet(to->kt, p->dim, w->ld_k, cols);
    const ordo_rows v = key_rows(p, w, &p->call->v, p->v_dim, b, col, cols, kv_head);
    to->finite = p->kernels->load(to->v, p->v_ld, v.data, dtype, v.stride, cols, p->v_dim);
}

static int64_t key_place(const forward_job *job, int64_t b, int64_t kv_head, int32_t j)
{
    return kv_head * job->key_tiles + job->pass.sequences[b].key_tile + j;
}

static key_panels panels_at(const forward_job *job, int ld_k, int64_t place)
{
    const ordo_cpu_pass *p = &job->pass;
    return (key_panels) { .kt = job->kt + place * p->dim * ld_k,
                          .v = job->v + place * p->plan->forward_tile.k * p->v_ld };
}

/* One of the shared panels; empty if no row sees it. */
static void share_keys(const forward_job *job, const panels *w, int64_t b, int64_t kv_head,
                       int32_t j)
{
    const ordo_band band = forward_band(&job->pass, b);
    const int64_t place = key_place(job, b, kv_head, j);
    key_panels to = panels_at(job, w->ld_k, place);
    if (ordo_span_count(ordo_band_queries(&band, j)) > 0)
        load_keys(job, w, b, kv_head, &band, j, &to);
    ordo_panel_fill(&job->ready[place], to.finite);
}

/* Key tile j for an item: the shared panels, once they are there, or its own. */
static key_panels keys_of(const forward_job *job, const panels *w, const item *it, int32_t j)
{
    const int64_t kv_head = it->head / job->pass.queries;
    key_panels keys = { .kt = w->kt, .v = w->v };
    if (job->shared) {
        const int64_t place = key_place(job, it->b, kv_head, j);
        keys = panels_at(job, w->ld_k, place);
        keys.finite = ordo_panel_finite(&job->ready[place]);
    } else {
        load_keys(job, w, it->b, kv_head, &it->band, j, &keys);
    }
    return keys;
}

/* ---- steps ---- */

/* A part of the shared panels that the next steps want, for products to ask for. */
typedef struct wanted {
    ordo_ahead kt, v;
} wanted;

static wanted part_of_keys(const forward_job *job, const panels *w, int64_t place, int32_t part,
                           int32_t parts)
{
    const ordo_cpu_pass *p = &job->pass;
    const key_panels keys = panels_at(job, w->ld_k, place);
    const size_t kt = (size_t)(p->dim * w->ld_k) * sizeof(float);
    const size_t v = (size_t)(p->plan->forward_tile.k * p->v_ld) * sizeof(float);
    const size_t x = (size_t)part, n = (size_t)parts;
    return (wanted) { { (const char *)keys.kt + kt * x / n, kt * (x + 1) / n - kt * x / n },
                      { (const char *)keys.v + v * x / n, v * (x + 1) / n - v * x / n } };
}

/* Columns of key tile j that are not stored. */
static int unstored(const ordo_cpu_pass *p, const item *it, int32_t j)
{
    const int64_t columns = p->sequences[it->b].kv_start - (int64_t)j * it->band.bk;
    return columns < 0 ? 0 : columns > it->band.bk ? it->band.bk : (int)columns;
}

/* One key tile against one query tile. */
static void step(const forward_job *job, const panels *w, const item *it, int32_t i, int32_t j,
                 const key_panels *keys, const wanted *soon)
{
    const ordo_cpu_pass *p = &job->pass;
    const ordo_kernels *k = p->kernels;
    ordo_patch patch = ordo_cpu_patch(p, &it->band, i, j, it->b, it->head, w->ld_q);
    const size_t at = panel_row(job, i - it->first);
    float *o = w->o + at * (size_t)p->v_ld;
    ordo_cpu_patch_elements(p, it->b, it->head, &patch, w->seen);
    ordo_cpu_patch_narrow(&patch, unstored(p, it, j), it->band.bk);
    const float *v = keys->v + (ptrdiff_t)patch.skipped * p->v_ld;
    if (patch.cols == 0)
        return;
    ordo_cpu_patch_load(p, it->b, it->head, &patch, w->bias, w->keep, w->groups);
    /* transposed: s[c][r] = sum_d k[c][d] q[r][d] */
    k->product(patch.cols, patch.rows, p->dim, keys->kt + patch.skipped, 1, w->ld_k,
               queries(job, w, i - it->first), w->ld_q, w->s, w->ld_q, false, &soon->kt);
    k->softmax(&patch.scores, w->s, w->m + at, w->l + at, w->alpha);
    k->rescale(patch.rows, p->v_dim, o, p->v_ld, w->alpha);
    if (patch.scores.partial && !keys->finite)
        ordo_cpu_product_careful(&patch.scores, false, patch.rows, p->v_dim, patch.cols, w->s, 1,
                                 w->ld_q, v, p->v_ld, o, p->v_ld);
    else
        k->product(patch.rows, p->v_dim, patch.cols, w->s, 1, w->ld_q, v, p->v_ld, o, p->v_ld, true,
                   &soon->v);
}

static void finish(const forward_job *job, const panels *w, const item *it)
{
    const ordo_cpu_pass *p = &job->pass;
    const float sink = ordo_cpu_sink(p, it->head);
    for (int32_t i = it->first; i <= it->last; i++) {
        const size_t at = panel_row(job, i - it->first);
        const int64_t row = (int64_t)i * it->band.bq;
        const int rows = ordo_min32(it->band.bq, it->band.q_len - (int32_t)row);
        for (int r = 0; r < rows; r++) {
            const float l = w->l[at + (size_t)r], m = w->m[at + (size_t)r];
            const ordo_row_end end = ordo_cpu_row_end(m, l, sink, p->keep_scale);
            p->call->lse[ordo_cpu_lse_at(p, it->b, it->head, row + r)] = end.lse;
            w->alpha[r] = end.factor;
            if (l == 0) /* saw nothing; o may be NaN, of 0 times an infinite value */
                memset(w->o + (at + (size_t)r) * (size_t)p->v_ld, 0,
                       (size_t)p->v_dim * sizeof(float));
        }
        const ordo_rows o =
            ordo_cpu_rows(p, &p->call->o, ORDO_QUERIES, p->v_dim, it->b, row, it->head);
        p->kernels->store(o.data, p->problem->dtype, o.stride, w->o + at * (size_t)p->v_ld, p->v_ld,
                          rows, p->v_dim, 1, w->alpha);
    }
}

/* The key tiles that query tile i meets lie within these. */
static ordo_span keys_within(const forward_job *job, const item *it, int32_t i)
{
    const ordo_lists *lists = ordo_cpu_lists(&job->pass, it->b, it->head);
    if (!lists)
        return ordo_band_keys(&it->band, i);
    if (ordo_lists_count(lists, i) == 0)
        return (ordo_span) { 0, -1 };
    return (ordo_span) { lists->key[lists->start[i]], lists->key[lists->start[i + 1] - 1] };
}

static bool meets(const forward_job *job, const item *it, int32_t i, int32_t j)
{
    const ordo_span own = keys_within(job, it, i);
    return own.first <= j && j <= own.last && unstored(&job->pass, it, j) < it->band.bk &&
           ordo_cpu_sees(&job->pass, it->b, it->head, i, j);
}

static bool some_meets(const forward_job *job, const item *it, int32_t j)
{
    for (int32_t i = it->first; i <= it->last; i++)
        if (meets(job, it, i, j))
            return true;
    return false;
}

static void run_item(const forward_job *job, const panels *w, const item *it)
{
    const int64_t kv_head = it->head / job->pass.queries;
    ordo_span keys = { INT32_MAX, -1 };
    begin(job, w, it);
    for (int32_t i = it->first; i <= it->last; i++) {
        const ordo_span own = keys_within(job, it, i);
        if (ordo_span_count(own) > 0) {
            keys.first = ordo_min32(keys.first, own.first);
            keys.last = ordo_max32(keys.last, own.last);
        }
    }
    for (int32_t j = keys.first; j <= keys.last; j++) {
        if (!some_meets(job, it, j))
            continue;
        const key_panels now = keys_of(job, w, it, j);
        const bool more = job->shared && j < keys.last;
        const int64_t next = more ? key_place(job, it->b, kv_head, j + 1) : 0;
        for (int32_t i = it->first; i <= it->last; i++) {
            wanted soon = { 0 };
            if (more)
                soon = part_of_keys(job, w, next, i - it->first, it->last - it->first + 1);
            if (meets(job, it, i, j))
                step(job, w, it, i, j, &now, &soon);
        }
    }
    finish(job, w, it);
}

/* Rows of a padded sequence past its end: o = 0, lse = -inf. */
static void clear_padding(const forward_job *job, int64_t b, int64_t head)
{
    const ordo_cpu_pass *p = &job->pass;
    const size_t width = p->problem->dtype == ORDO_F32 ? 4 : 2;
    if (p->problem->layout != ORDO_PADDED)
        return;
    for (int64_t row = p->sequences[b].q_len; row < p->problem->q_len; row++) {
        const ordo_rows o = ordo_cpu_rows(p, &p->call->o, ORDO_QUERIES, p->v_dim, b, row, head);
        memset(o.data, 0, width * (size_t)p->v_dim);
        p->call->lse[ordo_cpu_lse_at(p, b, head, row)] = -INFINITY;
    }
}

/* ---- all items ---- */

/* Items a head; the first `singles` of them are single tiles. A sequence without rows has one, for
 * its padding. */
static int64_t head_items(const forward_job *job, int64_t b, int64_t *singles)
{
    const ordo_band band = forward_band(&job->pass, b);
    const int64_t tiles = ordo_band_query_tiles(&band);
    *singles = job->singles ? tiles / 4 : 0;
    return tiles == 0 ? 1 : *singles + (tiles - *singles + job->tiles - 1) / job->tiles;
}

static int64_t before_item(const ordo_cpu_pass *pass, int64_t b)
{
    return pass->sequences[b].item;
}
static int64_t before_key_tile(const ordo_cpu_pass *pass, int64_t b)
{
    return pass->sequences[b].key_tile;
}

/* Ticket -> item: sequence by sequence, the last rows of all heads first. */
static void draw(const forward_job *job, int64_t ticket, const panels *w)
{
    const ordo_cpu_pass *p = &job->pass;
    const int64_t heads = p->problem->heads, b = ordo_cpu_find(p, ticket, before_item);
    int64_t singles;
    ticket -= p->sequences[b].item;
    item it = { .b = b, .head = ticket % heads, .band = forward_band(p, b) };
    const int64_t place = head_items(job, b, &singles) - 1 - ticket / heads;
    const int32_t end = ordo_band_query_tiles(&it.band);
    it.first = (int32_t)(place < singles ? place : singles + (place - singles) * job->tiles);
    it.last = ordo_min32(it.first + (place < singles ? 1 : job->tiles), end) - 1;
    if (it.last >= it.first)
        run_item(job, w, &it);
    if (place == 0)
        clear_padding(job, it.b, it.head);
}

static void work(void *context, int worker, int workers, void *scratch)
{
    forward_job *job = context;
    const int64_t shares = job->shared ? job->pass.problem->kv_heads * job->key_tiles : 0;
    panels w;
    (void)worker;
    (void)workers;
    lay_out(job, scratch, &w);
    for (;;) {
        const int64_t ticket = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (ticket < shares) {
            const int64_t kv_head = ticket / job->key_tiles, tile = ticket % job->key_tiles;
            const int64_t b = ordo_cpu_find(&job->pass, tile, before_key_tile);
            share_keys(job, &w, b, kv_head, (int32_t)(tile - job->pass.sequences[b].key_tile));
        } else if (ticket - shares < job->items) {
            draw(job, ticket - shares, &w);
        } else {
            return;
        }
    }
}

static int64_t count_items(const forward_job *job)
{
    ordo_sequence *s = job->pass.sequences;
    int64_t singles;
    s[0].item = 0;
    for (int64_t b = 0; b < job->pass.problem->batch; b++)
        s[b + 1].item = s[b].item + job->pass.problem->heads * head_items(job, b, &singles);
    return s[job->pass.problem->batch].item;
}

/* Items as large as leaves no thread without: at least four for each. */
static void gather_items(forward_job *job, int threads)
{
    const bool equal = job->pass.problem->mask == ORDO_MASK_FULL && !job->pass.lists;
    job->tiles = ORDO_ITEM_TILES;
    for (job->items = count_items(job); job->tiles > 1 && job->items < 4 * (int64_t)threads;
         job->items = count_items(job))
        job->tiles /= 2;
    job->singles = equal && job->tiles > 1 && threads > 1 && job->items < 16 * (int64_t)threads;
    job->items = count_items(job);
}

/* Carve panels out of the workspace, if the plan has any. */
static void share_workspace(forward_job *job)
{
    const ordo_cpu_pass *p = &job->pass;
    ordo_arena arena = { p->workspace, 0 };
    ordo_forward_parts parts = { 0 };
    for (int64_t b = 0; b < p->problem->batch; b++) {
        const ordo_band band = forward_band(p, b);
        p->sequences[b + 1].key_tile = p->sequences[b].key_tile + ordo_band_key_tiles(&band);
    }
    job->key_tiles = p->sequences[p->problem->batch].key_tile;
    if (!scattered(p))
        (void)ordo_plan_forward_parts(p->plan, (uint64_t)job->key_tiles, &parts); /* fits */
    job->shared = parts.kt > 0;
    job->kt = ordo_arena_take(&arena, parts.kt / 4);
    job->v = ordo_arena_take(&arena, parts.v / 4);
    job->ready = ordo_arena_take(&arena, parts.ready / 4);
    assert(arena.used - 3 * ORDO_GAP <= p->call->workspace_bytes);
    if (job->shared)
        memset((void *)job->ready, 0, parts.ready);
}

ordo_status ordo_cpu_forward(const ordo_plan *plan, const ordo_call *call)
{
    forward_job job = { 0 };
    ordo_status status = ordo_cpu_pass_open(&job.pass, plan, call);
    if (status == ORDO_OK)
        status = ordo_cpu_lists_open(&job.pass, plan->forward_tile);
    if (status == ORDO_OK) {
        const int threads = ordo_pool_threads(call->threads);
        panels none;
        gather_items(&job, threads);
        share_workspace(&job);
        const size_t bytes = lay_out(&job, NULL, &none);
        const int64_t useful = job.items < threads ? job.items : threads;
        status = ordo_pool_run((int)useful, bytes, work, &job);
    }
    ordo_cpu_pass_close(&job.pass);
    return status;
}
