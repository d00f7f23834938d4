/* sm90/forward/pieces.h: tiles of keys in pages: they are copied in pieces, each of one page, and
 * values that no row sees are cleared. */
#ifndef CUDA_SM90_FORWARD_PIECES_H
#define CUDA_SM90_FORWARD_PIECES_H

#include "cuda/sm90/forward/args.h"
#include "cuda/sm90/pipeline.h"

/* What a lane of a warp copies of a tile: piece number `lane` if that is first .. end - 1, of those
 * with columns from .. to - 1. */
struct page_piece {
    int first, end, column;
    ordo_page_row from;
    bool lost; /* there is no such page: zeros are copied */
};

/* A lane's piece of 1 << shift columns, of LINES from column `begin` on; none if not `any`. It is
 * looked up a tile before it is copied: the table's latency is hidden. UNIT has columns from .. to
 * of a sequence, and where column 0 lies in tensors without pages. */
template <int LINES, class UNIT>
ORDO_DEVICE page_piece page_find(const ordo_paged_args &args, int shift, const UNIT &unit,
                                 int begin, bool any)
{
    const int lane = threadIdx.x % 32, column = begin + (lane << shift);
    page_piece piece = { 0, 0, column, { unit.batch, unit.kv_row + column }, false };
    if (!any)
        return piece;
    piece.first = max(0, unit.from - begin) >> shift;
    piece.end = (max(0, min(LINES, unit.to - begin)) + (1 << shift) - 1) >> shift;
    if (args.pages.table && lane >= piece.first && lane < piece.end)
        piece.from = ordo_page_row_of(&args.pages, unit.sequence, column);
    piece.lost = piece.from.page < 0;
    if (piece.lost)
        piece.from.page = args.pages.count; /* beyond the tensor: the copy engine fills in zeros */
    return piece;
}

/* The pieces of some tiles, one of each lane that has one: those of the tile `top`, as many of the
 * tile `step` before it, and so on. So a table is read once in several tiles. */
struct page_span {
    int row, page; /* page: -1 if there is no piece, their number if it has no page */
};

template <int COLUMNS, class UNIT>
ORDO_DEVICE page_span page_span_find(const ordo_paged_args &args, const UNIT &unit, int top,
                                     int step, int first)
{
    const int shift = args.copy_shift, pieces = COLUMNS >> shift, lane = threadIdx.x % 32;
    const int back = lane / pieces, tile = top - back * step;
    const int column = tile * COLUMNS + (lane - back * pieces << shift);
    if (tile < first || column + (1 << shift) <= unit.from || column >= unit.to)
        return { 0, -1 };
    const ordo_page_row at = ordo_page_row_of(&args.pages, unit.sequence, column);
    return { at.row, at.page < 0 ? args.pages.count : at.page };
}

/* Zeros in rows of a tile of V that no row of a unit sees, where a freed page, another sequence or
 * an older tile may have left NaN: those before `from` and from `to` on, counted from the tile's
 * first. For the rest see zero_rows(); `thread`: 0 .. 127. */
ORDO_DEVICE void zero_outside(uint32_t tile, int rows, int panels, int from, int to, int thread,
                              int barrier)
{
    enum { CHUNKS = ORDO_LINE_BYTES / 16 };
    from = max(0, from);
    to = max(from, to);
    const int before = min(rows, from), after = max(0, rows - to);
    const int lines = before + after, count = lines * panels * CHUNKS;
#pragma unroll 1
    for (int x = thread; x < count; x += 128) {
        const int line = x / CHUNKS % lines, panel = x / CHUNKS / lines;
        store_shared4(tile +
                          (uint32_t)((panel * rows + (line < before ? line : to + line - before)) *
                                     ORDO_LINE_BYTES) +
                          (uint32_t)(x % CHUNKS) * 16,
                      0.0f, 0.0f, 0.0f, 0.0f);
    }
    fence_shared_to_async();
    named_sync((uint32_t)barrier, 128);
}

#endif
