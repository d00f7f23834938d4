/* schedule_chart.h: replayed schedules as pictures: text, SVG, HTML, and traces for Perfetto. */
#ifndef CLI_SCHEDULE_CHART_H
#define CLI_SCHEDULE_CHART_H

#include "ordo/lab/sim.h"
#include "ordo/ordo.h"

#include <stdio.h>

/* One order of sums, replayed or refused. */
typedef struct cli_replay {
    ordo_order order;
    bool chosen; /* by ordo, for --order auto */
    ordo_status status;
    char why[256]; /* if status is not ORDO_OK */
    ordo_timeline *timeline;
    ordo_timeline_info info;
} cli_replay;

typedef struct cli_chart {
    ordo_schedule schedule; /* its order is that of no replay in particular */
    const cli_replay *replays;
    size_t count;
} cli_chart;

/* Draw the replays that were not refused. Returns false if memory ran out; the caller checks the
 * stream for errors when it closes it. */
bool cli_chart_ascii(FILE *out, const cli_chart *chart, int width);
bool cli_chart_svg(FILE *out, const cli_chart *chart);
bool cli_chart_trace(FILE *out, const cli_chart *chart);
bool cli_chart_html(FILE *out, const cli_chart *chart);

/* What the pictures share. */

typedef enum cli_part { CLI_COMPUTE, CLI_WAIT, CLI_REDUCE } cli_part;

/* An interval of a worker's time. Lane 0 computes; where reductions overlap the computation
 * they have lane 1 to themselves. */
typedef struct cli_interval {
    cli_part part;
    int lane;
    int64_t begin, end;
    bool critical; /* on the critical path: where a step waited, that came from elsewhere and
                      its computation is not on it */
} cli_interval;

/* Call `visit` for every interval of positive length, step by step. */
typedef void cli_visit(void *context, const ordo_timeline_step *step, const cli_interval *interval);
bool cli_chart_walk(const cli_replay *replay, const ordo_schedule *schedule, cli_visit *visit,
                    void *context);

/* The time of every worker in equal cells, each with what fills most of it. */
typedef enum cli_state { CLI_IDLE, CLI_BUSY, CLI_STALLED } cli_state;
typedef struct cli_cell {
    double busy, stalled, longest; /* time in the cell; of the longest interval in it */
    int32_t head;                  /* head of that longest interval */
    bool critical;
} cli_cell;
typedef struct cli_cells {
    cli_cell *cells; /* rows x columns */
    int64_t rows, columns;
    int64_t stride; /* row y shows worker y * stride */
    double width;   /* time of a column */
} cli_cells;

bool cli_cells_make(cli_cells *cells, const cli_replay *replay, const ordo_schedule *schedule,
                    int64_t most_rows, int64_t columns, double width);
cli_state cli_cells_state(const cli_cells *cells, int64_t row, int64_t column);
void cli_cells_free(cli_cells *cells);

int64_t cli_chart_longest(const cli_chart *chart); /* largest makespan */

/* Columns of the terminal: COLUMNS, or 100. */
int cli_terminal_width(void);

#endif
