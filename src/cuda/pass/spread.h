/* pass/spread.h: long sequences of a forward pass with few rows, whose work is spread over
 * multiprocessors: the scores of key tiles, their weights, and the products by columns of values,
 * each in a kernel of its own (sm90/forward/spread.h). Plain C, shared by kernels, host and tests.
 *
 * One tile of a unit, a sequence and a key head, is a slot of the workspace; slots are numbered
 * (key head, sequence, tile) with the tiles in the order in which they are visited, last to first.
 * A sequence has whole runs of slots. Lines of a unit are the rows of all query heads of a group,
 * as in sm90/forward/decode.h; they are stored in groups of eight. */
#ifndef CUDA_PASS_SPREAD_H
#define CUDA_PASS_SPREAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/hd.h"
#include "plan/sizes.h"

/* Made on the device, which knows the lengths. */
typedef struct ordo_spread_list {
    int32_t count, slots; /* sequences, and their slots of one key head */
    struct {
        int32_t sequence, slot; /* its first slot */
    } at[ORDO_SPREAD_UNITS];
} ordo_spread_list;

/* The workspace; slots 0: no sequence is spread. */
typedef struct ordo_cuda_spread {
    void *workspace;
    int32_t slots; /* of one key head that there is room for */
    int32_t lines; /* of a unit, rounded up to groups */
} ordo_cuda_spread;

/* Whether a unit of `tiles` key tiles, of `all` in all units, is long: a block by itself takes more
 * time for it than the device's memory for everything. */
ORDO_HD bool ordo_spread_is_long(int64_t tiles, int64_t all)
{
    return tiles >= ORDO_SPREAD_LEAST && tiles * ORDO_SPREAD_UNITS > all;
}

/* Slots of a sequence of `tiles` key tiles. */
ORDO_HD int32_t ordo_spread_slots(int32_t tiles)
{
    return (tiles + ORDO_SPREAD_RUN - 1) / ORDO_SPREAD_RUN * ORDO_SPREAD_RUN;
}

/* ---- a slot: the scores of each group, in whose place its weights are stored; a tile has
 * `columns` keys. Lane l has of line l / 4 the columns that it has of an accumulator: 8 j + 2 (l %
 * 4) + e is number 2 j + e ---- */

ORDO_HD int32_t ordo_spread_group_bytes(int32_t columns)
{
    return columns * ORDO_SPREAD_GROUP * 4;
}

/* Bytes from a group to scores 4 n .. 4 n + 3 of a lane. */
ORDO_HD uint32_t ordo_spread_place(int n, int lane)
{
    return (uint32_t)(n * 32 + lane) * 16;
}

/* Bytes from a group to the weights of columns 8 n .. 8 n + 7 of a line: a left operand of products
 * in shared memory, without swizzle. */
enum { ORDO_SPREAD_CHUNK = 16 * ORDO_SPREAD_GROUP };

ORDO_HD uint32_t ordo_spread_weights(int n, int line)
{
    return (uint32_t)(n * ORDO_SPREAD_CHUNK + line * 16);
}

/* Behind the weights a lane has f32 numbers: of its line and its columns of the tile. */
typedef enum ordo_spread_number {
    ORDO_SPREAD_SUM,    /* of the probabilities, before they are rounded */
    ORDO_SPREAD_SHRINK, /* the factor of what was summed before; 1 if that is nothing */
    ORDO_SPREAD_MAX,    /* the line's largest score so far */
    ORDO_SPREAD_NUMBERS
} ordo_spread_number;

ORDO_HD uint32_t ordo_spread_number_place(int32_t columns, ordo_spread_number what, int lane)
{
    return (uint32_t)(columns * ORDO_SPREAD_GROUP * 2 + ((int)what * 32 + lane) * 4);
}

ORDO_HD uint32_t ordo_spread_record_bytes(int32_t columns)
{
    return ordo_spread_number_place(columns, ORDO_SPREAD_NUMBERS, 0);
}

/* ---- the workspace: the list, the largest score of each line of a slot, the slots ---- */

ORDO_HD ordo_spread_list *ordo_spread_list_of(const ordo_cuda_spread *spread)
{
    return (ordo_spread_list *)spread->workspace;
}

ORDO_HD float *ordo_spread_tops(const ordo_cuda_spread *spread, int64_t slot)
{
    return (float *)(void *)((char *)spread->workspace + ORDO_SPREAD_LIST_BYTES) +
           slot * spread->lines;
}

ORDO_HD char *ordo_spread_group(const ordo_cuda_spread *spread, int32_t kv_heads, int32_t columns,
                                int64_t slot, int group)
{
    const int64_t slots = (int64_t)spread->slots * kv_heads;
    return (char *)ordo_spread_tops(spread, slots) +
           (slot * (spread->lines / ORDO_SPREAD_GROUP) + group) * ordo_spread_group_bytes(columns);
}

/* The unit of a slot, if it is one of a tile: the number of the sequence in the list, its key head,
 * the number of the tile; `first`: the unit's first slot. */
typedef struct ordo_spread_at {
    int32_t number, key_head, tile;
    int64_t first;
} ordo_spread_at;

ORDO_HD ordo_spread_at ordo_spread_find(const ordo_spread_list *list, int64_t slot)
{
    const int32_t rest = (int32_t)(slot % list->slots);
    ordo_spread_at at;
    at.key_head = (int32_t)(slot / list->slots);
    at.number = 0;
    while (at.number + 1 < list->count && list->at[at.number + 1].slot <= rest)
        at.number++;
    at.tile = rest - list->at[at.number].slot;
    at.first = slot - at.tile;
    return at;
}

#endif
