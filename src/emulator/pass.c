/* pass.c: makes the description of a pass from a plan and a call. */
#include "emulator/pass.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bias.h"
#include "base/constants.h"
#include "base/gap.h"
#include "base/half.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/target.h"
#include "plan/family.h"
#include "plan/phase.h"

enum { HEAD_STEP = 8, STEP = 64 /* columns of the operands of all products are padded to this */ };

/* ---- opening ---- */

/* What the kernels do not compute, and what is not ported. */
static ordo_status check(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    if (p->head_dim % HEAD_STEP != 0 || p->v_head_dim % HEAD_STEP != 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "head_dim %" PRId64 ", v_head_dim %" PRId64
                         ": backend emulator expects multiples of %d, as the kernels do",
                         p->head_dim, p->v_head_dim, HEAD_STEP);
    return ORDO_OK;
}

static void measure(const ordo_emulator_pass *pass, ordo_emulator_sequence *s, int64_t b)
{
    const ordo_problem *p = pass->problem;
    const ordo_call *call = pass->call;
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t kv_len = ordo_kv_columns(p, call, b);
    int64_t q_len = p->q_len;
    if (packed) {
        s->q_row = call->cu_q[b];
        q_len = call->cu_q[b + 1] - s->q_row;
    } else if (p->layout == ORDO_PADDED) {
        q_len = call->q_lens[b];
    }
    s->kv_start = (int32_t)ordo_kv_start(call, b);
    if (call->cu_kv)
        s->kv_row = call->cu_kv[b] - s->kv_start;
    const ordo_band band = ordo_plan_band(pass->plan, q_len, kv_len);
    s->q_len = band.q_len;
    s->kv_len = band.kv_len;
    s->low = band.low;
    s->high = band.high;
    s->diagonal = (int32_t)ordo_plan_diagonal(pass->plan, q_len, kv_len);
    s->id = (uint32_t)(call->sequence_ids ? call->sequence_ids[b] : p->shard.batch0 + b);
    s->keep_columns = packed ? kv_len : p->kv_len;
    s->keep_head = ordo_keep_blocks(packed ? q_len : p->q_len, s->keep_columns);
}

static ordo_status open_sequences(ordo_emulator_pass *pass)
{
    const ordo_problem *p = pass->problem;
    const ordo_emulator_visits *w = &pass->backward;
    pass->sequences = calloc((size_t)p->batch + 1, sizeof *pass->sequences);
    if (!pass->sequences)
        return ordo_fail(ORDO_ERR_MEMORY, "emulator: no memory for %" PRId64 " sequences",
                         p->batch);
    for (int64_t b = 0; b < p->batch; b++) {
        ordo_emulator_sequence *s = &pass->sequences[b], *next = s + 1;
        measure(pass, s, b);
        next->keep = s->keep + p->heads * s->keep_head;
        next->before[ORDO_AUDIT_O] = s->before[ORDO_AUDIT_O] + p->heads * ((s->q_len + 63) / 64);
        next->before[ORDO_AUDIT_DQ] =
            s->before[ORDO_AUDIT_DQ] + p->heads * ((s->q_len + w->rows - 1) / w->rows);
        next->before[ORDO_AUDIT_DK_DV] =
            s->before[ORDO_AUDIT_DK_DV] + p->kv_heads * ((s->kv_len + w->keys - 1) / w->keys);
        next->before[ORDO_AUDIT_DSINK] = s->before[ORDO_AUDIT_DSINK] + p->heads;
    }
    return ORDO_OK;
}

/* Sequences that have separate lists: those of different lengths do. */
static int64_t own_lists(const ordo_emulator_pass *pass)
{
    const bool dense = pass->problem->layout == ORDO_DENSE;
    return dense && pass->call->block_mask->sequences == 1 ? 1 : pass->problem->batch;
}

static ordo_status open_lists(ordo_emulator_pass *pass)
{
    const ordo_block_mask *mask = pass->call->block_mask;
    if (!mask)
        return ORDO_OK;
    const int64_t count = own_lists(pass) * mask->heads;
    pass->lists = calloc((size_t)count + 1, sizeof *pass->lists);
    if (!pass->lists)
        return ordo_fail(ORDO_ERR_MEMORY, "block mask: no memory for %" PRId64 " lists", count);
    for (; pass->lists_count < count; pass->lists_count++) {
        const int64_t b = pass->lists_count / mask->heads, head = pass->lists_count % mask->heads;
        const ordo_block_view view = ordo_block_view_of(mask, b, head);
        const ordo_emulator_sequence *s = &pass->sequences[b];
        const ordo_band band = { .q_len = s->q_len,
                                 .kv_len = s->kv_len,
                                 .bq = pass->which == ORDO_FORWARD ? ORDO_FORWARD_LIST_ROWS
                                                                   : pass->backward.rows,
                                 .bk = ORDO_BLOCK,
                                 .low = s->low,
                                 .high = s->high };
        ORDO_TRY(ordo_lists_create(&pass->lists[pass->lists_count], &band, &view));
    }
    return ORDO_OK;
}

/* The head size that the kernels of a plan are compiled for. */
static int bucket_of(const ordo_plan *plan)
{
    return ordo_family_row_of(ordo_family_find(plan->family), &plan->problem)->head_dim;
}

/* Dense, no window, no rule, whole head sizes, an order without groups: the kernels for these give
 * a row that sees nothing the delta of its inputs, all others give it 0. */
static bool dense(const ordo_emulator_pass *pass)
{
    const ordo_plan *plan = pass->plan;
    const ordo_problem *p = pass->problem;
    const ordo_call *c = pass->call;
    const int bucket = bucket_of(plan);
    const bool made = pass->dropout && !c->keep_bits;
    return p->layout == ORDO_DENSE && !(made && c->sequence_ids) && bucket <= 128 &&
           p->head_dim == bucket && p->v_head_dim == bucket &&
           !(p->window.on && p->window.left >= 0) &&
           (plan->order == ORDO_ORDER_ASCENDING || plan->order == ORDO_ORDER_DESCENDING) &&
           !pass->has_rule && pass->dq && pass->dk_dv && !(made && c->carry) && !c->block_mask;
}

static ordo_emulator_visits backward_of(const ordo_emulator_pass *pass)
{
    const ordo_plan *plan = pass->plan;
    const bool phases = ordo_plan_by_phases(plan, ORDO_BACKWARD);
    const bool chained = plan->backward_form == ORDO_FORM_CHAIN;
    return (ordo_emulator_visits) {
        .flash = !phases,
        .rows = (int)plan->backward_tile.q,
        .keys = !phases   ? (int)plan->backward_tile.k
                : chained ? ORDO_CHAIN_KEYS
                          : (int)plan->backward_tile.q,
        .bucket = bucket_of(plan),
        .dense = dense(pass),
    };
}

static int padded(int64_t dim)
{
    return (int)((dim + STEP - 1) / STEP * STEP);
}

ordo_status ordo_emulator_open(ordo_emulator_pass *pass, const ordo_plan *plan, ordo_pass which,
                               const ordo_call *call)
{
    const ordo_problem *p = &plan->problem;
    const float scale = (float)p->scale;
    *pass = (ordo_emulator_pass) { .plan = plan,
                                   .problem = p,
                                   .call = call,
                                   .which = which,
                                   .group = (int32_t)(p->heads / p->kv_heads),
                                   .dim = (int)p->head_dim,
                                   .v_dim = (int)p->v_head_dim,
                                   .wide = padded(p->head_dim),
                                   .v_wide = padded(p->v_head_dim),
                                   .dtype = p->dtype,
                                   .f16 = p->dtype == ORDO_F16,
                                   .dropout = p->dropout.p > 0,
                                   .keep_scale = 1.0f,
                                   .dq = call->dq.data != NULL,
                                   .dk_dv = call->dk.data != NULL || call->carry != 0 };
    const char *target;
    ORDO_TRY(ordo_target_name(&target)); /* a wrong ORDO_CPU */
    ORDO_TRY(check(plan));
    pass->rule = ordo_score_rule_of(scale, (float)p->softcap, p->alibi);
    pass->has_rule = p->softcap > 0 || p->alibi || p->bias.on || scale < 0.0f;
    pass->scale_log2 = pass->has_rule ? pass->rule.to_log2 : scale * (float)ORDO_LOG2_E;
    pass->natural = pass->has_rule ? pass->rule.natural : scale;
    if (pass->dropout) {
        pass->keep = ordo_keep_of(&p->dropout, call->seed_ptr ? *call->seed_ptr : call->seed,
                                  call->offset_ptr ? *call->offset_ptr : call->offset);
        pass->keep_scale = (float)ordo_keep_scale(&p->dropout);
    }
    pass->backward = backward_of(pass);
    ORDO_TRY(open_sequences(pass));
    return open_lists(pass);
}

void ordo_emulator_close(ordo_emulator_pass *pass)
{
    for (int64_t x = 0; x < pass->lists_count; x++)
        ordo_lists_destroy(&pass->lists[x]);
    free(pass->lists);
    free(pass->sequences);
}

/* ---- rows ---- */

ordo_emulator_rows ordo_emulator_rows_of(const ordo_emulator_pass *pass, const ordo_tensor *tensor,
                                         ordo_emulator_side side, int64_t dim, int64_t b,
                                         int64_t head)
{
    const ordo_problem *p = pass->problem;
    const ordo_emulator_sequence *s = &pass->sequences[b];
    const bool queries = side == ORDO_EMULATOR_QUERIES, packed = p->layout == ORDO_PACKED;
    const int64_t heads = queries ? p->heads : p->kv_heads;
    const int64_t rows = queries ? p->q_len : p->kv_len, *step = tensor->stride;
    const bool tight = step[3] == 0; /* as checked: all are 0, or the last one is 1 */
    const int64_t row = tight ? heads * dim : step[1];
    const int64_t at = (packed ? 0 : b * (tight ? rows * row : step[0])) +
                       (queries ? s->q_row : s->kv_row) * row + head * (tight ? dim : step[2]);
    return (ordo_emulator_rows) { (uint16_t *)tensor->data + at, row };
}

static const uint16_t *paged_row(const ordo_emulator_pass *pass, const ordo_tensor *tensor,
                                 int64_t dim, int64_t b, int64_t head, int32_t column)
{
    const ordo_problem *p = pass->problem;
    const ordo_page_place at = ordo_page_of(p, pass->call, b, column);
    const bool tight = tensor->stride[3] == 0;
    const int64_t row = tight ? p->kv_heads * dim : tensor->stride[1];
    const int64_t page = tight ? p->paging.page_rows * row : tensor->stride[0];
    return (const uint16_t *)tensor->data + pass->call->page_table[at.entry] * page + at.row * row +
           head * (tight ? dim : tensor->stride[2]);
}

const uint16_t *ordo_emulator_row(const ordo_emulator_pass *pass, const ordo_tensor *tensor,
                                  ordo_emulator_side side, int64_t dim, int64_t b, int64_t head,
                                  int32_t row)
{
    const ordo_emulator_sequence *s = &pass->sequences[b];
    const bool keys = side == ORDO_EMULATOR_KEYS;
    if (row >= (keys ? s->kv_len : s->q_len) || (keys && row < s->kv_start))
        return NULL;
    if (keys && ordo_paged(pass->problem))
        return paged_row(pass, tensor, dim, b, head, row);
    const ordo_emulator_rows rows = ordo_emulator_rows_of(pass, tensor, side, dim, b, head);
    return rows.data + row * rows.stride;
}

int64_t ordo_emulator_lse(const ordo_emulator_pass *pass, int64_t b, int64_t head)
{
    const ordo_problem *p = pass->problem;
    if (p->layout == ORDO_PACKED)
        return head * p->total_q + pass->sequences[b].q_row;
    return (b * p->heads + head) * ordo_plan_lse_rows(pass->plan);
}

float ordo_emulator_slope(const ordo_emulator_pass *pass, int64_t b, int64_t head)
{
    const ordo_call *c = pass->call;
    return pass->problem->alibi ? c->slopes[b * c->slopes_batch_stride + head] : 0.0f;
}

float ordo_emulator_bias(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t row,
                         int32_t key)
{
    const ordo_problem *p = pass->problem;
    const ordo_emulator_sequence *s = &pass->sequences[b];
    if (!p->bias.on || row >= s->q_len || key >= s->kv_len)
        return 0.0f;
    const ordo_bias_strides step = ordo_bias_strides_of(p, &pass->call->bias);
    const int64_t at = b * step.sequence + head * step.head + row * step.row + key;
    const void *data = pass->call->bias.data;
    switch (p->bias.dtype) {
    case ORDO_F32: return ((const float *)data)[at];
    case ORDO_BF16: return ordo_f32_from_bf16(((const uint16_t *)data)[at]);
    case ORDO_F16: return ordo_f32_from_f16(((const uint16_t *)data)[at]);
    }
    return 0.0f;
}

/* ---- results ---- */

typedef struct element {
    const char *tensor;
    int64_t b, head, row, column;
    uint32_t found, expected;
    double found_value, expected_value;
} element;

static void tell(ordo_audit_difference *to, const element *x)
{
    if (to->count++ > 0)
        return;
    to->differs = true;
    memset(to->tensor, 0, sizeof to->tensor);
    memcpy(to->tensor, x->tensor, strlen(x->tensor));
    to->sequence = x->b;
    to->head = x->head;
    to->row = x->row;
    to->column = x->column;
    to->found = x->found;
    to->expected = x->expected;
    to->found_value = x->found_value;
    to->expected_value = x->expected_value;
}

static double value_of(const ordo_emulator_pass *pass, uint16_t x)
{
    return pass->f16 ? (double)ordo_f32_from_f16(x) : (double)ordo_f32_from_bf16(x);
}

void ordo_emulator_put(const ordo_emulator_pass *pass, const char *tensor, int64_t b, int64_t head,
                       int64_t row, uint16_t *to, const uint16_t *from, int n)
{
    if (!pass->audit) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    for (int c = 0; c < n; c++)
        if (to[c] != from[c]) {
            const element x = { tensor,
                                b,
                                head,
                                row,
                                c,
                                to[c],
                                from[c],
                                value_of(pass, to[c]),
                                value_of(pass, from[c]) };
            tell(pass->audit, &x);
        }
}

/* One number of f32. */
static void put_number(const ordo_emulator_pass *pass, const char *tensor, int64_t b, int64_t head,
                       int64_t row, int64_t column, float *to, float from)
{
    const uint32_t found = ordo_f32_bits(*to), expected = ordo_f32_bits(from);
    if (!pass->audit)
        *to = from;
    else if (found != expected) {
        const element x = {
            tensor, b, head, row, column, found, expected, (double)*to, (double)from
        };
        tell(pass->audit, &x);
    }
}

void ordo_emulator_put_lse(const ordo_emulator_pass *pass, int64_t b, int64_t head, int64_t row,
                           float lse)
{
    put_number(pass, "lse", b, head, row, 0,
               pass->call->lse + ordo_emulator_lse(pass, b, head) + row, lse);
}

void ordo_emulator_put_sink(const ordo_emulator_pass *pass, int64_t b, int64_t head, float part)
{
    put_number(pass, "dsink", b, head, 0, 0,
               pass->call->dsink_parts + b * pass->problem->heads + head, part);
}

void ordo_emulator_put_bias(const ordo_emulator_pass *pass, int64_t b, int64_t head, int64_t row,
                            int64_t column, float sum)
{
    const ordo_problem *p = pass->problem;
    const int64_t line = (b * ordo_bias_heads(p) + head) * p->q_len + row;
    put_number(pass, "dbias", b, head, row, column, pass->call->dbias + line * p->kv_len + column,
               sum == sum ? sum : ordo_f32_of_bits(ORDO_F32_NAN));
}

/* ---- masks ---- */

const ordo_lists *ordo_emulator_lists(const ordo_emulator_pass *pass, int64_t b, int64_t head)
{
    if (!pass->lists)
        return NULL;
    const int64_t heads = pass->call->block_mask->heads;
    return &pass->lists[(own_lists(pass) > 1 ? b : 0) * heads + (heads > 1 ? head : 0)];
}

/* What masks leave. */
static void masked(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t row,
                   int32_t key0, int32_t keys, uint32_t words[8])
{
    const ordo_emulator_sequence *s = &pass->sequences[b];
    const int32_t first = ordo_max32(ordo_max32(key0, s->kv_start), row + s->low) - key0;
    const int32_t last = ordo_min32(ordo_min32(key0 + keys, s->kv_len) - 1, row + s->high) - key0;
    const bool any = row < s->q_len && first <= last;
    ordo_columns_between(any ? first : 0, any ? last : -1, words);
    ordo_columns_between(any ? first - 128 : 0, any ? last - 128 : -1, words + 4);
    if (!pass->lists || !any)
        return;
    const ordo_block_view view = ordo_block_view_of(pass->call->block_mask, b, head);
    const int32_t entry = ordo_block_entry(&view, row / ORDO_BLOCK, key0 / ORDO_BLOCK);
    uint32_t own[4] = { 0 };
    if (entry >= 0 && !ordo_block_partial(&view, entry))
        return;
    if (entry >= 0)
        ordo_block_columns(&view, row, key0 / ORDO_BLOCK, own);
    for (int w = 0, at = key0 % ORDO_BLOCK / 32; w < 4; w++)
        words[w] &= at + w < 4 ? own[at + w] : 0;
}

void ordo_emulator_sees(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t row,
                        int32_t key0, int32_t keys, uint32_t words[8])
{
    masked(pass, b, head, row, key0, keys, words);
    for (int j = 0; pass->problem->bias.on && j < keys; j++)
        if (ordo_bias_hides(ordo_emulator_bias(pass, b, head, row, key0 + j)))
            words[j / 32] &= ~(1u << j % 32);
}

void ordo_emulator_kept(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t row,
                        int32_t key0, int32_t keys, uint32_t words[8])
{
    const ordo_problem *p = pass->problem;
    const ordo_emulator_sequence *s = &pass->sequences[b];
    const uint32_t *given = pass->call->keep_bits;
    const uint32_t bh = s->id * (uint32_t)p->shard.heads_total + (uint32_t)(p->shard.head0 + head);
    const int32_t end = key0 + keys;
    memset(words, 0xff, 8 * sizeof *words);
    for (int32_t block = key0 / ORDO_KEEP_COLS; block * ORDO_KEEP_COLS < ordo_min32(end, s->kv_len);
         block++) {
        uint32_t quads[4], columns[4];
        if (row >= s->q_len)
            break;
        for (uint32_t quad = 0; quad < 4; quad++)
            quads[quad] =
                given ? given[(s->keep + head * s->keep_head) * ORDO_KEEP_WORDS +
                              ordo_keep_index(s->keep_columns, row, block, quad)]
                      : ordo_keep_word(&pass->keep, bh, (uint32_t)(p->shard.row0 + row),
                                       (uint32_t)(p->shard.col0 / ORDO_KEEP_COLS + block), quad);
        ordo_keep_columns(quads, columns);
        for (int w = 0; w < 4; w++) {
            const int32_t at = (block * ORDO_KEEP_COLS - key0) / 32 + w;
            if (at >= 0 && at < keys / 32)
                words[at] = columns[w];
        }
    }
}

/* ---- memory ---- */

void *ordo_emulator_take(ordo_emulator_arena *arena, size_t bytes)
{
    char *piece = arena->base ? arena->base + arena->used : NULL;
    arena->used += (bytes + 63) / 64 * 64 + ORDO_GAP;
    if (piece)
        ordo_gap_close(piece + bytes, arena->base + arena->used);
    return piece;
}
