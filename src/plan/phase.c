/* phase.c: sizes of panels and of the workspace of passes by phases. */
#include "plan/phase.h"

#include "base/checked.h"

/* Rows of P, of dS and of dS^T are numbered in 31 bits, and have 256 bytes at least. */
#define MOST_BYTES (UINT64_C(1) << 39)

static int64_t parts_of(int64_t whole, int64_t most)
{
    return most < 1 ? 0 : whole / most + (whole % most != 0);
}

/* No more than `most`, in as few and as even parts of `whole` as that allows. */
static int64_t even(int64_t whole, int64_t most)
{
    return parts_of(whole, parts_of(whole, most));
}

/* Products and sums that do not fit are larger than any budget. */
static uint64_t times(uint64_t a, uint64_t b)
{
    return ordo_mul_fits(&a, b) ? a : UINT64_MAX;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return ordo_add_fits(&a, b) ? a : UINT64_MAX;
}

/* Bytes of a row of scores: P, and an f32 for each key tile; or P and dS; or dS alone. */
static uint64_t row_bytes(const ordo_phase_problem *p, uint64_t columns)
{
    if (!p->backward)
        return 2 * columns + 4 * columns / (uint64_t)p->tile_keys;
    return (p->chained ? 2 : 4) * columns;
}

ordo_phase_panels ordo_phase_panels_of(const ordo_phase_problem *p, uint64_t budget)
{
    const uint64_t room = budget < MOST_BYTES ? budget : MOST_BYTES;
    ordo_phase_panels panels = { 1, 1, parts_of(p->kv_len, p->tile_keys) * p->tile_keys };
    const uint64_t row = row_bytes(p, (uint64_t)panels.columns);
    const uint64_t tile = times(times(row, (uint64_t)p->tile_rows), (uint64_t)p->group_heads);
    const uint64_t sums = times(times((uint64_t)p->kv_rows, (uint64_t)p->sum_columns), 4);
    const uint64_t head = plus(times(tile, (uint64_t)p->tiles), sums);
    if (p->tiles < 1 || p->kv_len < 1)
        return panels;
    if (head <= room) {
        const uint64_t most = room / head, heads = (uint64_t)p->kv_heads;
        panels.section = even(p->kv_heads, (int64_t)(most < heads ? most : heads));
        panels.tiles = p->tiles;
    } else if (plus(sums, tile) <= room) {
        panels.tiles = even(p->tiles, (int64_t)((room - sums) / tile));
    }
    return panels;
}
