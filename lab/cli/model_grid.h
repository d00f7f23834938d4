/* model_grid.h: values of a block over two axes, and their heat maps. */
#ifndef CLI_MODEL_GRID_H
#define CLI_MODEL_GRID_H

#include "cli/model.h"
#include "cli/model_times.h"

enum { CLI_AXIS_MOST = 24, CLI_HEATS_MOST = 6 };

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
    double *cells;                /* y.count rows of x.count; NAN: not measured */
    int *regions;                 /* likewise; 0 in a map of measurements */
    const struct cli_heat *model; /* the modelled values of a map of measurements, or NULL */
} cli_heat;

typedef struct cli_grid {
    const cli_model_args *model;
    char title[160];
    const char *figure;   /* a number of the paper's, or a word; NULL: axes */
    bool compares;        /* a figure that shows measured values too, if they are given */
    const char *measured; /* the file that they come from, or NULL */
    cli_heat heats[CLI_HEATS_MOST];
    size_t count;
} cli_grid;

/* Where a heat map starts from. */
typedef struct cli_start {
    const cli_model_args *model;
    cli_block_args block;
    const char *changes[CLI_MOST_WORDS];
    size_t change_count;
} cli_start;

/* Parts of a grid: a quantity by name or by number (NULL: there is none), an axis from "seq=2k,4k",
 * memory for the cells of a heat map, and the cells as the model prices them. */
const cli_quantity *cli_grid_quantity(const char *name);
const cli_quantity *cli_grid_quantity_at(size_t i);
int cli_grid_axis(const char *option, const char *text, cli_axis *axis);
int cli_grid_room(cli_heat *heat);
int cli_grid_fill(const cli_start *from, cli_heat *heat);

/* The block of a cell of a map whose axes are both options of the block. */
int cli_grid_block(const cli_start *from, const cli_heat *heat, size_t cell, ordo_block *block);

/* A quantity that follows from the times of the modes alone; NAN for others and for unknown times.
 */
double cli_quantity_of_times(const cli_quantity *quantity, const cli_block_times *times);

/* Fill a grid: one quantity over two axes, or a figure of the paper. `measured` is NULL or what was
 * read from grid->measured. */
int cli_grid_axes(cli_grid *grid, const cli_model_args *model, const cli_block_args *block,
                  const char *x, const char *y, const char *quantity);
int cli_grid_figure(cli_grid *grid, const cli_model_args *model, const cli_block_args *block,
                    int figure, const cli_measured *measured);
void cli_grid_free(cli_grid *grid);

/* The figures by index in the order of CLI_FIGURES: their names, and whether one is compared with
 * measured values. */
#define CLI_FIGURES "5|6|8|9|10|11|12|13|14|cost|speedup"
const char *cli_figure_name(int index);
bool cli_figure_compares(int index);

/* How modelled values differ from those of a map of measurements: model minus measurement. */
typedef struct cli_difference {
    size_t count; /* number of measured cells */
    double mean, absolute, deviation;
} cli_difference;
cli_difference cli_heat_difference(const cli_heat *measured);

/* All heat maps as text, as fields of JSON and as one SVG drawing; `grid` is a cli_grid. */
void cli_grid_text(const void *grid);
void cli_grid_fields(cli_json *json, const void *grid);
void cli_grid_svg(FILE *out, const void *grid);

#endif
