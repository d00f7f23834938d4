/* model_grid.h: values of a block over two axes, and their heat maps. */
#ifndef CLI_MODEL_GRID_H
#define CLI_MODEL_GRID_H

#include "lab/model.h"

enum { CLI_AXIS_MOST = 24, CLI_HEATS_MOST = 3 };

/* One axis: a field of the block, or a constant of the model. */
typedef struct cli_axis {
    char name[32];
    size_t count;
    char text[CLI_AXIS_MOST][16]; /* as typed: 8k, 2x, 0.5 */
} cli_axis;

/* What a cell shows. */
typedef struct cli_quantity {
    int id;
    const char *name;  /* "overlapped_over_sequential" */
    const char *about; /* for titles */
    int decimals;
    double middle; /* where the colours change sign; NAN: a plain scale */
} cli_quantity;

/* One heat map. */
typedef struct cli_heat {
    char title[120];
    const cli_quantity *quantity;
    bool points; /* a difference in percentage points */
    cli_axis x, y;
    double *cells; /* y.count rows of x.count */
    int *regions;  /* likewise */
} cli_heat;

typedef struct cli_grid {
    const cli_model_args *model;
    char title[160];
    int figure; /* 0: none of the paper's */
    cli_heat heats[CLI_HEATS_MOST];
    size_t count;
} cli_grid;

/* Fill a grid: a figure of the paper by number, or one quantity over two axes. */
int cli_grid_figure(cli_grid *grid, const cli_model_args *model, int figure);
int cli_grid_axes(cli_grid *grid, const cli_model_args *model, const cli_block_args *block,
                  const char *x, const char *y, const char *quantity);
void cli_grid_free(cli_grid *grid);

/* All heat maps as one SVG drawing. */
void cli_grid_svg(FILE *out, const void *grid);

#endif
