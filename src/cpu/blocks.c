/* blocks.c: makes the lists of a block mask, and hides what its intervals leave out. */
#include "cpu/blocks.h"

#include <stdlib.h>

#include "base/status.h"

/* ---- lists ---- */

/* Sequences and heads that have separate lists. Sequences of different lengths do. */
static int64_t own_sequences(const ordo_cpu_pass *pass)
{
    const bool dense = pass->problem->layout == ORDO_DENSE;
    return dense && pass->call->block_mask->sequences == 1 ? 1 : pass->problem->batch;
}

ordo_status ordo_cpu_lists_open(ordo_cpu_pass *pass, ordo_tile tile)
{
    const ordo_block_mask *mask = pass->call->block_mask;
    if (!mask)
        return ORDO_OK;
    const int64_t count = own_sequences(pass) * mask->heads;
    pass->lists = calloc((size_t)count, sizeof *pass->lists);
    if (!pass->lists)
        return ordo_fail(ORDO_ERR_MEMORY, "block mask: no memory for %lld lists", (long long)count);
    for (; pass->lists_count < count; pass->lists_count++) {
        const int64_t b = pass->lists_count / mask->heads, head = pass->lists_count % mask->heads;
        const ordo_block_view view = ordo_block_view_of(mask, b, head);
        ordo_band band = pass->sequences[b].run.band;
        band.bq = (int32_t)tile.q;
        band.bk = (int32_t)tile.k;
        ORDO_TRY(ordo_lists_create(&pass->lists[pass->lists_count], &band, &view));
    }
    return ORDO_OK;
}

const ordo_lists *ordo_cpu_lists(const ordo_cpu_pass *pass, int64_t b, int64_t head)
{
    if (!pass->lists)
        return NULL;
    const int64_t heads = pass->call->block_mask->heads;
    return &pass->lists[(own_sequences(pass) > 1 ? b : 0) * heads + (heads > 1 ? head : 0)];
}

/* ---- tiles ---- */

/* The columns of a patch that row r sees, by the band and its interval. */
static ordo_span row_span(const ordo_patch *patch, const ordo_block_view *view, int r)
{
    const int64_t row = patch->row + r, low = view->first[row] - patch->col;
    const int64_t high = view->last[row] - patch->col;
    return (ordo_span) { .first = ordo_max32(ordo_max32(0, r + patch->scores.low), (int32_t)low),
                         .last = ordo_min32(ordo_min32(patch->cols - 1, r + patch->scores.high),
                                            (int32_t)high) };
}

void ordo_cpu_patch_intervals(const ordo_cpu_pass *pass, int64_t b, int64_t head, ordo_patch *patch,
                              float *limits)
{
    if (!pass->lists || patch->cols == 0)
        return;
    const ordo_block_view view = ordo_block_view_of(pass->call->block_mask, b, head);
    const int32_t entry = ordo_block_entry(&view, patch->row / ORDO_BLOCK, patch->col / ORDO_BLOCK);
    if (!ordo_block_partial(&view, entry))
        return;
    const int rows = patch->rows, padded = (rows + 15) / 16 * 16;
    ordo_span all = { patch->cols, -1 };
    bool partial = false;
    for (int r = 0; r < padded; r++) {
        ordo_span own = { 0, patch->cols - 1 };
        if (r < rows)
            own = row_span(patch, &view, r);
        limits[r] = (float)own.first;
        limits[padded + r] = (float)own.last;
        partial |= own.first > 0 || own.last < patch->cols - 1;
        if (r < rows && own.first <= own.last) {
            all.first = ordo_min32(all.first, own.first);
            all.last = ordo_max32(all.last, own.last);
        }
    }
    if (!partial)
        return;
    patch->scores.partial = true;
    patch->scores.first = limits;
    patch->scores.last = limits + padded;
    ordo_cpu_patch_narrow(patch, patch->skipped + all.first, patch->skipped + all.last + 1);
}
