/* blocks.c: makes the lists of a block mask, and hides what its partial blocks leave out. */
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

/* The columns of row r of a patch that its band and its block leave, counted from the tile. */
static void row_columns(const ordo_patch *patch, const ordo_block_view *view, int r,
                        uint32_t columns[4])
{
    const ordo_scores *z = &patch->scores;
    const int64_t low = ordo_max32(0, r + z->low), high = ordo_min32(z->cols - 1, r + z->high);
    uint32_t band[4];
    ordo_block_columns(view, patch->row + r, patch->col / ORDO_BLOCK, columns);
    ordo_columns_between(z->origin + low, z->origin + high, band);
    for (int w = 0; w < 4; w++)
        columns[w] &= band[w];
}

void ordo_cpu_patch_elements(const ordo_cpu_pass *pass, int64_t b, int64_t head, ordo_patch *patch,
                             uint32_t *seen)
{
    if (!pass->lists || patch->cols == 0)
        return;
    const ordo_block_view view = ordo_block_view_of(pass->call->block_mask, b, head);
    const int32_t entry = ordo_block_entry(&view, patch->row / ORDO_BLOCK, patch->col / ORDO_BLOCK);
    if (!ordo_block_partial(&view, entry))
        return;
    const int rows = patch->rows, padded = (rows + 15) / 16 * 16;
    uint32_t all[4], any[4] = { 0 };
    bool partial = false;
    ordo_columns_between(patch->skipped, patch->skipped + patch->cols - 1, all);
    for (int r = 0; r < padded; r++) {
        uint32_t columns[4] = { 0 };
        if (r < rows)
            row_columns(patch, &view, r, columns);
        for (int w = 0; w < 4; w++) {
            seen[w * padded + r] = columns[w];
            any[w] |= columns[w];
            partial |= r < rows && columns[w] != all[w];
        }
    }
    if (!partial)
        return;
    int first = 0, end = ORDO_BLOCK;
    while (first < end && !(any[first / 32] >> first % 32 & 1))
        first++;
    while (end > first && !(any[(end - 1) / 32] >> (end - 1) % 32 & 1))
        end--;
    patch->scores.partial = true;
    patch->scores.seen = seen;
    patch->scores.seen_rows = padded;
    ordo_cpu_patch_narrow(patch, first, end);
}
