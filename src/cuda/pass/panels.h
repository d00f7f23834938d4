/* pass/panels.h: panels, units of work and what a unit reads, of the passes by phases. Plain C,
 * shared by kernels, host and tests.
 *
 * Query tiles of one head are numbered over all sequences (pass/sequence.h). A panel is a range
 * of them, of some key heads with all their query heads, whose scores are in the workspace at the
 * same time. Every sum has one order, whatever the panels: dK and dV run over query tiles, up or
 * down as the plan says, at each over the query heads of the group, and over rows upwards; O and dQ
 * run over keys upwards. So the size of a panel changes no bit. */
#ifndef CUDA_PASS_PANELS_H
#define CUDA_PASS_PANELS_H

#include "cuda/pass/sequence.h"
#include "plan/family_sm90.h"
#include "plan/phase.h"

enum {
    PHASE_ROWS = ORDO_SM90_BACKWARD_Q(576), /* queries of a tile; rows of every product */
    PHASE_KEYS = ORDO_SM90_BACKWARD_K(576), /* keys of a tile of scores */
    PHASE_STEP = 64,                        /* rows or columns that a stage of the pipeline sums */
    PHASE_CHUNK = 4,                        /* tiles of scores in one unit */
    PHASE_CHAIN_KEYS = ORDO_CHAIN_KEYS      /* keys of a unit of sm90/phases/chain.h */
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
    chain.nq = chain.nk = chain.group = chain.missing = 0;          /* for other orders */
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

/* ---- dS^T of the chains ----
 *
 * A line is what PHASE_ROWS queries have of one key. A query tile of a dense batch has the lines of
 * those blocks of 64 keys that it sees, so that a causal mask takes half of the workspace; one of a
 * ragged batch has `columns` lines. */

typedef struct ordo_phase_lines {
    int32_t columns;   /* ragged batches; else 0 */
    int32_t tiles;     /* query tiles of a sequence */
    int32_t low, high; /* tile i sees blocks 2 i + low .. 2 i + high - 1, of those that there are */
    int32_t blocks;    /* blocks of 64 keys */
    int32_t head;      /* lines of one query head in the panel */
    int64_t sequence;  /* lines of one sequence and query head */
    int64_t before;    /* lines of the tiles before the panel */
} ordo_phase_lines;

/* Blocks before block 2 i + offset of those that there are, for all tiles i < n together. */
ORDO_HD int64_t ordo_phase_blocks(int32_t n, int32_t offset, int32_t blocks)
{
    const int32_t from = ordo_min32(n, offset < 0 ? (1 - offset) / 2 : 0);
    const int32_t to =
        ordo_max32(from, ordo_min32(n, blocks > offset ? (blocks - offset + 1) / 2 : 0));
    return (int64_t)(to - from) * (from + to - 1 + offset) + (int64_t)(n - to) * blocks;
}

/* Lines of one query head before query tile `tile` of all sequences. */
ORDO_HD int64_t ordo_phase_lines_before(const ordo_phase_lines *x, int32_t tile)
{
    if (x->columns)
        return (int64_t)tile * x->columns;
    const int32_t b = tile / x->tiles, i = tile % x->tiles;
    return b * x->sequence + PHASE_CHAIN_KEYS * (ordo_phase_blocks(i, x->high, x->blocks) -
                                                 ordo_phase_blocks(i, x->low, x->blocks));
}

/* The line of (q_head, tile) that key 0 of the sequence has, or would have. */
ORDO_HD int64_t ordo_phase_line(const ordo_phase_lines *x, const ordo_phase_panel *panel,
                                int32_t group_heads, int32_t q_head, int32_t tile)
{
    const int64_t head = (int64_t)(q_head - panel->head * group_heads) * x->head;
    const int64_t first = head + ordo_phase_lines_before(x, tile) - x->before;
    if (x->columns)
        return first;
    const int32_t hidden = 2 * (tile % x->tiles) + x->low; /* blocks in front */
    return first - PHASE_CHAIN_KEYS * ordo_max32(0, ordo_min32(hidden, x->blocks));
}

/* ---- host: the panels of a pass ---- */

/* Lines of a pass, of no panel yet. `columns`: of a ragged batch. */
ORDO_HD ordo_phase_lines ordo_phase_lines_of(const ordo_cuda_batch *batch, int32_t columns)
{
    enum { FAR = ORDO_BAND_OPEN / PHASE_CHAIN_KEYS }; /* divisions round down */
    const int64_t open = ORDO_BAND_OPEN;
    const ordo_cuda_sequence *const s = &batch->first;
    ordo_phase_lines x;
    x.columns = batch->table ? columns : 0;
    x.tiles = ordo_max32(1, batch->step.query_tile);
    x.low = (int32_t)((s->low + open) / PHASE_CHAIN_KEYS) - FAR;
    x.high = (int32_t)((ordo_max32(s->low, s->high) + open + PHASE_ROWS + PHASE_CHAIN_KEYS - 1) /
                       PHASE_CHAIN_KEYS) -
             FAR;
    x.blocks = s->kv_len / PHASE_CHAIN_KEYS + (s->kv_len % PHASE_CHAIN_KEYS != 0);
    x.sequence = PHASE_CHAIN_KEYS * (ordo_phase_blocks(x.tiles, x.high, x.blocks) -
                                     ordo_phase_blocks(x.tiles, x.low, x.blocks));
    x.head = 0;
    x.before = 0;
    return x;
}

/* The panel that follows `done` of `tiles` query tiles and has `count`, or as many as are left;
 * panels follow each other upwards, or downwards from the last tile. */
ORDO_HD ordo_phase_panel ordo_phase_panel_at(int32_t done, int32_t count, int32_t tiles, bool down)
{
    ordo_phase_panel panel;
    panel.tiles = ordo_min32(count, tiles - done);
    panel.tile = down ? tiles - done - panel.tiles : done;
    panel.head = panel.heads = 0;
    panel.opening = done == 0;
    return panel;
}

/* Lines of `heads` query heads in a panel. */
ORDO_HD int64_t ordo_phase_panel_lines(const ordo_phase_lines *x, const ordo_phase_panel *panel,
                                       int32_t heads)
{
    return heads * (ordo_phase_lines_before(x, panel->tile + panel->tiles) -
                    ordo_phase_lines_before(x, panel->tile));
}

/* Lines that there is place for: in a panel of all tiles, and in others, beside which the
 * workspace holds sums. */
typedef struct ordo_phase_room {
    int64_t whole, part;
} ordo_phase_room;

/* Key heads of a panel of chains: those of the plan, or so many more that each of `workers` has
 * about two units, if there is place for all their tiles. Under a causal mask units of one head
 * have all lengths up to the longest, so that with fewer of them workers are idle while it runs. */
ORDO_HD int32_t ordo_phase_section(const ordo_phase_lines *x, const ordo_cuda_batch *batch,
                                   int32_t section, int32_t kv_heads, int32_t group_heads,
                                   const ordo_phase_room *room, int32_t workers)
{
    const ordo_phase_panel whole = ordo_phase_panel_at(0, batch->tiles, batch->tiles, false);
    const int64_t lines = ordo_phase_panel_lines(x, &whole, group_heads);
    const int64_t units = (int64_t)batch->sequences * x->blocks, want = 2 * workers - workers / 16;
    if (batch->table) /* lengths are known on the device only */
        return section;
    while (section < kv_heads && section * units < want && (section + 1) * lines <= room->whole)
        section++;
    const int32_t sections = (kv_heads + section - 1) / section; /* as few, and even */
    return (kv_heads + sections - 1) / sections;
}

/* The panel of chains that follows `done` tiles: all tiles if there is place for their lines, of
 * `heads` query heads; else as many as possible, but at least one. */
ORDO_HD ordo_phase_panel ordo_phase_panel_filled(const ordo_phase_lines *x, int32_t heads,
                                                 const ordo_phase_room *room, int32_t done,
                                                 int32_t tiles, bool down)
{
    const ordo_phase_panel whole = ordo_phase_panel_at(done, tiles, tiles, down);
    ordo_phase_panel panel = ordo_phase_panel_at(done, 1, tiles, down);
    if (done == 0 && ordo_phase_panel_lines(x, &whole, heads) <= room->whole)
        return whole;
    while (done + panel.tiles < tiles) {
        const ordo_phase_panel more = ordo_phase_panel_at(done, panel.tiles + 1, tiles, down);
        if (ordo_phase_panel_lines(x, &more, heads) > room->part)
            break;
        panel = more;
    }
    return panel;
}

#endif
