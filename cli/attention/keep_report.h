/* keep_report.h: statistics of the keep bits of dropout, for people and as JSON. */
#ifndef CLI_KEEP_REPORT_H
#define CLI_KEEP_REPORT_H

#include "attention/keep_statistics.h"
#include "kit/report.h"

typedef struct cli_keep_report {
    ordo_problem problem;
    ordo_dropout_call call;
    cli_keep_statistics statistics;
} cli_keep_report;

/* Prints its error and returns an exit status. */
int cli_keep_show(const cli_json_target *target, const cli_keep_report *reports, size_t count);

#endif
