/* pass/forward_order.h: the tile scheduler of the forward pass: its units and the order in which
 * blocks take them. Plain C.
 *
 * A unit is a query tile of one head. Units are independent, so the order changes no bit; it
 * decides load balance and cache hits. Under a full mask heads come one after the other. Under
 * other masks units differ in length: within a section of heads whose keys and values fit the
 * cache, the longest come first. */
#ifndef CUDA_PASS_FORWARD_ORDER_H
#define CUDA_PASS_FORWARD_ORDER_H

#include "cuda/pass/sequence.h"

typedef struct ordo_forward_issue_order {
    ordo_band band;    /* seen by forward tiles */
    int32_t q_tiles;   /* per head */
    int32_t heads;     /* query heads of a sequence */
    int32_t all_heads; /* query heads of all sequences */
    int32_t section;   /* heads of one section */
} ordo_forward_issue_order;

typedef struct ordo_forward_unit {
    int32_t tile; /* query tile */
    int32_t head; /* sequence * heads + query head */
    int32_t keys; /* key tiles it walks: keys - 1 down to 0. At least one, for what sees nothing */
} ordo_forward_unit;

/* A unit of any batch. */
typedef struct ordo_forward_place {
    int32_t sequence; /* index in the batch */
    int32_t head;     /* query head */
    int32_t tile;     /* query tile */
} ordo_forward_place;

enum { ORDO_FORWARD_CACHE = 32 << 20 }; /* bytes of K and V that a section may take */

/* Heads per section, whose units are taken longest first; 1 under a full mask. */
ORDO_HD int32_t ordo_forward_section(const ordo_band *band, int32_t head_dim, int32_t group_heads,
                                     int32_t all_heads)
{
    if (band->high >= ORDO_BAND_OPEN)
        return 1;
    const int32_t kv_heads = ORDO_FORWARD_CACHE / (head_dim * 4) / ordo_max32(1, band->kv_len);
    const int32_t most = ordo_max32(1, kv_heads) * group_heads;
    const int32_t sections = all_heads / most + (all_heads % most != 0);
    return all_heads / sections + (all_heads % sections != 0);
}

ORDO_HD ordo_forward_issue_order ordo_forward_order(const ordo_run *run, int32_t rows,
                                                    int32_t columns, int32_t head_dim)
{
    ordo_forward_issue_order order;
    order.band = run->band;
    order.band.bq = rows;
    order.band.bk = columns;
    order.q_tiles = ordo_band_query_tiles(&order.band);
    order.heads = run->kv_heads * run->group_heads;
    order.all_heads = order.heads * run->sequences;
    order.section = ordo_forward_section(&order.band, head_dim, run->group_heads, order.all_heads);
    return order;
}

ORDO_HD ordo_forward_unit ordo_forward_issue(const ordo_forward_issue_order *order, int32_t ticket)
{
    ordo_forward_unit unit;
    const int32_t per_section = order->section * order->q_tiles;
    const int32_t begin = ticket / per_section * order->section;
    const int32_t heads = ordo_min32(order->section, order->all_heads - begin);
    const int32_t rest = ticket % per_section;
    unit.tile = order->q_tiles - 1 - rest / heads;
    unit.head = begin + rest % heads;
    const ordo_span keys = ordo_band_keys(&order->band, unit.tile);
    unit.keys = ordo_max32(1, keys.last + 1);
    return unit;
}

/* The place of a ticket in a packed or padded batch: sequences come one after the other, each in
 * the order of a dense one. `order` has tile sizes and heads; the table has the lengths, and counts
 * the tiles in `what`: of queries, for the forward pass or, with pages, for its second kernel. */
ORDO_HD ordo_forward_place ordo_forward_issue_ragged(const ordo_forward_issue_order *order,
                                                     const ordo_cuda_batch *batch, ordo_before what,
                                                     int32_t head_dim, int32_t group_heads,
                                                     int32_t ticket)
{
    ordo_forward_place place;
    place.sequence = ordo_batch_find(batch, what, ticket / order->heads);
    const ordo_cuda_sequence *const s = batch->table + place.sequence;
    ordo_forward_issue_order own;
    own.band = ordo_sequence_band(s, order->band.bq, order->band.bk);
    own.q_tiles = ordo_band_query_tiles(&own.band);
    own.heads = order->heads;
    own.all_heads = order->heads;
    own.section = ordo_forward_section(&own.band, head_dim, group_heads, order->heads);
    const int32_t before = what == ORDO_BEFORE_QUERY ? s->query_tile : s->forward_tile;
    const ordo_forward_unit unit = ordo_forward_issue(&own, ticket - before * order->heads);
    place.head = unit.head;
    place.tile = unit.tile;
    return place;
}

#endif
