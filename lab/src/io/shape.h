/* shape.h: attention as the I/O model sees it: one matrix of scores, some of which are visible.
 *
 * The query heads that share a key head form one head with more rows: row r is position r / group
 * of query head r % group. So a mask that is a band over positions is a band over rows. A block
 * mask may hide more. Tiles and strips without a visible score are skipped. */
#ifndef IO_SHAPE_H
#define IO_SHAPE_H

#include "ordo/lab/io.h"

typedef struct ordo_io_shape {
    ordo_io_pass pass;
    int64_t rows, cols; /* rows = positions * group */
    int64_t group;
    int64_t dk, dv;
    bool full;         /* everything is visible */
    int64_t low, high; /* position i sees columns i + low to i + high */
    const uint8_t *blocks;
    int64_t block_q, block_k, blocks_across;
    int64_t cache, strip, workspace;
    int64_t copies; /* key heads */
} ordo_io_shape;

/* Check a problem and fill in its defaults. */
ordo_status ordo_io_shape_of(const ordo_io_problem *problem, ordo_io_shape *shape);

bool ordo_io_visible(const ordo_io_shape *shape, int64_t row, int64_t col);

/* Whether any score of the rectangle is visible. */
bool ordo_io_live(const ordo_io_shape *shape, int64_t r0, int64_t r1, int64_t c0, int64_t c1);

int64_t ordo_io_live_scores(const ordo_io_shape *shape);

typedef struct ordo_io_span {
    int64_t begin, end;
} ordo_io_span;

/* Return the first run within from..to-1 of columns that are visible to a row of r0..r1-1, or of
 * rows that see a column of c0..c1-1. The run is empty if there is none. */
ordo_io_span ordo_io_next_cols(const ordo_io_shape *shape, int64_t r0, int64_t r1, int64_t from,
                               int64_t to);
ordo_io_span ordo_io_next_rows(const ordo_io_shape *shape, int64_t c0, int64_t c1, int64_t from,
                               int64_t to);

/* Sums over the live tiles of rows r0..r1-1, with tiles of height x width from row r0 and column
 * 0. */
typedef struct ordo_io_grid {
    int64_t heights, widths, areas; /* over live tiles */
    int64_t live_rows;              /* rows of those tiles of rows that contain a live tile */
    int64_t live_cols;              /* likewise for columns */
} ordo_io_grid;
ordo_io_grid ordo_io_grid_of(const ordo_io_shape *shape, int64_t r0, int64_t r1, int64_t height,
                             int64_t width);

/* Sums over tiles of rows (columns) and the columns (rows of r0..r1-1) visible to each of them. */
typedef struct ordo_io_strips {
    int64_t lengths; /* visible columns, summed over the tiles */
    int64_t areas;   /* the same times the height of the tile */
    int64_t live;    /* heights of the tiles with a visible column */
} ordo_io_strips;
ordo_io_strips ordo_io_row_strips(const ordo_io_shape *shape, int64_t r0, int64_t r1,
                                  int64_t height);
ordo_io_strips ordo_io_col_strips(const ordo_io_shape *shape, int64_t r0, int64_t r1,
                                  int64_t width);

static inline int64_t ordo_io_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t ordo_io_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t ordo_io_count(int64_t size,
                                    int64_t tile) /* number of tiles that cover a length */
{
    return (size + tile - 1) / tile;
}

#endif
