/* sm90/forward/blocks.h: the producer thread of the forward kernel under a block mask.
 *
 * A unit walks the key tiles that the rows of bits of its warpgroups have, of 64 queries each: from
 * the last of their union (record.last) down to the first (record.first). Each stage of K says
 * which tile it holds and which warpgroups see it. The others pass on it, or hide all of it if they
 * have begun and not ended. Partial tiles have intervals, or under an element mask bits. */
#ifndef CUDA_SM90_FORWARD_BLOCKS_H
#define CUDA_SM90_FORWARD_BLOCKS_H

#include "cuda/sm90/forward/roles.h"
#include "cuda/tile/mask.h"

/* What a stage of K says: the key tile, and of each warpgroup whether it sees something of it,
 * whether intervals or bits hide some of it, and whether nothing does, neither they nor the band.
 */
enum { LISTED_TILE = (1 << 24) - 1, LISTED_SEEN = 24, LISTED_PARTIAL = 26, LISTED_WHOLE = 28 };

/* Key tiles of a block, of which those are walked that a sequence has. */
template <class Z> constexpr int listed_tiles = ORDO_BLOCK / Z::COLUMNS;

/* Describes a unit. One that sees nothing walks key tile 0, all of it hidden. */
template <int D, int DV, bool ELEMENTS>
ORDO_DEVICE void listed_describe(const ordo_forward_args &args, int ticket, char *smem,
                                 uint32_t drawn)
{
    using Z = forward_shape<D, DV, true, FORWARD_LISTS>;
    const ordo_cuda_block_mask &blocks = args.blocks;
    forward_record *const to = Z::records::of(smem, drawn);
    forward_listed *const more = Z::listed::of(smem, drawn);
    const ordo_forward_place place = forward_describe<D, DV, FORWARD_LISTS>(args, ticket, to);
    const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, place.sequence);
    const int32_t i = place.tile * (int)Z::CONSUMERS, tiles = (s.q_len + 63) / 64;
    constexpr int EACH = listed_tiles<Z>;
    const int64_t row = ordo_blocks_row_at(&blocks, place.head,
                                           ordo_blocks_before(&blocks, &s, args.run.band.bq), i);
    ordo_span all = ordo_blocks_span(0, 0);
    for (int m = 0; m < Z::CONSUMERS; m++) {
        const ordo_span own = i + m < tiles ? blocks.spans[row + m] : ordo_blocks_span(0, 0);
        more->lowest[m] = EACH > 1 && own.first <= own.last ? own.first * EACH : own.first;
        all.first = min(all.first, own.first);
        all.last = max(all.last, own.last);
    }
    to->last = max(0, all.last);
    to->first = min(all.first, to->last) * EACH;
    if (EACH > 1)
        to->last = max(0, min((to->last + 1) * EACH, (s.kv_len + Z::COLUMNS - 1) / Z::COLUMNS) - 1);
    more->words = blocks.words + row * blocks.across;
    more->rows = min((int)Z::CONSUMERS, tiles - i);
    const int64_t mask = ordo_blocks_mask(&blocks, place.sequence, place.head);
    if constexpr (ELEMENTS)
        more->bits = ordo_blocks_bits(&blocks, mask, to->row, 0);
    else
        more->interval = (int32_t)(mask * blocks.q_len) + to->row;
    more->kv_head = place.head / args.run.group_heads;
}

/* What a stage of K says of a key tile. */
template <class Z>
ORDO_DEVICE int32_t listed_tile(const ordo_forward_args &args, const forward_record *record,
                                const forward_listed *more, int tile)
{
    static_assert((int)Z::CONSUMERS == 2, "a bit for each");
    const int left = tile * Z::COLUMNS, right = left + Z::COLUMNS;
    const int block = tile / listed_tiles<Z>;
    int32_t says = tile;
    for (int m = 0; m < more->rows; m++) {
        const ordo_tile_word *const word =
            more->words + m * args.blocks.across + block / ORDO_TILE_BITS;
        const bool seen = ordo_bit(word->seen, block), partial = ordo_bit(word->partial, block);
        const int first = record->row + 64 * m;
        const bool whole = seen && !partial &&
                           right <= min(record->kv_len, first + record->high + 1) &&
                           left >= first + 63 + record->low;
        says |= seen << (LISTED_SEEN + m) | partial << (LISTED_PARTIAL + m) |
                whole << (LISTED_WHOLE + m);
    }
    return says;
}

/* Loads the `number`-th key tile of a block, or its values. What does not change from tile to tile
 * is read from the record each time: registers are few. */
template <class Z, bool VALUES>
ORDO_DEVICE void listed_load_tile(const ordo_forward_args &args, char *smem, uint32_t drawn,
                                  uint32_t number, int tile)
{
    const uint32_t stage = number % Z::STAGES, full = (VALUES ? Z::V_FULL : Z::K_FULL) + 8 * stage;
    const uint32_t bytes = VALUES ? Z::V_BYTES : Z::K_BYTES;
    const uint32_t to = (VALUES ? Z::V : Z::K) + stage * bytes;
    mbar_wait((VALUES ? Z::V_EMPTY : Z::K_EMPTY) + 8 * stage, (number / Z::STAGES & 1) ^ 1);
    const forward_record *const record = Z::records::of(smem, drawn);
    const forward_listed *const more = Z::listed::of(smem, drawn);
    if (!VALUES)
        store_shared(Z::TILE + 4 * stage, listed_tile<Z>(args, record, more, tile));
    mbar_expect(full, bytes);
    const int row = record->kv_row + tile * Z::COLUMNS, head = more->kv_head, batch = record->batch;
    tma_load_tile<ORDO_PANEL_COLUMNS *(VALUES ? Z::V_PANELS : Z::PANELS)>(
        to, VALUES ? &args.map.v : &args.map.k, full, Z::COLUMNS, row, head, batch,
        policy_evict_last());
}

template <class Z>
ORDO_DEVICE void listed_load_queries(const ordo_forward_args &args, char *smem, uint32_t drawn)
{
    const uint32_t stage = forward_q_stage<Z>(drawn), full = Z::Q_FULL + 8 * stage;
    mbar_wait(Z::Q_EMPTY + 8 * stage, forward_q_parity<Z>(drawn) ^ 1);
    const forward_record *const record = Z::records::of(smem, drawn);
    mbar_expect(full, Z::Q_BYTES);
    const int row = record->q_row + record->row, head = record->head, batch = record->batch;
    tma_load_tile<ORDO_PANEL_COLUMNS * Z::PANELS>(Z::Q + stage * Z::Q_BYTES, &args.map.q, full,
                                                  Z::ROWS, row, head, batch, policy_evict_first());
}

/* The bits of a block in a thread's rows, of which the warp's first one is `row`: a word for each.
 * Rows that do not exist have the bits of the last sixteen. */
ORDO_DEVICE uint2 listed_bits(const ordo_forward_args &args, const forward_record &record,
                              const forward_listed &more, int row, int block)
{
    const int down = min(row - record.row, record.q_len - 1 - record.row) / ORDO_KEEP_ROWS;
    const uint2 *const from = (const uint2 *)args.blocks.bits;
    return __ldg(from + (more.bits + (int64_t)down * args.blocks.bits_across + block) * 32 +
                 threadIdx.x % 32);
}

/* Hides what the intervals of a thread's rows do not hold, or everything. Rows that do not exist
 * have the interval of the last one. */
template <int N>
ORDO_DEVICE void listed_mask(float (&s)[N], const ordo_forward_args &args,
                             const forward_record &record, const forward_listed &more, bool seen,
                             int row, int from)
{
    const int last = record.q_len - 1 - record.row;
    const int r = more.interval + min(row - record.row, last);
    const int r8 = more.interval + min(row + 8 - record.row, last);
    if (seen)
        mask_window(s, { args.blocks.first[r] - from, args.blocks.first[r8] - from },
                    { args.blocks.last[r] - from, args.blocks.last[r8] - from }, -INFINITY);
    else
        mask_window(s, { 0, 0 }, { -1, -1 }, -INFINITY);
}

/* The key tile before `tile` that the unit walks; -1: none. */
template <class Z>
ORDO_DEVICE int listed_below(const ordo_forward_args &args, const forward_listed *more, int first,
                             int tile)
{
    constexpr int EACH = listed_tiles<Z>;
    if (tile <= first)
        return -1;
    if (EACH > 1 && tile % EACH > 0)
        return tile - 1;
    const int block = ordo_blocks_below(more->words, args.blocks.across, more->rows, tile / EACH);
    return (block + 1) * EACH - 1;
}

template <int D, int DV, bool ELEMENTS>
ORDO_DEVICE void listed_load(const ordo_forward_args &args, char *smem)
{
    using Z = forward_shape<D, DV, true, FORWARD_LISTS>;
    const int units = forward_units<true>(args);
    uint32_t drawn = 0, loaded = 0; /* units and key tiles so far */
    if ((int)blockIdx.x < units)
        listed_describe<D, DV, ELEMENTS>(args, blockIdx.x, smem, 0);
    for (int ticket = blockIdx.x; ticket < units;) {
        int tile = Z::records::of(smem, drawn)->last;
        listed_load_tile<Z, false>(args, smem, drawn, loaded, tile);
        listed_load_queries<Z>(args, smem, drawn);
        ticket = (int)gridDim.x + atomicAdd(args.ticket, 1);
        while (tile >= 0) { /* keys a tile ahead of values */
            const forward_listed *const more = Z::listed::of(smem, drawn);
            const int below = listed_below<Z>(args, more, Z::records::of(smem, drawn)->first, tile);
            if (below >= 0)
                listed_load_tile<Z, false>(args, smem, drawn, loaded + 1, below);
            listed_load_tile<Z, true>(args, smem, drawn, loaded, tile);
            loaded++;
            tile = below;
        }
        drawn++;
        if (ticket < units) /* in the shadow of the loads issued so far */
            listed_describe<D, DV, ELEMENTS>(args, ticket, smem, drawn);
    }
    mbar_wait(Z::Q_EMPTY + 8 * forward_q_stage<Z>(drawn), forward_q_parity<Z>(drawn) ^ 1);
    Z::records::of(smem, drawn)->head = -1; /* no more */
    mbar_arrive(Z::Q_FULL + 8 * forward_q_stage<Z>(drawn));
}

#endif
