/* mask_report.h: statistics of a dropout mask, for people and as JSON. */
#ifndef CLI_MASK_REPORT_H
#define CLI_MASK_REPORT_H

#include "attention/mask_statistics.h"
#include "kit/json.h"

typedef struct cli_mask_report {
    ordo_problem problem;
    ordo_dropout_call call;
    cli_mask_statistics statistics;
} cli_mask_report;

void cli_mask_text(const cli_mask_report *reports, size_t count);
void cli_mask_json(FILE *out, const cli_mask_report *reports, size_t count);

#endif
