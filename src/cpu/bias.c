/* bias.c: sums the gradient of a bias.
 *
 * One thread makes a tile of dbias, as large as a backward tile: for each sequence that shares it,
 * and each query head, it computes the scores and dS of the tile again and adds dS to the sum of
 * the sequence, then that sum to the tile. These are two products more than the five of the
 * backward pass, where nothing is shared between threads, and no memory but the tile. */
#include "cpu/bias.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/bias.h"
#include "base/half.h"
#include "base/pool.h"
#include "base/status.h"

typedef struct bias_job {
    const ordo_query_side *rows;
    int64_t sequences, heads; /* sequences and heads of dbias */
    int32_t nq, nk;           /* tiles of a matrix of dbias */
    atomic_llong next;
} bias_job;

/* One worker's panels. Tiles are transposed: element (r, c) at c * ld + r. */
typedef struct panels {
    float *kt, *vt, *s, *dp;
    float *sum, *all; /* sums of a sequence, and of all */
    float *bias;
    uint32_t *seen; /* elements of a partial block */
    uint32_t *keep;
    int ld, ld_k, groups;
} panels;

static size_t lay_out(const ordo_cpu_pass *p, void *memory, panels *w)
{
    const size_t rows = (size_t)p->plan->backward_tile.q, keys = (size_t)p->plan->backward_tile.k;
    ordo_arena arena = { memory, 0 };
    w->ld = ordo_panel_row((int64_t)rows);
    w->ld_k = ordo_panel_row((int64_t)keys);
    w->groups = (int)(rows + 15) / 16;
    w->kt = ordo_arena_take(&arena, (size_t)p->dim * (size_t)w->ld_k);
    w->vt = ordo_arena_take(&arena, (size_t)p->v_dim * (size_t)w->ld_k);
    w->s = ordo_arena_take(&arena, keys * (size_t)w->ld);
    w->dp = ordo_arena_take(&arena, keys * (size_t)w->ld);
    w->sum = ordo_arena_take(&arena, keys * (size_t)w->ld);
    w->all = ordo_arena_take(&arena, keys * (size_t)w->ld);
    w->seen = ordo_arena_take(&arena, p->lists ? ORDO_BLOCK / 2 * (size_t)w->groups : 0);
    w->bias = ordo_arena_take(&arena, ordo_cpu_bias_floats(p, keys, w->groups));
    w->keep = ordo_arena_take(&arena, ordo_cpu_keep_words(keys, w->groups));
    return arena.used;
}

/* Keys and values of tile j of a key head. */
static void load_keys(const ordo_cpu_pass *p, panels *w, int64_t b, int64_t kv_head, int32_t j)
{
    const ordo_dtype dtype = p->problem->dtype;
    const ordo_band *band = &p->sequences[b].run.band;
    const int64_t col = (int64_t)j * band->bk;
    const int cols = ordo_min32(band->bk, band->kv_len - (int32_t)col);
    const ordo_rows k = ordo_cpu_rows(p, &p->call->k, ORDO_KEYS, p->dim, b, col, kv_head);
    const ordo_rows v = ordo_cpu_rows(p, &p->call->v, ORDO_KEYS, p->v_dim, b, col, kv_head);
    if (!p->kernels->load_transposed(w->kt, w->ld_k, k.data, dtype, k.stride, cols, p->dim))
        ordo_cpu_quiet(w->kt, p->dim, w->ld_k, cols);
    p->kernels->load_transposed(w->vt, w->ld_k, v.data, dtype, v.stride, cols, p->v_dim);
}

/* Rows that saw nothing have no gradient, whatever else is NaN; those past the end of a
 * sequence, which pad a tile, have values that mean nothing. */
static void blank_rows(const ordo_patch *patch, float *ds, int ld, const float *lse2)
{
    for (int r = 0; r < (patch->rows + 15) / 16 * 16; r++)
        for (int c = 0; c < patch->cols && (r >= patch->rows || lse2[r] == INFINITY); c++)
            ds[(ptrdiff_t)c * ld + r] = 0;
}

/* Add dS of one head, whose keys are loaded, to the sum of its sequence. */
static void add_head(const ordo_query_side *side, panels *w, int64_t b, int64_t head, int32_t i,
                     int32_t j)
{
    const ordo_cpu_pass *p = side->pass;
    const ordo_kernels *k = p->kernels;
    const ordo_query_tile r = ordo_query_tile_at(side, ordo_query_place(side, b, head, i));
    ordo_patch patch = ordo_cpu_patch(p, &p->sequences[b].run.band, i, j, b, head, w->ld);
    ordo_cpu_patch_elements(p, b, head, &patch, w->seen);
    ordo_cpu_patch_load(p, b, head, &patch, w->bias, w->keep, w->groups);
    patch.scores.of_logits = true;
    if (patch.cols == 0)
        return;
    k->product(patch.cols, patch.rows, p->dim, w->kt + patch.skipped, 1, w->ld_k, r.qt, side->ld_t,
               w->s, w->ld, false, NULL);
    k->product(patch.cols, patch.rows, p->v_dim, w->vt + patch.skipped, 1, w->ld_k, r.doutt,
               side->ld_t, w->dp, w->ld, false, NULL);
    k->gradients(&patch.scores, w->s, w->dp, r.lse2, r.delta);
    blank_rows(&patch, w->dp, w->ld, r.lse2);
    k->accumulate(patch.cols, patch.rows, w->sum + (ptrdiff_t)patch.skipped * w->ld, w->ld, w->dp,
                  w->ld, false);
}

/* Tile (i, j) of one matrix of dbias, to `all`. */
static void sum_tile(const bias_job *job, panels *w, int64_t sequence, int64_t head, int32_t i,
                     int32_t j)
{
    const ordo_query_side *side = job->rows;
    const ordo_cpu_pass *p = side->pass;
    const ordo_problem *problem = p->problem;
    const int keys = (int)p->plan->backward_tile.k, rows = 16 * w->groups;
    const size_t bytes = (size_t)keys * (size_t)w->ld * sizeof(float);
    const int64_t b0 = problem->bias.per_sequence ? sequence : 0;
    const int64_t b_end = problem->bias.per_sequence ? sequence + 1 : problem->batch;
    const int64_t h0 = problem->bias.per_head ? head : 0;
    const int64_t h_end = problem->bias.per_head ? head + 1 : problem->heads;
    memset(w->all, 0, bytes);
    for (int64_t b = b0; b < b_end; b++) {
        const ordo_band *band = &p->sequences[b].run.band;
        if (i >= ordo_band_query_tiles(band) || j >= ordo_band_key_tiles(band))
            continue;
        int64_t loaded = -1; /* key head */
        memset(w->sum, 0, bytes);
        for (int64_t h = h0; h < h_end; h++) {
            if (loaded != h / p->queries)
                load_keys(p, w, b, loaded = h / p->queries, j);
            if (ordo_cpu_sees(p, b, h, i, j))
                add_head(side, w, b, h, i, j);
        }
        p->kernels->accumulate(keys, rows, w->all, w->ld, w->sum, w->ld, false);
    }
}

static void write_tile(const bias_job *job, const panels *w, int64_t matrix, int32_t i, int32_t j)
{
    const ordo_cpu_pass *p = job->rows->pass;
    const ordo_problem *problem = p->problem;
    const ordo_tile tile = p->plan->backward_tile;
    for (int64_t r = 0; r < tile.q && i * tile.q + r < problem->q_len; r++)
        for (int64_t c = 0; c < tile.k && j * tile.k + c < problem->kv_len; c++) {
            const float x = w->all[c * w->ld + r];
            const int64_t row = matrix * problem->q_len + i * tile.q + r;
            p->call->dbias[row * problem->kv_len + j * tile.k + c] =
                x == x ? x : ordo_f32_of_bits(ORDO_F32_NAN);
        }
}

static void work(void *context, int worker, int workers, void *scratch)
{
    bias_job *job = context;
    const int64_t tiles = (int64_t)job->nq * job->nk;
    panels w;
    (void)worker;
    (void)workers;
    lay_out(job->rows->pass, scratch, &w);
    for (;;) {
        const int64_t ticket = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        const int64_t matrix = ticket / tiles, tile = ticket % tiles;
        const int32_t i = (int32_t)(tile / job->nk), j = (int32_t)(tile % job->nk);
        if (matrix >= job->sequences * job->heads)
            return;
        sum_tile(job, &w, matrix / job->heads, matrix % job->heads, i, j);
        write_tile(job, &w, matrix, i, j);
    }
}

ordo_status ordo_cpu_bias_gradient(const ordo_query_side *rows)
{
    const ordo_cpu_pass *p = rows->pass;
    const ordo_problem *problem = p->problem;
    const ordo_band all = ordo_plan_band(p->plan, problem->q_len, problem->kv_len);
    bias_job job = { .rows = rows,
                     .sequences = ordo_bias_sequences(problem),
                     .heads = ordo_bias_heads(problem),
                     .nq = ordo_band_query_tiles(&all),
                     .nk = ordo_band_key_tiles(&all) };
    panels none;
    if (!p->call->dbias)
        return ORDO_OK;
    const int threads = ordo_pool_threads(p->call->threads);
    const int64_t tickets = job.sequences * job.heads * job.nq * job.nk;
    return ordo_pool_run((int)(tickets < threads ? tickets : threads), lay_out(p, NULL, &none),
                         work, &job);
}
