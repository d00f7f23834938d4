/* hbm_units.c: the kernels whose units wait for nobody: both passes by phases (src/cuda/phase), and
 * the apart form (src/cuda/wide). Under a full mask they take head after head, in each the tiles of
 * all sequences. */
#include "io/hbm.h"

enum {
    TILE = 2,            /* granules: 128 queries or keys, the rows of every product */
    SCORE_KEYS = 4,      /* 256 keys of a tile of scores */
    CHUNK = 4,           /* tiles of scores in one unit of the backward pass */
    PRODUCT_COLUMNS = 4, /* columns of the result; kernels have 192 if units do not get more */
};

static int32_t over(int32_t whole, int32_t part)
{
    return (whole + part - 1) / part;
}

/* A unit: part of a tile of `rows` granules of a head. */
typedef struct place {
    int32_t head;     /* counted over all sequences */
    int32_t row;      /* first granule of the tile */
    int32_t part;     /* part of the tile */
    int32_t in_panel; /* the head, counted from the panel's first, sequence by sequence */
} place;

static place place_of(const ordo_io_hbm_job *job, int64_t unit, int32_t rows, int32_t parts,
                      bool down)
{
    const int32_t each = over(job->rows, rows), tiles = job->batch * each;
    const int32_t head = (int32_t)(unit / ((int64_t)tiles * parts));
    const int32_t rest = (int32_t)(unit % ((int64_t)tiles * parts));
    const int32_t tile = down ? tiles - 1 - rest / parts : rest / parts;
    const place at = { tile / each * job->heads + job->head + head, tile % each * rows,
                       rest % parts, head * job->batch + tile / each };
    return at;
}

static int64_t units_of(const ordo_io_hbm_job *job, int32_t heads, int32_t rows, int32_t parts)
{
    return (int64_t)heads * job->batch * over(job->rows, rows) * parts;
}

static void read_box(ordo_io_hbm_job *job, int32_t worker, ordo_io_object object, int32_t head,
                     ordo_io_box box)
{
    ordo_io_touch_box(job, worker, object, head, box, ORDO_IO_L2_READ);
}

static void write_box(ordo_io_hbm_job *job, int32_t worker, ordo_io_object object, int32_t head,
                      ordo_io_box box)
{
    ordo_io_touch_box(job, worker, object, head, box, ORDO_IO_L2_WRITE);
}

/* ---- apart, and chains ---- */

/* 64 keys: K and V once, Q and dO of 64 queries in each step. */
static void keys_step(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker)
{
    const place u = place_of(job, unit, 1, 1, false);
    const ordo_io_box key = { u.row, 1, 0, job->columns }, value = { u.row, 1, 0, job->v_columns };
    if (step == 0) {
        read_box(job, worker, ORDO_IO_K, u.head, key);
        read_box(job, worker, ORDO_IO_V, u.head, value);
    }
    read_box(job, worker, ORDO_IO_Q, u.head, (ordo_io_box) { step, 1, 0, job->columns });
    read_box(job, worker, ORDO_IO_DOUT, u.head, (ordo_io_box) { step, 1, 0, job->v_columns });
    if (step == job->rows - 1) {
        write_box(job, worker, ORDO_IO_DK, u.head, key);
        write_box(job, worker, ORDO_IO_DV, u.head, value);
    }
}

/* By phases, in chains: the same, and dS is stored. */
static void chain_step(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker)
{
    const place u = place_of(job, unit, 1, 1, false);
    keys_step(job, unit, step, worker);
    write_box(job, worker, ORDO_IO_DS, u.in_panel, (ordo_io_box) { step, 1, u.row, 1 });
}

/* 128 queries: Q and dO once, K and V of 64 keys in each step. */
static void queries_step(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker)
{
    const place u = place_of(job, unit, TILE, 1, false);
    const ordo_io_box own = { u.row, TILE, 0, job->columns }, other = { step, 1, 0, job->columns };
    if (step == 0) {
        read_box(job, worker, ORDO_IO_Q, u.head, own);
        read_box(job, worker, ORDO_IO_DOUT, u.head, own);
    }
    read_box(job, worker, ORDO_IO_K, u.head, other);
    read_box(job, worker, ORDO_IO_V, u.head, other);
    if (step == job->rows - 1)
        write_box(job, worker, ORDO_IO_DQ, u.head, own);
}

void ordo_io_apart_backward(ordo_io_hbm_job *job)
{
    const int64_t keys = units_of(job, job->heads, 1, 1);
    const int64_t queries = units_of(job, job->heads, TILE, 1);
    ordo_io_kernel_run(job, &(ordo_io_kernel) { "keys", keys, job->rows, keys_step });
    ordo_io_kernel_run(job, &(ordo_io_kernel) { "queries", queries, job->rows, queries_step });
}

/* ---- by phases: scores ---- */

/* One stage of a tile of scores: 64 columns of 128 rows and of 256 keys. */
static void read_stage(ordo_io_hbm_job *job, int32_t worker, const place *u, ordo_io_object rows,
                       ordo_io_object keys, int32_t key_tile, int32_t column)
{
    read_box(job, worker, rows, u->head, (ordo_io_box) { u->row, TILE, column, 1 });
    read_box(job, worker, keys, u->head,
             (ordo_io_box) { key_tile * SCORE_KEYS, SCORE_KEYS, column, 1 });
}

static void write_scores(ordo_io_hbm_job *job, int32_t worker, const place *u,
                         ordo_io_object object, int32_t key_tile)
{
    write_box(job, worker, object, u->in_panel,
              (ordo_io_box) { u->row, TILE, key_tile * SCORE_KEYS, SCORE_KEYS });
}

/* Backward: S and dP of up to four tiles of 128 x 256; P and dS are stored. */
static void scores_step(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker)
{
    const int32_t chunks = over(job->rows, SCORE_KEYS * CHUNK), stages = job->columns;
    const place u = place_of(job, unit, TILE, chunks, false);
    const int32_t tile = u.part * CHUNK + step / (2 * stages), stage = step % (2 * stages);
    const bool second = stage >= stages;
    if (tile * SCORE_KEYS >= job->rows) /* the last chunk of keys has fewer tiles */
        return;
    read_stage(job, worker, &u, second ? ORDO_IO_DOUT : ORDO_IO_Q, second ? ORDO_IO_V : ORDO_IO_K,
               tile, stage % stages);
    if (stage % stages == stages - 1)
        write_scores(job, worker, &u, second ? ORDO_IO_DS : ORDO_IO_P, tile);
}

/* Forward: the factors of 128 rows. */
static void touch_factors(ordo_io_hbm_job *job, int32_t worker, const place *u,
                          ordo_io_l2_kind touch)
{
    const int64_t tile = (int64_t)u->in_panel * over(job->rows, TILE) + u->row / TILE;
    for (int32_t i = 0; i < job->factors; i++)
        ordo_io_l2_touch(&job->l2, worker, job->base[ORDO_IO_FACTORS] + tile * job->factors + i,
                         touch);
}

/* Forward: S of all keys, a tile of 128 x 256 after the other; P is stored. */
static void softmax_step(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker)
{
    const place u = place_of(job, unit, TILE, 1, true);
    const int32_t tile = step / job->columns, stage = step % job->columns;
    read_stage(job, worker, &u, ORDO_IO_Q, ORDO_IO_K, tile, stage);
    if (stage == job->columns - 1)
        write_scores(job, worker, &u, ORDO_IO_P, tile);
    if (step == over(job->rows, SCORE_KEYS) * job->columns - 1)
        touch_factors(job, worker, &u, ORDO_IO_L2_WRITE);
}

/* ---- by phases: products ---- */

static void product_by_queries(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker,
                               const ordo_io_object of[3])
{
    const int32_t width = PRODUCT_COLUMNS, parts = over(job->columns, width);
    const place u = place_of(job, unit, TILE, parts, true);
    read_box(job, worker, of[0], u.in_panel, (ordo_io_box) { u.row, TILE, step, 1 });
    read_box(job, worker, of[1], u.head, (ordo_io_box) { step, 1, u.part * width, width });
    if (of[0] == ORDO_IO_P && step == 0)
        touch_factors(job, worker, &u, ORDO_IO_L2_READ);
    if (step == job->rows - 1)
        write_box(job, worker, of[2], u.head, (ordo_io_box) { u.row, TILE, u.part * width, width });
}

static void outputs_step(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker)
{
    static const ordo_io_object of[3] = { ORDO_IO_P, ORDO_IO_V, ORDO_IO_O };
    product_by_queries(job, unit, step, worker, of);
}

static void dq_step(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker)
{
    static const ordo_io_object of[3] = { ORDO_IO_DS, ORDO_IO_K, ORDO_IO_DQ };
    product_by_queries(job, unit, step, worker, of);
}

/* dV of all columns, then dK. */
static void dkv_step(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker)
{
    const int32_t width = PRODUCT_COLUMNS, parts = over(job->columns, width);
    const place u = place_of(job, unit, TILE, 2 * parts, false);
    const bool second = u.part >= parts;
    const int32_t column = (u.part - (second ? parts : 0)) * width;
    read_box(job, worker, second ? ORDO_IO_DS : ORDO_IO_P, u.in_panel,
             (ordo_io_box) { step, 1, u.row, TILE });
    read_box(job, worker, second ? ORDO_IO_Q : ORDO_IO_DOUT, u.head,
             (ordo_io_box) { step, 1, column, width });
    if (step == job->rows - 1)
        write_box(job, worker, second ? ORDO_IO_DK : ORDO_IO_DV, u.head,
                  (ordo_io_box) { u.row, TILE, column, width });
}

/* ---- by phases: panels ---- */

static int32_t panel_heads(const ordo_io_hbm_job *job)
{
    return job->section < job->heads - job->head ? job->section : job->heads - job->head;
}

void ordo_io_phases_forward(ordo_io_hbm_job *job)
{
    const int32_t parts = over(job->columns, PRODUCT_COLUMNS);
    for (job->head = 0; job->head < job->heads; job->head += job->section) {
        const ordo_io_kernel softmax = { "softmax", units_of(job, panel_heads(job), TILE, 1),
                                         over(job->rows, SCORE_KEYS) * job->columns, softmax_step };
        const ordo_io_kernel outputs = { "outputs", units_of(job, panel_heads(job), TILE, parts),
                                         job->rows, outputs_step };
        ordo_io_kernel_run(job, &softmax);
        ordo_io_kernel_run(job, &outputs);
    }
}

void ordo_io_phases_backward(ordo_io_hbm_job *job)
{
    const int32_t parts = over(job->columns, PRODUCT_COLUMNS);
    const int32_t chunks = over(job->rows, SCORE_KEYS * CHUNK);
    for (job->head = 0; job->head < job->heads; job->head += job->section) {
        const ordo_io_kernel scores = { "scores", units_of(job, panel_heads(job), TILE, chunks),
                                        CHUNK * 2 * job->columns, scores_step };
        const ordo_io_kernel keys = { "keys", units_of(job, panel_heads(job), TILE, 2 * parts),
                                      job->rows, dkv_step };
        const ordo_io_kernel queries = { "queries", units_of(job, panel_heads(job), TILE, parts),
                                         job->rows, dq_step };
        ordo_io_kernel_run(job, &scores);
        ordo_io_kernel_run(job, &keys);
        ordo_io_kernel_run(job, &queries);
    }
}

void ordo_io_chains_backward(ordo_io_hbm_job *job)
{
    for (job->head = 0; job->head < job->heads; job->head += job->section) {
        const ordo_io_kernel chains = { "chains", units_of(job, panel_heads(job), 1, 1), job->rows,
                                        chain_step };
        const ordo_io_kernel queries = { "queries", units_of(job, panel_heads(job), TILE, 1),
                                         job->rows, dq_step };
        ordo_io_kernel_run(job, &chains);
        ordo_io_kernel_run(job, &queries);
    }
}
