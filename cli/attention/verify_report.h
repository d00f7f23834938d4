/* verify_report.h: what `ordo verify` compared and found, for people and as JSON. */
#ifndef CLI_VERIFY_REPORT_H
#define CLI_VERIFY_REPORT_H

#include "attention/verify_compare.h"
#include "kit/digest_file.h"
#include "kit/execute.h"
#include "kit/report.h"

/* Of several comparisons together it is the largest one. */
typedef enum cli_verdict { CLI_NOT_RUN, CLI_EQUAL, CLI_DIFFERS } cli_verdict;

/* One kind of run, compared with the first one. */
typedef struct cli_check {
    char name[80];
    int64_t runs;
    cli_verdict verdict;
    bool located; /* `difference` says where */
    cli_difference difference;
    char note[256]; /* why not run, or what differs, for people */
} cli_check;

typedef struct cli_verify_report {
    cli_executed is; /* the first run */
    unsigned kept;   /* ORDO_PROMISE_... */
    cli_digest_block block;
    cli_check *checks;
    size_t count;
    int64_t runs;        /* all of them, the first included */
    cli_verdict verdict; /* of all checks */
    double seconds;
} cli_verify_report;

/* A new check of the report, equal so far; the report has room for it. */
cli_check *cli_verify_add(cli_verify_report *report);

/* What all reports found together. */
cli_verdict cli_verify_verdict(const cli_verify_report *reports, size_t count);

/* Prints its error and returns an exit status. */
int cli_verify_show(const cli_json_target *target, const cli_verify_report *reports, size_t count);

#endif
