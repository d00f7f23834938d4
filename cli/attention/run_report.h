/* run_report.h: what one run gave, for people and as JSON. */
#ifndef CLI_RUN_REPORT_H
#define CLI_RUN_REPORT_H

#include "kit/execute.h"
#include "kit/report.h"

typedef struct cli_digests {
    uint64_t of[CLI_OUTPUTS];
} cli_digests;

typedef struct cli_run_report {
    cli_executed is;
    bool has[CLI_OUTPUTS];
    cli_digests *digests; /* digests of everything, then of each sequence if `sequences` > 0 */
    int64_t sequences;
    double forward_s, backward_s; /* NaN: not run */
    bool differs;                 /* from the run with the first thread count */
} cli_run_report;

/* Prints its error and returns an exit status. */
int cli_run_show(const cli_json_target *target, const cli_run_report *reports, size_t count);

#endif
