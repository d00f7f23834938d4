/* live.c: lists of the live tiles of a block mask. */
#include "sim/live.h"

#include <stdlib.h>

#include "base/status.h"

void ordo_live_destroy(ordo_live *live)
{
    if (!live)
        return;
    free(live->column);
    free(live->query);
    free(live->before);
    free(live->keys);
    free(live);
}

ordo_status ordo_live_create(ordo_live **live, const ordo_band *band, const uint8_t *blocks)
{
    const int32_t nq = ordo_band_query_tiles(band), nk = ordo_band_key_tiles(band);
    int64_t entries = 0;
    for (int32_t j = 0; j < nk; j++)
        entries += ordo_span_count(ordo_band_queries(band, j));
    ordo_live *created = calloc(1, sizeof *created);
    if (created) {
        created->column = malloc(((size_t)nk + 1) * sizeof *created->column);
        created->query = malloc(((size_t)entries + 1) * sizeof *created->query);
        created->before = malloc(((size_t)entries + 1) * sizeof *created->before);
        created->keys = calloc((size_t)nq + 1, sizeof *created->keys);
    }
    if (!created || !created->column || !created->query || !created->before || !created->keys) {
        ordo_live_destroy(created);
        return ordo_fail(ORDO_ERR_MEMORY, "blocks: %lld tiles", (long long)entries);
    }
    int64_t at = 0;
    for (int32_t j = 0; j < nk; j++) {
        const ordo_span span = ordo_band_queries(band, j);
        created->column[j] = at;
        for (int32_t i = span.first; i <= span.last; i++)
            if (blocks[(int64_t)i * nk + j]) {
                created->query[at] = i;
                created->before[at++] = created->keys[i]++;
            }
    }
    created->column[nk] = at;
    *live = created;
    return ORDO_OK;
}
