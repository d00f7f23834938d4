/* pass.c: computes addresses, lengths and tiles for both passes. */
#include "cpu/pass.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/bias.h"
#include "base/constants.h"
#include "base/half.h"
#include "base/pages.h"
#include "base/status.h"
#include "cpu/keep.h"

/* ---- opening ---- */

static void measure(const ordo_cpu_pass *pass, ordo_sequence *s, int64_t b)
{
    const ordo_problem *p = pass->problem;
    const ordo_call *call = pass->call;
    s->q_len = p->q_len;
    s->q_row = s->kv_row = 0;
    if (p->layout == ORDO_PACKED) {
        s->q_row = call->cu_q[b];
        s->q_len = call->cu_q[b + 1] - s->q_row;
    } else if (p->layout == ORDO_PADDED) {
        s->q_len = call->q_lens[b];
    }
    s->kv_start = ordo_kv_start(call, b);
    s->kv_len = ordo_kv_columns(p, call, b);
    if (call->cu_kv)
        s->kv_row = call->cu_kv[b] - s->kv_start;
    s->id = (uint32_t)(call->sequence_ids ? call->sequence_ids[b] : p->shard.batch0 + b);
    s->run = ordo_plan_run(pass->plan, 1, s->q_len, s->kv_len);
}

/* Lengths, and what each sequence adds to the running totals. */
static void measure_all(ordo_cpu_pass *pass)
{
    const ordo_problem *p = pass->problem;
    for (int64_t b = 0; b < p->batch; b++) {
        ordo_sequence *s = &pass->sequences[b], *next = s + 1;
        measure(pass, s, b);
        const bool packed = p->layout == ORDO_PACKED;
        const int64_t rows = packed ? s->q_len : p->q_len, cols = packed ? s->kv_len : p->kv_len;
        next->tile = s->tile + ordo_band_query_tiles(&s->run.band);
        next->block = s->block + p->heads * ordo_keep_blocks(rows, cols);
        for (int cls = 0; cls < 2; cls++)
            next->tickets[cls] = s->tickets[cls] + ordo_run_tickets(&s->run, cls);
    }
}

/* The call's workspace. Under the address sanitizer memory of the pass's own, with room for a gap
 * after each of its parts. */
static ordo_status take_workspace(ordo_cpu_pass *pass)
{
    enum { MOST_PARTS = 16 };
    uint64_t bytes = 0;
    if (ORDO_GAP == 0) {
        pass->workspace = pass->call->workspace;
        return ORDO_OK;
    }
    if (ordo_plan_workspace_bytes(pass->plan, &bytes))
        pass->workspace = aligned_alloc(256, bytes + MOST_PARTS * ORDO_GAP);
    return pass->workspace ? ORDO_OK
                           : ordo_fail(ORDO_ERR_MEMORY, "workspace: %zu bytes", (size_t)bytes);
}

static atomic_int longest_delay; /* in microseconds, of passes that begin from now on */

void ordo_delay_turns(int64_t us)
{
    atomic_store(&longest_delay, us < 0 ? 0 : us > 999999 ? 999999 : (int)us);
}

ordo_status ordo_cpu_pass_open(ordo_cpu_pass *pass, const ordo_plan *plan, const ordo_call *call)
{
    const ordo_problem *p = &plan->problem;
    *pass = (ordo_cpu_pass) {
        .plan = plan,
        .problem = p,
        .call = call,
        .queries = p->heads / p->kv_heads,
        .dim = (int)p->head_dim,
        .v_dim = (int)p->v_head_dim,
        .ld = ordo_panel_row(p->head_dim),
        .v_ld = ordo_panel_row(p->v_head_dim),
        .dropout = p->dropout.p > 0,
        .keep_scale = 1,
        .dq = call->dq.data != NULL,
        .dk_dv = call->dk.data != NULL || (call->carry & ORDO_CARRY_OUT),
    };
    ORDO_TRY(ordo_cpu_kernels(&pass->kernels));
    if (pass->dropout) {
        const uint64_t seed = call->seed_ptr ? *call->seed_ptr : call->seed;
        const uint64_t offset = call->offset_ptr ? *call->offset_ptr : call->offset;
        pass->keep = ordo_keep_of(&p->dropout, seed, offset);
        pass->keep_scale = (float)ordo_keep_scale(&p->dropout);
    }
    pass->delay_us = atomic_load(&longest_delay);
    pass->sequences = calloc((size_t)p->batch + 1, sizeof *pass->sequences);
    if (!pass->sequences)
        return ordo_fail(ORDO_ERR_MEMORY, "batch %lld: no memory for its lengths",
                         (long long)p->batch);
    measure_all(pass);
    return take_workspace(pass);
}

void ordo_cpu_pass_close(ordo_cpu_pass *pass)
{
    if (ORDO_GAP > 0)
        free(pass->workspace);
    for (int64_t x = 0; x < pass->lists_count; x++)
        ordo_lists_destroy(&pass->lists[x]);
    free(pass->lists);
    free(pass->sequences);
}

/* ---- addresses ---- */

ordo_rows ordo_cpu_rows(const ordo_cpu_pass *pass, const ordo_tensor *tensor, ordo_side side,
                        int64_t dim, int64_t b, int64_t row, int64_t head)
{
    const ordo_problem *p = pass->problem;
    const bool paged = side == ORDO_KEYS && ordo_paged(p);
    const int64_t heads = side == ORDO_QUERIES ? p->heads : p->kv_heads;
    const int64_t length = side == ORDO_QUERIES ? p->q_len
                           : paged              ? p->paging.page_rows
                                                : p->kv_len;
    const int64_t *step = tensor->stride;
    const bool packed = p->layout == ORDO_PACKED && !paged; /* has no first stride */
    if (paged) {
        const ordo_page_place at = ordo_page_of(p, pass->call, b, row);
        b = pass->call->page_table[at.entry];
        row = at.row;
    }
    const bool contiguous = (packed || !step[0]) && !step[1] && !step[2] && !step[3];
    const int64_t by_head = contiguous ? dim : step[2];
    const int64_t by_row = contiguous ? heads * dim : step[1];
    int64_t at = row * by_row + head * by_head;
    if (packed)
        at +=
            (side == ORDO_QUERIES ? pass->sequences[b].q_row : pass->sequences[b].kv_row) * by_row;
    else
        at += b * (contiguous ? length * heads * dim : step[0]);
    const size_t width = p->dtype == ORDO_F32 ? 4 : 2;
    return (ordo_rows) { (char *)tensor->data + (size_t)at * width, by_row };
}

void ordo_cpu_fetch(const ordo_cpu_pass *pass, ordo_rows rows, int first, int end, int dim)
{
    enum { LINE = 64 };
    const ptrdiff_t width = pass->problem->dtype == ORDO_F32 ? 4 : 2;
    for (int r = first; r < end; r++)
        for (ptrdiff_t x = 0; x < dim * width; x += LINE)
            __builtin_prefetch((const char *)rows.data + r * rows.stride * width + x, 0, 2);
}

int64_t ordo_cpu_lse_at(const ordo_cpu_pass *pass, int64_t b, int64_t head, int64_t row)
{
    const ordo_problem *p = pass->problem;
    if (p->layout == ORDO_PACKED)
        return head * p->total_q + pass->sequences[b].q_row + row;
    return (b * p->heads + head) * ordo_plan_lse_rows(pass->plan) + row;
}

int64_t ordo_cpu_find(const ordo_cpu_pass *pass, int64_t ticket,
                      int64_t (*before)(const ordo_cpu_pass *pass, int64_t b))
{
    int64_t low = 0, high = pass->problem->batch; /* before(low) <= ticket < before(high) */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (before(pass, middle) <= ticket)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- tiles ---- */

/* scale / softcap as a float that is neither zero nor infinite, since a score may be either. Where
 * it is clamped, logits are as good as linear or constant. */
static float to_cap(const ordo_problem *p)
{
    if (p->softcap == 0)
        return 0;
    const double ratio = fmin(fmax(fabs(p->scale) / p->softcap, 0x1p-149), (double)FLT_MAX);
    return (float)copysign(ratio, p->scale);
}

ordo_patch ordo_cpu_patch(const ordo_cpu_pass *pass, const ordo_band *band, int32_t i, int32_t j,
                          int64_t b, int64_t head, int ld)
{
    const ordo_problem *p = pass->problem;
    const ordo_call *call = pass->call;
    const int32_t row = i * band->bq, col = j * band->bk;
    const int32_t rows = ordo_min32(band->bq, band->q_len - row);
    const int32_t cols = ordo_min32(band->bk, band->kv_len - col);
    /* columns that the first row's lower limit and the last row's upper limit leave */
    const int64_t first = (int64_t)row + band->low - col,
                  last = (int64_t)row + rows - 1 + band->high - col;
    const int32_t skipped = first <= 0 ? 0 : first >= cols ? cols : (int32_t)first;
    const int32_t end = last < 0 ? 0 : last >= cols ? cols : (int32_t)last + 1;
    ordo_patch patch = { .row = row,
                         .col = col + skipped,
                         .rows = rows,
                         .cols = end > skipped ? end - skipped : 0,
                         .skipped = skipped };
    const int64_t away = row - (int64_t)patch.col;
    const int64_t low = band->low + away, high = band->high + away;
    const int64_t diagonal = ordo_plan_diagonal(pass->plan, band->q_len, band->kv_len);
    const double slope = p->alibi ? call->slopes[b * call->slopes_batch_stride + head] : 0;
    patch.scores = (ordo_scores) {
        .rows = rows,
        .cols = patch.cols,
        .ld = ld,
        .origin = skipped,
        .low = low < -ORDO_BAND_OPEN ? -ORDO_BAND_OPEN : (int)low,
        .high = high > ORDO_BAND_OPEN ? ORDO_BAND_OPEN : (int)high,
        .scale2 = (float)(p->scale * ORDO_LOG2_E),
        .softcap2 = (float)(p->softcap * ORDO_LOG2_E),
        .to_cap = to_cap(p),
        .slope2 = ordo_f32_from_f64(slope * ORDO_LOG2_E),
        .distance = (int)(row + diagonal - patch.col),
        .keep_scale = pass->keep_scale,
    };
    /* row r sees low <= c - r <= high; all do if the corners do */
    patch.scores.partial = 0 - (rows - 1) < low || patch.cols - 1 > high;
    return patch;
}

void ordo_cpu_patch_narrow(ordo_patch *patch, int first, int end)
{
    const int from = ordo_max32(first, patch->skipped);
    const int to = ordo_min32(end, patch->skipped + patch->cols);
    const int less = from - patch->skipped; /* columns at the left */
    patch->skipped = from;
    patch->col += less;
    patch->cols = patch->scores.cols = to > from ? to - from : 0;
    patch->scores.origin += less;
    patch->scores.low -= less;
    patch->scores.high -= less;
    patch->scores.distance -= less;
}

static bool element_visible(const ordo_scores *z, int r, int c)
{
    const int at = c + z->origin;
    if (z->bias && ordo_bias_hides(z->bias[(ptrdiff_t)c * z->bias_ld + r]))
        return false;
    if (z->seen)
        return z->seen[(ptrdiff_t)(at / 32) * z->seen_rows + r] >> at % 32 & 1;
    return c - r >= z->low && c - r <= z->high;
}

void ordo_cpu_product_careful(const ordo_scores *scores, bool by_column, int m, int n, int k,
                              const float *a, int a_row, int a_k, const float *b, int ldb, float *c,
                              int ldc)
{
    for (int i = 0; i < m; i++)
        for (int x = 0; x < k; x++) {
            if (!element_visible(scores, by_column ? x : i, by_column ? i : x))
                continue;
            for (int j = 0; j < n; j++)
                c[(ptrdiff_t)i * ldc + j] =
                    fmaf(a[(ptrdiff_t)i * a_row + (ptrdiff_t)x * a_k], b[(ptrdiff_t)x * ldb + j],
                         c[(ptrdiff_t)i * ldc + j]);
        }
}

void ordo_cpu_quiet(float *panel, int rows, int ld, int cols)
{
    for (int r = 0; r < rows; r++, panel += ld)
        for (int c = 0; c < cols; c++)
            if (panel[c] != panel[c])
                panel[c] = ordo_f32_of_bits(ORDO_F32_NAN);
}

/* ---- bias and keep bits ---- */

static void load_bias(const ordo_cpu_pass *pass, int64_t b, int64_t head, ordo_patch *patch,
                      float *panel, int ld)
{
    const ordo_problem *p = pass->problem;
    const ordo_tensor *bias = &pass->call->bias;
    const ordo_bias_strides step = ordo_bias_strides_of(p, bias);
    const int64_t at = b * step.sequence + head * step.head + patch->row * step.row + patch->col;
    const size_t width = p->bias.dtype == ORDO_F32 ? 4 : 2;
    if (!pass->kernels->load_transposed(panel, ld, (const char *)bias->data + (size_t)at * width,
                                        p->bias.dtype, step.row, patch->rows, patch->cols))
        ordo_cpu_quiet(panel, patch->cols, ld, patch->rows);
    patch->scores.bias = panel;
    patch->scores.bias_ld = ld;
    patch->scores.partial = true; /* it may hide something */
}

/* Write the keep bits of a patch as ordo_scores.keep expects them. A word holds columns of one row;
 * kernels take one column of 16 rows, so rows are put side by side and the bit picked there. */
static void make_keep(const ordo_cpu_pass *pass, int64_t b, int64_t head, const ordo_patch *patch,
                      uint32_t *words, int groups)
{
    const ordo_problem *p = pass->problem;
    const ordo_sequence *s = &pass->sequences[b];
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t stored_rows = packed ? s->q_len : p->q_len;
    const int64_t stored_cols = packed ? s->kv_len : p->kv_len;
    const int64_t across = (stored_cols + ORDO_KEEP_COLS - 1) / ORDO_KEEP_COLS;
    const int64_t first = s->block + head * ordo_keep_blocks(stored_rows, stored_cols);
    const uint32_t bh = (uint32_t)((int64_t)s->id * p->shard.heads_total + p->shard.head0 + head);
    const int64_t row = patch->row, col = patch->col, c0 = col / ORDO_KEEP_COLS;
    for (int64_t c128 = c0; c128 * ORDO_KEEP_COLS < col + patch->cols; c128++)
        for (int64_t r16 = row / 16; r16 * 16 < row + patch->rows; r16++) {
            uint32_t made[ORDO_KEEP_WORDS];
            const uint32_t *from = made;
            if (pass->call->keep_bits)
                from = pass->call->keep_bits + (first + r16 * across + c128) * ORDO_KEEP_WORDS;
            else
                ordo_keep_fill(&pass->keep, bh, (uint32_t)(p->shard.row0 + r16 * 16),
                               (uint32_t)(p->shard.col0 / ORDO_KEEP_COLS + c128), 1, made);
            for (int x = 0; x < 16; x++) {
                const int64_t r = r16 * 16 + x - row; /* tiles need not begin at a block */
                if (r < 0 || r >= patch->rows)
                    continue;
                uint32_t *to = words + (((c128 - c0) * groups + r / 16) * 4) * 16 + r % 16;
                for (int q = 0; q < 4; q++)
                    to[16 * q] = from[((x & 7) * 4 + q) * 2 + (x >> 3)];
            }
        }
}

void ordo_cpu_patch_load(const ordo_cpu_pass *pass, int64_t b, int64_t head, ordo_patch *patch,
                         float *bias, uint32_t *keep, int groups)
{
    if (patch->cols == 0) /* its column may lie after the last */
        return;
    if (pass->problem->bias.on)
        load_bias(pass, b, head, patch, bias, 16 * groups);
    if (!pass->dropout)
        return;
    make_keep(pass, b, head, patch, keep, groups);
    patch->scores.keep = keep;
    patch->scores.keep_groups = groups;
    patch->scores.keep_column = (int)(patch->col % ORDO_KEEP_COLS);
}
