/* lists.c: lists the key tiles that each query tile sees through a block mask or element mask. */
#include "plan/lists.h"

#include <stdlib.h>

#include "base/status.h"

/* Whether a row of the tile sees a column of partial block `key` that the band leaves. */
static bool some_row_sees(const ordo_band *band, const ordo_block_view *view, int32_t i,
                          int32_t key)
{
    const int32_t end = ordo_min32((i + 1) * band->bq, band->q_len);
    const int32_t left = key * ORDO_BLOCK;
    const int32_t right = ordo_min32(left + ORDO_BLOCK, band->kv_len) - 1;
    for (int32_t r = i * band->bq; r < end; r++) {
        const int32_t low = ordo_max32(left, r + band->low);
        const int32_t high = ordo_min32(right, r + band->high);
        uint32_t own[4], limit[4];
        ordo_block_columns(view, r, key, own);
        ordo_columns_between(low - left, high - left, limit);
        if ((own[0] & limit[0]) | (own[1] & limit[1]) | (own[2] & limit[2]) | (own[3] & limit[3]))
            return true;
    }
    return false;
}

/* The visible key tiles of query tile i, to `keys` if it is not NULL; how many there are. */
static int64_t list_keys(const ordo_band *band, const ordo_block_view *view, int32_t i,
                         int32_t *keys)
{
    const int64_t row = (int64_t)i * band->bq / ORDO_BLOCK;
    const ordo_span seen = ordo_band_keys(band, i);
    int64_t count = 0;
    for (int32_t x = view->start[row]; x < view->start[row + 1]; x++) {
        const int32_t entry = view->key[x], key = entry & ORDO_BLOCK_KEY;
        if (key < seen.first || key > seen.last)
            continue;
        if (ordo_block_partial(view, entry) && !some_row_sees(band, view, i, key))
            continue;
        if (keys)
            keys[count] = key;
        count++;
    }
    return count;
}

ordo_status ordo_lists_create(ordo_lists *lists, const ordo_band *band, const ordo_block_view *view)
{
    *lists = (ordo_lists) { .nq = ordo_band_query_tiles(band), .nk = ordo_band_key_tiles(band) };
    lists->start = calloc((size_t)lists->nq + 1, sizeof *lists->start);
    for (int32_t i = 0; lists->start && i < lists->nq; i++)
        lists->start[i + 1] = lists->start[i] + list_keys(band, view, i, NULL);
    if (lists->start)
        lists->key = malloc((size_t)(lists->start[lists->nq] + 1) * sizeof *lists->key);
    if (!lists->start || !lists->key) {
        ordo_lists_destroy(lists);
        return ordo_fail(ORDO_ERR_MEMORY, "block mask: no memory for the lists of %d query tiles",
                         lists->nq);
    }
    for (int32_t i = 0; i < lists->nq; i++)
        list_keys(band, view, i, lists->key + lists->start[i]);
    return ORDO_OK;
}

void ordo_lists_destroy(ordo_lists *lists)
{
    free(lists->start);
    free(lists->key);
    lists->start = NULL;
    lists->key = NULL;
}

int32_t ordo_lists_turn(const ordo_lists *lists, ordo_walk_kind kind, int32_t i, int32_t j)
{
    int64_t low = lists->start[i], high = lists->start[i + 1];
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (lists->key[middle] == j)
            return (int32_t)(kind == ORDO_WALK_SPT ? lists->start[i + 1] - 1 - middle
                                                   : middle - lists->start[i]);
        if (lists->key[middle] < j)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* ---- check ---- */

/* Whether some element of tile (i, j) is visible, element by element. */
static bool live(const ordo_band *band, const ordo_block_view *view, int32_t i, int32_t j)
{
    for (int64_t r = (int64_t)i * band->bq; r < (i + 1) * (int64_t)band->bq; r++)
        for (int64_t c = (int64_t)j * band->bk; c < (j + 1) * (int64_t)band->bk; c++)
            if (r < band->q_len && c < band->kv_len && c - r >= band->low && c - r <= band->high &&
                ordo_block_sees(view, r, c))
                return true;
    return false;
}

/* One chain: at every query tile that it visits, its turn is the number of those done. */
static ordo_status replay_chain(const ordo_lists *lists, ordo_walk_kind kind, int32_t j,
                                int32_t *done, uint64_t *pairs)
{
    for (int32_t t = 0; t < lists->nq; t++) {
        const int32_t i = ordo_lists_visit(lists->nq, kind, t);
        const int32_t turn = ordo_lists_turn(lists, kind, i, j);
        if (turn < 0)
            continue;
        if (turn != done[i])
            return ordo_fail(ORDO_ERR_INTERNAL,
                             "block mask: query tile %d: key tile %d has turn %d after %d others",
                             i, j, turn, done[i]);
        done[i]++;
        ++*pairs;
    }
    return ORDO_OK;
}

ordo_status ordo_lists_check(const ordo_lists *lists, ordo_walk_kind kind, const ordo_band *band,
                             const ordo_block_view *view, uint64_t *pairs)
{
    for (int32_t i = 0; i < lists->nq; i++)
        for (int32_t j = 0; j < lists->nk; j++)
            if (live(band, view, i, j) != (ordo_lists_turn(lists, kind, i, j) >= 0))
                return ordo_fail(ORDO_ERR_INTERNAL,
                                 "block mask: query tile %d, key tile %d: listed wrongly", i, j);
    int32_t *done = calloc((size_t)lists->nq + 1, sizeof *done);
    if (!done)
        return ordo_fail(ORDO_ERR_MEMORY, "block mask: %d query tiles", lists->nq);
    ordo_status status = ORDO_OK;
    for (int32_t p = 0; p < lists->nk && status == ORDO_OK; p++)
        status =
            replay_chain(lists, kind, kind == ORDO_WALK_SPT ? lists->nk - 1 - p : p, done, pairs);
    for (int32_t i = 0; i < lists->nq && status == ORDO_OK; i++)
        if (done[i] != ordo_lists_count(lists, i))
            status = ordo_fail(ORDO_ERR_INTERNAL, "block mask: query tile %d: %d of %d turns done",
                               i, done[i], ordo_lists_count(lists, i));
    free(done);
    return status;
}
