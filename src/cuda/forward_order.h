/* forward_order.h: units of the forward pass, and the order in which blocks take them. Plain C.
 *
 * A unit is a tile of queries of one head. Nobody waits for anybody, and no bit depends on the
 * order: it decides how evenly the blocks end, and what the cache holds. Under a full mask heads
 * come one after the other. Under a mask that cuts, units differ in length: of a section of heads
 * whose keys and values the cache holds, the longest come first. */
#ifndef CUDA_FORWARD_ORDER_H
#define CUDA_FORWARD_ORDER_H

#include "plan/issue.h"

typedef struct ordo_forward_issue_order {
    ordo_band band;    /* seen by forward tiles */
    int32_t q_tiles;   /* of one head */
    int32_t heads;     /* query heads of a sequence */
    int32_t all_heads; /* of all sequences */
    int32_t section;   /* heads of one section */
} ordo_forward_issue_order;

typedef struct ordo_forward_unit {
    int32_t tile; /* of queries */
    int32_t head; /* sequence * heads + query head */
    int32_t keys; /* key tiles it walks: keys - 1 down to 0. At least one, for what sees nothing */
} ordo_forward_unit;

enum { ORDO_FORWARD_CACHE = 32 << 20 }; /* bytes of K and V that a section may take */

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
    order.section = 1;
    if (order.band.high < ORDO_BAND_OPEN) {
        const int64_t bytes = (int64_t)order.band.kv_len * head_dim * 4;
        const int64_t kv_heads = ORDO_FORWARD_CACHE / bytes;
        const int64_t most = (kv_heads > 1 ? kv_heads : 1) * run->group_heads;
        const int64_t sections = (order.all_heads + most - 1) / most;
        order.section = (int32_t)((order.all_heads + sections - 1) / sections);
    }
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

#endif
