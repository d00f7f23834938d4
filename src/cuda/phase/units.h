/* phase/units.h: panels, units of work and what a unit reads, of the passes by phases. Plain C,
 * shared by kernels, host and tests.
 *
 * Query tiles of one head are numbered over all sequences (common/sequence.h). A panel is a range
 * of them, of some key heads with all their query heads, whose scores are in the workspace at the
 * same time. Every sum has one order, whatever the panels: dK and dV run over query tiles, up or
 * down as the plan says, at each over the query heads of the group, and over rows upwards; O and dQ
 * run over keys upwards. So the size of a panel changes no bit. */
#ifndef CUDA_PHASE_UNITS_H
#define CUDA_PHASE_UNITS_H

#include "cuda/common/sequence.h"
#include "plan/sm90_tiles.h"

enum {
    PHASE_ROWS = ORDO_SM90_BACKWARD_Q(576), /* queries of a tile; rows of every product */
    PHASE_KEYS = ORDO_SM90_BACKWARD_K(576), /* keys of a tile of scores */
    PHASE_STEP = 64,                        /* rows or columns that a stage of the pipeline sums */
    PHASE_CHUNK = 4,                        /* tiles of scores in one unit */
    PHASE_CHAIN_KEYS = 64                   /* keys of a unit of phase/chain.h */
};

typedef struct ordo_phase_panel {
    int32_t tile, tiles; /* query tiles of one head: the first, and how many */
    int32_t head, heads; /* key heads */
    bool opening;        /* the first panel of these heads that is computed */
} ordo_phase_panel;

/* Where the scores of a query tile are in the workspace, in tiles of PHASE_ROWS rows. */
ORDO_HD int64_t ordo_phase_slot(const ordo_phase_panel *panel, int32_t group_heads, int32_t q_head,
                                int32_t tile)
{
    return (int64_t)(q_head - panel->head * group_heads) * panel->tiles + (tile - panel->tile);
}

/* ---- the tile scheduler ---- */

typedef struct ordo_phase_unit {
    int32_t tile, head, part;
} ordo_phase_unit;

/* Unit number `ticket` of tiles x heads x parts: sections of `together` heads; in each tile after
 * tile, every head of a tile, every part of a head. */
ORDO_HD ordo_phase_unit ordo_phase_issue(int32_t tiles, int32_t heads, int32_t together,
                                         int32_t parts, int64_t ticket)
{
    const int64_t per_head = (int64_t)tiles * parts;
    const int32_t begin = (int32_t)(ticket / (together * per_head)) * together;
    const int32_t count = ordo_min32(together, heads - begin);
    const int64_t rest = ticket - begin * per_head;
    ordo_phase_unit unit;
    unit.part = (int32_t)(rest % parts);
    unit.head = begin + (int32_t)(rest / parts % count);
    unit.tile = (int32_t)(rest / parts / count);
    return unit;
}

/* Query tiles of a panel that exist: lengths may be known on the device only. */
ORDO_HD int32_t ordo_phase_tiles(const ordo_cuda_batch *batch, const ordo_phase_panel *panel)
{
    const int64_t all = ordo_batch_before(batch, ORDO_BEFORE_QUERY, batch->sequences);
    return ordo_max32(0, ordo_min32(panel->tiles, (int32_t)all - panel->tile));
}

/* ---- what a unit reads ---- */

/* Keys that the queries of tile i of a sequence see, in blocks of `keys`. */
ORDO_HD ordo_span ordo_phase_keys(const ordo_cuda_sequence *s, int32_t i, int32_t keys)
{
    const ordo_band band = ordo_sequence_band(s, PHASE_ROWS, keys);
    return ordo_band_keys(&band, i);
}

/* The walk of a block of keys through the query tiles of a panel. */
typedef struct ordo_phase_walk {
    int32_t first, step; /* the first tile, of the sequence; 1 or -1 to the next */
    int32_t count;       /* tiles */
    bool begins, ends;   /* no query tile of an earlier panel, of a later one is visited. Keys that
                          * no query sees begin and end in the opening panel. */
} ordo_phase_walk;

/* The visits of block number `block`, of `keys` keys each, in the plan's order, as far as they are
 * in the panel. */
ORDO_HD ordo_phase_walk ordo_phase_visits(const ordo_cuda_sequence *s,
                                          const ordo_phase_panel *panel, int32_t keys,
                                          int32_t block, bool down)
{
    ordo_walk chain;
    chain.band = ordo_sequence_band(s, PHASE_ROWS, keys);
    chain.nq = chain.nk = chain.group = chain.phase = 0;            /* for other orders */
    chain.kind = down ? ORDO_WALK_DESCENDING : ORDO_WALK_ASCENDING; /* plans have no other here */
    const int32_t steps = ordo_walk_steps(&chain, block), visit = ordo_walk_visit(&chain, block, 0);
    const int32_t low = panel->tile - s->query_tile, high = low + panel->tiles - 1;
    const int32_t begin = ordo_max32(0, down ? visit - high : low - visit);
    const int32_t end = ordo_min32(steps, (down ? visit - low : high - visit) + 1);
    ordo_phase_walk walk;
    walk.step = ordo_walk_visit(&chain, block, 1) - visit;
    walk.first = visit + begin * walk.step;
    walk.count = ordo_max32(0, end - begin);
    walk.begins = steps == 0 ? panel->opening : walk.count > 0 && begin == 0;
    walk.ends = steps == 0 ? panel->opening : walk.count > 0 && end == steps;
    return walk;
}

/* ---- host: the panels of a pass ---- */

/* Panel number n of the panels of one section of heads, each of `each` tiles, in the order in which
 * they are computed: upwards, or downwards from the last tile. */
ORDO_HD ordo_phase_panel ordo_phase_panel_at(int32_t n, int32_t each, int32_t tiles, bool down)
{
    const int32_t begin = down ? ordo_max32(0, tiles - (n + 1) * each) : n * each;
    const int32_t end = down ? tiles - n * each : ordo_min32(tiles, begin + each);
    ordo_phase_panel panel;
    panel.tile = begin;
    panel.tiles = end - begin;
    panel.head = panel.heads = 0;
    panel.opening = n == 0;
    return panel;
}

#endif
