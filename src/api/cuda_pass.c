/* cuda_pass.c: checks a call of a cuda plan and turns it into a pass of numbers. */
#include "api/cuda_pass.h"

#include "api/cuda_module.h"
#include "api/limits.h"
#include "base/bias.h"
#include "base/keep.h"
#include "base/pages.h"
#include "base/status.h"
#include "plan/family.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

_Static_assert(sizeof(ordo_tile_word) == ORDO_TILE_WORD_BYTES &&
                   sizeof(ordo_span) == ORDO_TILE_SPAN_BYTES &&
                   (int)ORDO_TILE_BITS == (int)ORDO_TILE_WORD,
               "the workspace has room for rows of bits");
_Static_assert(sizeof(ordo_spread_list) <= ORDO_SPREAD_LIST_BYTES,
               "the workspace has room for the list of long sequences");
_Static_assert((int)ORDO_PAGED_LINES == (int)ORDO_PAGED_GROUP_MAX, "a tile has a row of each head");
_Static_assert(sizeof(ordo_cuda_sequence) == ORDO_SEQUENCE_BYTES,
               "the workspace has room for a table");

enum {
    COPY_BYTES = ORDO_CUDA_COPY_BYTES,
    HEAD_STEP = ORDO_CUDA_HEAD_STEP,
    STRIDE_BITS = 40, /* bits of a stride in bytes that the copy hardware holds */
    TILES_BITS = 28,
    PHASE_TILES_BITS = 26 /* by phases there are a dozen units a tile */
};

/* ---- what the kernels do not do although a plan can be made; see planner/legal.h ---- */

static ordo_status check_head(const char *name, int64_t dim)
{
    if (dim % HEAD_STEP != 0) /* rows that the hardware can copy */
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "%s %" PRId64 ": backend cuda expects a multiple of %d; columns of zeros "
                         "up to %" PRId64 " change no result, and backend cpu runs it",
                         name, dim, HEAD_STEP, (dim + HEAD_STEP - 1) / HEAD_STEP * HEAD_STEP);
    return ORDO_OK;
}

static ordo_status check_heads(const ordo_problem *p)
{
    ORDO_TRY(check_head("head_dim", p->head_dim));
    return check_head("v_head_dim", p->v_head_dim);
}

/* Tiles of one head, of all sequences, are counted in 32 bits, and so are those of all heads, with
 * room for the tickets drawn past the last and for kernels with a few blocks a tile. */
static ordo_status check_count(const ordo_plan *plan, ordo_pass which, const char *name,
                               int64_t length, int64_t total, int64_t heads, int64_t tile)
{
    const ordo_problem *p = &plan->problem;
    const int bits = ordo_plan_by_phases(plan, which) ? PHASE_TILES_BITS : TILES_BITS;
    const int64_t most = (INT64_C(1) << bits) / heads;
    const int64_t tiles = (length + tile - 1) / tile;
    if (p->layout == ORDO_PACKED && total / tile + p->batch > most)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "heads %" PRId64 " x %" PRId64 " %s tiles in %" PRId64
                         " sequences: backend cuda expects at most 2^%d",
                         heads, total / tile + p->batch, name, p->batch, bits);
    if (p->layout != ORDO_PACKED && tiles > most / p->batch)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "batch %" PRId64 " x heads %" PRId64 " x %" PRId64
                         " %s tiles: backend cuda expects at most 2^%d",
                         p->batch, heads, tiles, name, bits);
    return ORDO_OK;
}

static ordo_status check_counts(const ordo_plan *plan, ordo_pass which)
{
    const ordo_problem *p = &plan->problem;
    const ordo_tile tile = which == ORDO_FORWARD ? plan->forward_tile : plan->backward_tile;
    ORDO_TRY(check_count(plan, which, "query", p->q_len, p->total_q, p->heads, tile.q));
    if (which == ORDO_FORWARD)
        return ORDO_OK;
    return check_count(plan, which, "key", p->kv_len, p->total_kv, p->kv_heads, tile.k);
}

static ordo_status check_call(const ordo_plan *plan, ordo_pass which, const ordo_call *call)
{
    const ordo_problem *p = &plan->problem;
    const int64_t dim = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
    const int most = ordo_family_find(plan->family)->made_bits_max;
    if (p->dropout.p > 0 && !call->keep_bits && dim <= most && which == ORDO_BACKWARD &&
        plan->backward_form == ORDO_FORM_PHASE)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "keep_bits NULL, form phase: backend cuda expects bits made by "
                         "ordo_dropout_fill_device()");
    if (p->dropout.p > 0 && !call->keep_bits && dim > most)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "keep_bits NULL, head size %" PRId64
                         ": backend cuda expects bits made by ordo_dropout_fill_device() above %d",
                         dim, most);
    if (p->dropout.p > 0 && !call->keep_bits && p->dropout.keying == ORDO_KEYING_FA2)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "keep_bits NULL, dropout.keying fa2: backend cuda expects bits made by "
                         "ordo_dropout_fill_device()");
    if (call->block_mask && call->block_mask->first &&
        call->block_mask->sequences * call->block_mask->heads > INT32_MAX / (p->q_len + 1))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "block_mask.sequences %" PRId64 " x heads %" PRId64 " x q_len %" PRId64
                         ": backend cuda expects less than 2^31 intervals",
                         call->block_mask->sequences, call->block_mask->heads, p->q_len);
    if ((uintptr_t)call->keep_bits % COPY_BYTES != 0)
        return ordo_fail(ORDO_ERR_ALIGN,
                         "keep_bits %p: backend cuda expects a multiple of %d bytes",
                         (const void *)call->keep_bits, COPY_BYTES);
    if (call->block_mask && (uintptr_t)call->block_mask->bits % COPY_BYTES != 0)
        return ordo_fail(ORDO_ERR_ALIGN,
                         "seen.bits %p: backend cuda expects a multiple of %d bytes",
                         (const void *)call->block_mask->bits, COPY_BYTES);
    return ORDO_OK;
}

/* ---- tensors ---- */

/* One stride in elements; where there is nothing to stride over, one that the hardware takes. */
static ordo_status take_stride(const char *name, const ordo_tensor *t, int i, int64_t extent,
                               int64_t tight, int64_t dim, int64_t *stride)
{
    const int64_t width = 2; /* bf16 or f16 */
    const int64_t *s = t->stride;
    const bool contiguous = s[3] == 0; /* as checked: all are, or the last one is 1 */
    *stride = extent == 1 ? dim : contiguous ? tight : s[i];
    if (*stride >= (INT64_C(1) << STRIDE_BITS) / width)
        return ordo_fail(ORDO_ERR_ALIGN,
                         "%s.stride[%d] %" PRId64 ": backend cuda expects less than 2^%d bytes",
                         name, i, *stride, STRIDE_BITS);
    if (*stride * width % COPY_BYTES != 0)
        return ordo_fail(ORDO_ERR_ALIGN,
                         "%s.stride[%d] %" PRId64 ": backend cuda expects a multiple of %d bytes",
                         name, i, *stride, COPY_BYTES);
    return ORDO_OK;
}

typedef struct shape {
    int64_t sequences, rows, heads, dim;
} shape;

static ordo_status take_tensor(const char *name, const ordo_tensor *t, shape s,
                               ordo_cuda_tensor *out)
{
    const int64_t dim = s.dim;
    if ((uintptr_t)t->data % COPY_BYTES != 0)
        return ordo_fail(ORDO_ERR_ALIGN, "%s.data %p: backend cuda expects a multiple of %d bytes",
                         name, t->data, COPY_BYTES);
    out->data = t->data;
    ORDO_TRY(take_stride(name, t, 0, s.sequences, s.rows * s.heads * dim, dim, &out->sequence));
    ORDO_TRY(take_stride(name, t, 1, s.rows, s.heads * dim, dim, &out->row));
    return take_stride(name, t, 2, s.heads, dim, dim, &out->head);
}

static ordo_status take_tensors(const ordo_problem *p, ordo_pass which, const ordo_call *c,
                                ordo_cuda_pass *pass)
{
    const int64_t sequences = p->layout == ORDO_PACKED ? 1 : p->batch;
    const shape q = { sequences, pass->q_rows, p->heads, p->head_dim };
    const bool paged = ordo_paged(p);
    const int64_t stores = paged ? p->paging.pages : sequences;
    const int64_t rows = paged ? p->paging.page_rows : pass->kv_rows;
    const shape k = { stores, rows, p->kv_heads, p->head_dim };
    const shape v = { stores, rows, p->kv_heads, p->v_head_dim };
    const shape o = { sequences, pass->q_rows, p->heads, p->v_head_dim };
    ORDO_TRY(take_tensor("q", &c->q, q, &pass->q));
    ORDO_TRY(take_tensor("k", &c->k, k, &pass->k));
    ORDO_TRY(take_tensor("v", &c->v, v, &pass->v));
    ORDO_TRY(take_tensor("o", &c->o, o, &pass->o));
    pass->lse = c->lse;
    if (which == ORDO_FORWARD)
        return ORDO_OK;
    pass->dlse = c->dlse;
    ORDO_TRY(take_tensor("dout", &c->dout, o, &pass->dout));
    ORDO_TRY(take_tensor("dq", &c->dq, q, &pass->dq));
    ORDO_TRY(take_tensor("dk", &c->dk, k, &pass->dk));
    ORDO_TRY(take_tensor("dv", &c->dv, v, &pass->dv));
    pass->carry.in = c->carry & ORDO_CARRY_IN;
    pass->carry.out = c->carry & ORDO_CARRY_OUT;
    pass->carry.dk = c->dk_sums;
    pass->carry.dv = c->dv_sums;
    return ORDO_OK;
}

/* ---- workspace ---- */

/* The next `bytes` of a workspace at *at; the address at hand if there are none. */
static void *carve(char **at, uint64_t bytes)
{
    void *piece = *at;
    *at = bytes > 0 ? *at + bytes : *at; /* a workspace of 0 bytes may be NULL */
    return piece;
}

static ordo_cuda_phase phase_of(const ordo_phase_panels *panels)
{
    return (ordo_cuda_phase) { .section = (int32_t)panels->section,
                               .tiles = (int32_t)panels->tiles,
                               .columns = (int32_t)panels->columns };
}

static void take_forward_workspace(const ordo_plan *plan, char *at, ordo_cuda_pass *pass)
{
    ordo_forward_parts parts;
    (void)ordo_plan_forward_parts(plan, 0, &parts); /* fits: as made */
    pass->ticket = carve(&at, parts.ticket);
    void *const entries = carve(&at, parts.table);
    pass->table = pass->layout != ORDO_DENSE ? entries : NULL;
    pass->blocks.words = carve(&at, parts.words);
    pass->blocks.spans = carve(&at, parts.spans);
    if (!ordo_plan_by_phases(plan, ORDO_FORWARD))
        return;
    pass->delta = carve(&at, parts.weight);
    pass->phase = phase_of(&parts.panels);
    pass->phase.p = carve(&at, parts.p);
    pass->phase.shrink = carve(&at, parts.shrink);
}

static void take_workspace(const ordo_plan *plan, ordo_pass which, const ordo_call *call,
                           ordo_cuda_pass *pass)
{
    char *at = call->workspace;
    ordo_backward_parts parts;
    uint64_t tiles = 0;
    const bool table = pass->layout != ORDO_DENSE;
    if (which == ORDO_FORWARD) {
        take_forward_workspace(plan, at, pass);
        return;
    }
    (void)ordo_plan_query_tiles(plan, &tiles); /* fits: as made */
    (void)ordo_plan_backward_parts(plan, tiles, &parts);
    pass->dq_sum = carve(&at, parts.dq);
    pass->delta = carve(&at, parts.delta);
    pass->turns = carve(&at, parts.turns);
    pass->ticket = carve(&at, parts.ticket);
    pass->lse2 = carve(&at, parts.lse2);
    void *const entries = carve(&at, parts.table);
    pass->table = table ? entries : NULL;
    pass->carry.dk_broken = carve(&at, parts.broken);
    pass->carry.dv_broken = pass->carry.dk_broken + parts.broken / 2;
    pass->blocks.words = carve(&at, parts.words);
    pass->blocks.columns = carve(&at, parts.columns);
    pass->dsink = call->dsink;
    pass->dsink_parts = call->dsink_parts;
    if (call->dsink && !call->dsink_parts) /* one per query tile, and a sequence has one at least */
        pass->dsink_parts = (float *)(void *)pass->turns;
    if (!ordo_plan_by_phases(plan, ORDO_BACKWARD))
        return;
    pass->phase = phase_of(&parts.panels);
    pass->phase.p = plan->backward_form == ORDO_FORM_CHAIN ? NULL : carve(&at, parts.p);
    pass->phase.ds = carve(&at, parts.ds);
    pass->phase.dk = carve(&at, parts.dk);
    pass->phase.dv = carve(&at, parts.dv);
    pass->phase.score_bytes = (int64_t)parts.ds;
    pass->phase.all_bytes = (int64_t)(parts.ds + parts.dk + parts.dv);
}

/* ---- sequences ---- */

/* Whether the device makes the bits while it uses them. */
static bool made_inside(const ordo_problem *p, const ordo_call *call)
{
    return p->dropout.p > 0 && !call->keep_bits;
}

/* A dense batch whose ids only the device knows is a padded one of which nothing is padding. */
static ordo_layout layout_of(const ordo_problem *p, const ordo_call *call)
{
    if (p->layout == ORDO_PACKED)
        return ORDO_PACKED;
    return p->layout == ORDO_PADDED || (made_inside(p, call) && call->sequence_ids) ? ORDO_PADDED
                                                                                    : ORDO_DENSE;
}

static ordo_cuda_ragged ragged_of(const ordo_plan *plan, const ordo_call *call)
{
    const ordo_problem *p = &plan->problem;
    const int64_t held = ordo_band_diagonal(p->mask, p->q_len, p->kv_len);
    const int64_t shift = ordo_plan_diagonal(plan, p->q_len, p->kv_len) - held;
    return (ordo_cuda_ragged) {
        .cu_q = call->cu_q,
        .cu_kv = call->cu_kv,
        .q_lens = call->q_lens,
        .kv_lens = call->kv_lens,
        .ids = made_inside(p, call) ? call->sequence_ids : NULL,
        .batch0 = (uint32_t)p->shard.batch0,
        .forward_rows = (int32_t)plan->forward_tile.q,
        .backward_rows = (int32_t)plan->backward_tile.q,
        .backward_keys = (int32_t)plan->backward_tile.k,
        .mask = p->mask,
        .left = p->window.on ? (int32_t)p->window.left : -1,
        .right = p->window.on ? (int32_t)p->window.right : -1,
        .shift = p->layout == ORDO_DENSE ? (int32_t)shift : 0,
    };
}

static int32_t count_tiles(int64_t length, int64_t tile)
{
    return (int32_t)((length + tile - 1) / tile);
}

/* The closed form of a dense batch. */
static void take_dense(const ordo_plan *plan, ordo_cuda_batch *batch)
{
    const ordo_problem *p = &plan->problem;
    const ordo_band band = ordo_plan_band(plan, p->q_len, p->kv_len);
    batch->first = (ordo_cuda_sequence) {
        .q_len = band.q_len,
        .kv_len = band.kv_len,
        .low = band.low,
        .high = band.high,
        .diagonal = (int32_t)ordo_plan_diagonal(plan, p->q_len, p->kv_len),
        .id = (uint32_t)p->shard.batch0,
        .keep_across = count_tiles(p->kv_len, ORDO_KEEP_COLS),
        .keep_head = ordo_keep_blocks(p->q_len, p->kv_len),
    };
    batch->step = (ordo_cuda_sequence) {
        .batch = 1,
        .id = 1,
        .forward_tile = count_tiles(p->q_len, plan->forward_tile.q),
        .query_tile = count_tiles(p->q_len, plan->backward_tile.q),
        .key_tile = count_tiles(p->kv_len, plan->backward_tile.k),
        .keep = p->heads * batch->first.keep_head,
        .lse = p->heads * ordo_plan_lse_rows(plan),
    };
}

static void take_batch(const ordo_plan *plan, const ordo_call *call, ordo_cuda_pass *pass)
{
    const ordo_problem *p = &plan->problem;
    uint64_t tiles = 0;
    (void)ordo_plan_query_tiles(plan, &tiles); /* fits: as made */
    pass->batch = (ordo_cuda_batch) {
        .table = pass->table,
        .sequences = (int32_t)p->batch,
        .tiles = (int32_t)tiles,
        .lse_head = p->layout == ORDO_PACKED ? pass->q_rows : ordo_plan_lse_rows(plan),
    };
    if (pass->layout == ORDO_DENSE)
        take_dense(plan, &pass->batch);
    else
        pass->ragged = ragged_of(plan, call);
}

/* ---- block masks ---- */

static int32_t count_words(int64_t length, int64_t tile)
{
    return count_tiles(count_tiles(length, tile), ORDO_TILE_BITS);
}

/* The lists, and the sizes of the rows and columns of bits; their places have been taken. */
static void take_blocks(const ordo_plan *plan, ordo_pass which, const ordo_block_mask *mask,
                        ordo_cuda_block_mask *blocks)
{
    const ordo_problem *p = &plan->problem;
    const ordo_tile tile = plan->backward_tile;
    const bool forward = which == ORDO_FORWARD;
    const ordo_cuda_block_mask taken = *blocks;
    uint64_t tiles = 0, key_tiles = 0;
    *blocks = (ordo_cuda_block_mask) { .start = NULL };
    if (!mask)
        return;
    (void)ordo_plan_query_tiles(plan, &tiles); /* fit: as made */
    (void)ordo_plan_key_blocks(plan, &key_tiles);
    const int32_t rows = forward ? ORDO_FORWARD_LIST_ROWS : (int32_t)tile.q;
    *blocks = (ordo_cuda_block_mask) {
        .start = mask->start,
        .key = mask->key,
        .first = mask->first,
        .last = mask->last,
        .bits = mask->bits,
        .bits_mask = ordo_keep_blocks(mask->q_len, mask->kv_len),
        .bits_across = count_tiles(mask->kv_len, ORDO_KEEP_COLS),
        .q_len = (int32_t)mask->q_len,
        .entries = (int32_t)mask->entries,
        .mask_sequence = mask->sequences > 1 ? (int32_t)mask->heads : 0,
        .mask_head = mask->heads > 1,
        .lists = (int32_t)mask->heads,
        .rows = rows,
        .across = count_words(p->kv_len, ORDO_BLOCK),
        .down = count_words(p->q_len, tile.q),
        .tiles = (int32_t)tiles * ((int32_t)tile.q / rows),
        .key_tiles = (int32_t)key_tiles,
        .words = taken.words,
        .spans = taken.spans,
        .columns = taken.columns,
    };
}

/* ---- a pass ---- */

static void take_bias(const ordo_problem *p, const ordo_call *call, ordo_cuda_bias *bias)
{
    if (!p->bias.on)
        return;
    const ordo_bias_strides step = ordo_bias_strides_of(p, &call->bias);
    const bool f32 = p->bias.dtype == ORDO_F32;
    const uintptr_t odd = (uintptr_t)(step.sequence | step.head | step.row | p->kv_len) & 1;
    *bias = (ordo_cuda_bias) {
        .data = call->bias.data,
        .sequence = step.sequence,
        .head = step.head,
        .row = step.row,
        .f32 = f32,
        .pairs = odd == 0 && (uintptr_t)call->bias.data % (f32 ? 8 : 4) == 0,
        .per_sequence = p->bias.per_sequence,
        .per_head = p->bias.per_head,
        .grad = call->dbias,
    };
}

static void take_dropout(const ordo_problem *p, const ordo_call *call, ordo_cuda_pass *pass)
{
    if (p->dropout.p == 0)
        return;
    pass->keep_scale = (float)ordo_keep_scale(&p->dropout);
    pass->keep_bits = call->keep_bits;
    pass->keep = ordo_keep_of(&p->dropout, call->seed, call->offset);
    pass->seed_ptr = call->seed_ptr;
    pass->offset_ptr = call->offset_ptr;
    pass->heads_total = (uint32_t)p->shard.heads_total;
    pass->head0 = (uint32_t)p->shard.head0;
    pass->row0 = (uint32_t)p->shard.row0;
    pass->block0 = (uint32_t)(p->shard.col0 / ORDO_KEEP_COLS);
}

ordo_status ordo_cuda_pass_make(const ordo_plan *plan, ordo_pass which, const ordo_call *call,
                                ordo_cuda_pass *pass)
{
    const ordo_problem *p = &plan->problem;
    const ordo_family *family = ordo_family_find(plan->family);
    const bool packed = p->layout == ORDO_PACKED;
    ORDO_TRY(check_heads(p));
    ORDO_TRY(check_counts(plan, which));
    ORDO_TRY(check_call(plan, which, call));
    *pass = (ordo_cuda_pass) {
        .run = ordo_plan_run(plan, p->batch, p->q_len, p->kv_len),
        .layout = layout_of(p, call),
        .head_dim = (int32_t)p->head_dim,
        .v_head_dim = (int32_t)p->v_head_dim,
        .form = which == ORDO_FORWARD ? plan->forward_form : plan->backward_form,
        .f16 = p->dtype == ORDO_F16,
        .scale = (float)p->scale,
        .softcap = (float)p->softcap,
        .slopes = call->slopes,
        .slopes_sequence = call->slopes_batch_stride,
        .sink = call->sink,
        .q_rows = packed ? p->total_q : p->q_len,
        .kv_rows = packed ? p->total_kv : p->kv_len,
        .stream = call->stream,
        .capability = family->capability,
        .kernels = (int32_t)(family->kernels & -family->kernels), /* the lowest set */
    };
    take_dropout(p, call, pass);
    ORDO_TRY(take_tensors(p, which, call, pass));
    take_workspace(plan, which, call, pass);
    take_batch(plan, call, pass);
    take_blocks(plan, which, call->block_mask, &pass->blocks);
    take_bias(p, call, &pass->bias);
    return ORDO_OK;
}

/* The last part of a workspace. */
static ordo_cuda_spread spread_of(const ordo_plan *plan, const ordo_call *call)
{
    ordo_forward_parts parts;
    uint64_t bytes = 0;
    (void)ordo_plan_forward_parts(plan, 0, &parts); /* both fit: as made */
    (void)ordo_plan_forward_bytes(plan, &bytes);
    return (ordo_cuda_spread) {
        .workspace = (char *)call->workspace + (bytes - parts.spread),
        .slots = (int32_t)ordo_plan_spread_slots(plan),
        .lines = (int32_t)ordo_plan_spread_lines(&plan->problem),
    };
}

ordo_cuda_pages ordo_cuda_pages_of(const ordo_plan *plan, const ordo_call *call)
{
    const ordo_problem *p = &plan->problem;
    const ordo_paging *paging = &p->paging;
    return (ordo_cuda_pages) {
        .spread = spread_of(plan, call),
        .table = call->page_table,
        .table_stride = call->page_table_stride ? call->page_table_stride : paging->table_columns,
        .rows = (int32_t)paging->page_rows,
        .count = (int32_t)paging->pages,
        .starts = call->kv_starts,
    };
}

/* ---- launching ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What was found out once: whether anything can be launched, and whether passes can. */
typedef struct readiness {
    ordo_status status;
    char why[ORDO_CUDA_WHY_SIZE + 40]; /* "" if it can */
} readiness;
static readiness any, passes;

/* One device that has a family is enough; of several others the last is named. */
static ordo_status look_for_family(const ordo_cuda_module *module, int count)
{
    char names[64];
    ordo_device d = { .major = 0 };
    ordo_family_names(ORDO_BACKEND_CUDA, names, sizeof names);
    for (int i = 0; i < count; i++) {
        ORDO_TRY(ordo_cuda_answer(module, module->device_query(i, &d)));
        if (ordo_family_of(10 * d.major + d.minor))
            return ORDO_OK;
    }
    return ordo_fail(ORDO_ERR_UNSUPPORTED,
                     "backend cuda: device %d, %.100s, has compute capability %d.%d, expected %s",
                     count - 1, d.name, d.major, d.minor, names);
}

static void found(readiness *r, ordo_status status, const char *name)
{
    r->status = status;
    if (status != ORDO_OK)
        snprintf(r->why, sizeof r->why, "%s%s", name, ordo_last_error());
}

static void look(void)
{
    const ordo_cuda_module *module = NULL;
    int count = 0;
    ordo_status status = ordo_cuda_module_get(&module, NULL);
    const char *name = status == ORDO_OK ? "" : "backend cuda: "; /* the module's own have it */
    if (status == ORDO_OK)
        status = ordo_cuda_answer(module, module->device_count(&count));
    found(&any, status, name);
    if (status == ORDO_OK)
        status = look_for_family(module, count);
    found(&passes, status, name);
}

const char *ordo_cuda_why_not(void)
{
    pthread_once(&once, look);
    return passes.why;
}

ordo_status ordo_cuda_ready(void)
{
    pthread_once(&once, look);
    return any.status == ORDO_OK ? ORDO_OK : ordo_fail(any.status, "%s", any.why);
}

static ordo_status launch(const ordo_plan *plan, ordo_pass which, const ordo_call *call)
{
    const ordo_cuda_module *module = NULL;
    ordo_cuda_pass pass;
    ORDO_TRY(ordo_cuda_pass_make(plan, which, call, &pass));
    if (*ordo_cuda_why_not())
        return ordo_fail(passes.status, "%s", passes.why);
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    if (which == ORDO_BACKWARD)
        return ordo_cuda_answer(module, module->backward(&pass));
    const ordo_cuda_pages pages = ordo_cuda_pages_of(plan, call);
    return ordo_cuda_answer(module,
                            module->forward(&pass, ordo_paged(&plan->problem) ? &pages : NULL));
}

ordo_status ordo_cuda_forward(const ordo_plan *plan, const ordo_call *call)
{
    return launch(plan, ORDO_FORWARD, call);
}

ordo_status ordo_cuda_backward(const ordo_plan *plan, const ordo_call *call)
{
    return launch(plan, ORDO_BACKWARD, call);
}
