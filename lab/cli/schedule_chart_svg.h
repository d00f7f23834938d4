/* schedule_chart_svg.h: what the two files that draw SVG share. */
#ifndef CLI_SCHEDULE_CHART_SVG_H
#define CLI_SCHEDULE_CHART_SVG_H

#include "cli/schedule_chart.h"

enum {
    SVG_PALETTE = 10,
    SVG_LABEL = 24,         /* pixels that a label needs */
    SVG_PLOT = 1040,        /* width of the lanes in pixels */
    SVG_MOST_LANES = 400,   /* drawn in one panel */
    SVG_MOST_STEPS = 4000,  /* drawn one by one */
    SVG_MOST_CELLS = 250000 /* cells of about 16 bytes each: below 5 MB */
};

/* The lanes of one order, drawn with their upper left corner at 0,0. */
typedef struct cli_panel {
    FILE *out;
    const cli_replay *replay;
    const ordo_schedule *schedule;
    int64_t lanes, stride;     /* every stride-th worker has a lane */
    double lane_height, scale; /* pixels per lane, pixels per unit of time */
    cli_part part;             /* drawn in this pass */
} cli_panel;

/* Step by step, with labels where there is room; or in cells. False if memory ran out. */
bool cli_panel_steps(cli_panel *panel);
bool cli_panel_cells(cli_panel *panel, int64_t columns);

#endif
