/* shape.h: what attention looks like to the I/O laboratory: one matrix of scores, some of them
 * live.
 *
 * The query heads that share a key head are one head with more rows: row r is position r / group
 * of query head r % group. So a mask that is a band over positions is a band over rows. A block
 * mask may cut further holes. Tiles and strips in which nothing is visible are never touched. */
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

/* The first run, at or after `from` and before `to`, of columns that one of the rows r0..r1-1
 * sees; or of rows that see one of the columns c0..c1-1. Empty if there is none. */
ordo_io_span ordo_io_next_cols(const ordo_io_shape *shape, int64_t r0, int64_t r1, int64_t from,
                               int64_t to);
ordo_io_span ordo_io_next_rows(const ordo_io_shape *shape, int64_t c0, int64_t c1, int64_t from,
                               int64_t to);

/* Sums over the live tiles of rows r0..r1-1, cut into tiles of height x width from r0 and 0. */
typedef struct ordo_io_grid {
    int64_t heights, widths, areas; /* over live tiles */
    int64_t live_rows, live_cols;   /* in tiles of rows, of columns, with a live tile among them */
} ordo_io_grid;
ordo_io_grid ordo_io_grid_of(const ordo_io_shape *shape, int64_t r0, int64_t r1, int64_t height,
                             int64_t width);

/* Sums over tiles of rows (columns) and the columns (rows of r0..r1-1) that each of them meets. */
typedef struct ordo_io_strips {
    int64_t lengths; /* columns met, over the tiles */
    int64_t areas;   /* times the height of the tile */
    int64_t live;    /* heights of the tiles that meet any */
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
static inline int64_t ordo_io_count(int64_t size, int64_t tile) /* tiles that cover a size */
{
    return (size + tile - 1) / tile;
}

#endif
