/* schedule_ranks.h: what the files of `ordo schedule --ranks` share. */
#ifndef CLI_SCHEDULE_RANKS_H
#define CLI_SCHEDULE_RANKS_H

#include "ordo/lab/ranks.h"

#include <stdio.h>

/* One method, simulated or refused. */
typedef struct cli_rank_run {
    ordo_rank_timeline *timeline; /* NULL if refused */
    ordo_rank_info info;
    char why[256];
} cli_rank_run;

typedef struct cli_rank_report {
    ordo_rank_problem problem;
    char machine[64];
    cli_rank_run runs[ORDO_RANKS_METHODS];
    size_t count;
    int width; /* width of text drawings */
} cli_rank_report;

/* The fastest of the runs; NULL if all are refused. */
const cli_rank_run *cli_rank_best(const cli_rank_report *report);

double cli_rank_total_ns(const ordo_rank_info *info);

/* Drawings: compute lane and link of each rank, or of every n-th one. */
void cli_rank_ascii(FILE *out, const void *report);
void cli_rank_svg(FILE *out, const void *report);
void cli_rank_html(FILE *out, const void *report);
void cli_rank_trace(FILE *out, const void *report);

/* `ordo schedule` with --ranks. */
int cli_schedule_ranks(int argc, char **argv);

#endif
