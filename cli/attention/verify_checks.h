/* verify_checks.h: the runs of one problem by `ordo verify`, and their comparison. */
#ifndef CLI_VERIFY_CHECKS_H
#define CLI_VERIFY_CHECKS_H

#include "attention/verify_report.h"

typedef struct cli_verify_request {
    cli_job job;    /* with thread counts, one at least; for cuda a 0 */
    cli_list grids; /* cuda: numbers of workers, besides the plan's own */
    int64_t repeats, delay_us;
    int cut;      /* a cli_cut, whose checks replace the others; -1: none */
    int64_t page; /* rows of a page of keys, with the cut decode; 0: no pages */
    int argc;     /* as typed, for other processes */
    char **argv;
} cli_verify_request;

/* Run problem `index` of the lists once and then in all other ways, and compare their bits. In a
 * child process, run it once and send the outputs to the parent. Prints its error and
 * returns an exit status. The report has room for one more check; its owner frees `checks` and
 * what `block` holds. */
int cli_verify_problem(const cli_verify_request *request, size_t index, cli_verify_report *report);

#endif
