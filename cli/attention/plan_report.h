/* plan_report.h: everything about a plan, for people and as JSON. */
#ifndef CLI_PLAN_REPORT_H
#define CLI_PLAN_REPORT_H

#include "kit/lab.h"
#include "kit/report.h"
#include "ordo/ordo.h"

typedef struct cli_plan_report {
    ordo_status status;
    char why[512]; /* if it is not ORDO_OK; then only the problem below is known */
    ordo_problem problem;
    ordo_plan_info info;
    size_t workspace;
    char *line;
    bool checked;
    uint64_t pairs;
    bool advised; /* info says how a known machine should make the keep bits */
    cli_forecast forecast;
    const ordo_machine *memory; /* --memory: the machine whose levels are explained; else NULL */
} cli_plan_report;

/* Prints its error and returns an exit status. */
int cli_plan_show(const cli_json_target *target, const cli_plan_report *reports, size_t count);
void cli_plan_lines(const cli_plan_report *reports, size_t count);

/* Print what two parties compare of each plan before they expect equal bits; as cli_plan_show(). */
int cli_plan_contract(const cli_json_target *target, const cli_plan_report *reports, size_t count);

#endif
