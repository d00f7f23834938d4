/* mask_report.h: statistics of a dropout mask, for people and as JSON. */
#ifndef CLI_MASK_REPORT_H
#define CLI_MASK_REPORT_H

#include "attention/mask_statistics.h"
#include "kit/report.h"

typedef struct cli_mask_report {
    ordo_problem problem;
    ordo_dropout_call call;
    cli_mask_statistics statistics;
} cli_mask_report;

/* Prints its error and returns an exit status. */
int cli_mask_show(const cli_json_target *target, const cli_mask_report *reports, size_t count);

#endif
