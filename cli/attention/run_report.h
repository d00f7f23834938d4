/* run_report.h: what one run gave, for people and as JSON. */
#ifndef CLI_RUN_REPORT_H
#define CLI_RUN_REPORT_H

#include "kit/report.h"
#include "kit/tensors.h"

typedef struct cli_digests {
    uint64_t of[CLI_OUTPUTS];
} cli_digests;

typedef struct cli_run_report {
    ordo_backend backend;
    ordo_problem problem;
    char *line;
    int64_t threads; /* 0: all */
    uint64_t seed, offset;
    const char *dropout_mode; /* NULL: nothing to say */
    bool has[CLI_OUTPUTS];
    cli_digests *digests; /* of everything, then of each sequence if `sequences` > 0 */
    int64_t sequences;
    double forward_s, backward_s; /* negative: not run */
    bool differs;                 /* from the run with the first thread count */
} cli_run_report;

/* Prints its error and returns an exit status. */
int cli_run_show(const cli_json_wish *wish, const cli_run_report *reports, size_t count);

#endif
