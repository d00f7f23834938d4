/* band.h: a mask seen by tiles; which (query tile, key tile) pairs exist.
 *
 * Every mask of ordo is a band: row r sees column c iff low <= c - r <= high, in the
 * coordinates of the rows and columns held here. A band meets a tile row (or column) in one
 * contiguous run of tiles, so all of a schedule follows from four closed forms.
 *
 *          key tile 0    1    2    3            first  last key of query tile
 *   query 0  [ x    .    .    . ]   causal        0     0
 *   tile  1  [ x    x    .    . ]                 0     1
 *         2  [ x    x    x    . ]                 0     2
 *
 * Host and device alike, integers only. Lengths are at most 2^30, so no sum overflows. */
#ifndef PLAN_BAND_H
#define PLAN_BAND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hd.h"
#include "base/mask.h"

enum { ORDO_BAND_OPEN = 1 << 30 }; /* a side with no limit: -OPEN below, +OPEN above */

typedef struct ordo_band {
    int32_t q_len, kv_len; /* rows and columns held here, 0 .. 2^30 */
    int32_t bq, bk;        /* tile sizes */
    int32_t low, high;     /* -OPEN .. OPEN */
} ordo_band;

typedef struct ordo_span {
    int32_t first, last; /* inclusive; first > last: empty */
} ordo_span;

ORDO_HD int32_t ordo_min32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

ORDO_HD int32_t ordo_max32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* `low` and `high` of a mask and a window about the diagonal `middle`. left, right: of the window;
 * -1 is open. */
ORDO_HD void ordo_band_limit(ordo_mask mask, int64_t middle, int64_t left, int64_t right,
                             int32_t *low, int32_t *high)
{
    const int64_t open = ORDO_BAND_OPEN;
    int64_t l = -open, h = mask == ORDO_MASK_FULL ? open : middle;
    if (left >= 0)
        l = middle - left;
    if (right >= 0 && middle + right < h)
        h = middle + right;
    *low = (int32_t)(l < -open ? -open : l > open ? open : l);
    *high = (int32_t)(h < -open ? -open : h > open ? open : h);
}

ORDO_HD int32_t ordo_span_count(ordo_span span)
{
    return span.last < span.first ? 0 : span.last - span.first + 1;
}

ORDO_HD int32_t ordo_band_query_tiles(const ordo_band *band)
{
    return band->q_len / band->bq + (band->q_len % band->bq != 0);
}

ORDO_HD int32_t ordo_band_key_tiles(const ordo_band *band)
{
    return band->kv_len / band->bk + (band->kv_len % band->bk != 0);
}

/* Tiles of size `other_tile` that a run of lines [begin, end] meets, where line x sees
 * [x + low, x + high] of `other_len`. Lines that see nothing at either end are left out;
 * those between overlap or touch, because each is the last one moved by one. */
ORDO_HD ordo_span ordo_band_meets(int32_t begin, int32_t end, int32_t low, int32_t high,
                                  int32_t other_len, int32_t other_tile)
{
    ordo_span span = { 0, -1 };
    begin = ordo_max32(begin, -high);
    end = ordo_min32(end, other_len - 1 - low);
    if (begin <= end && low <= high && other_len > 0) {
        span.first = ordo_max32(0, begin + low) / other_tile;
        span.last = ordo_min32(other_len - 1, end + high) / other_tile;
    }
    return span;
}

/* The contributors of query tile i: the key tiles that add into it. */
ORDO_HD ordo_span ordo_band_keys(const ordo_band *band, int32_t i)
{
    const int32_t begin = i * band->bq;
    const int32_t end = ordo_min32(begin + band->bq, band->q_len) - 1;
    return ordo_band_meets(begin, end, band->low, band->high, band->kv_len, band->bk);
}

/* The query tiles that key tile j visits. */
ORDO_HD ordo_span ordo_band_queries(const ordo_band *band, int32_t j)
{
    const int32_t begin = j * band->bk;
    const int32_t end = ordo_min32(begin + band->bk, band->kv_len) - 1;
    return ordo_band_meets(begin, end, -band->high, -band->low, band->q_len, band->bq);
}

/* Whether some elements of this live tile are hidden, or it is ragged: then each needs a test. */
ORDO_HD bool ordo_band_partial(const ordo_band *band, int32_t i, int32_t j)
{
    const int32_t r0 = i * band->bq, c0 = j * band->bk;
    const int32_t r1 = r0 + band->bq - 1, c1 = c0 + band->bk - 1;
    return r1 >= band->q_len || c1 >= band->kv_len || c0 - r1 < band->low || c1 - r0 > band->high;
}

#endif
