/* schedule.h: what the two files of `ordo schedule` share. */
#ifndef CLI_SCHEDULE_H
#define CLI_SCHEDULE_H

#include "cli/schedule_chart.h"
#include "kit/report.h"

typedef struct cli_schedule_report {
    cli_chart chart;
    bool several;  /* more than one order was requested */
    bool critical; /* the critical path was requested */
} cli_schedule_report;

void cli_schedule_text(const cli_schedule_report *report);
int cli_schedule_json(const cli_json_target *target, const cli_schedule_report *report);

#endif
