/* plan_report.h: everything about a plan, for people and as JSON. */
#ifndef CLI_PLAN_REPORT_H
#define CLI_PLAN_REPORT_H

#include "kit/report.h"
#include "ordo/lab/io.h"
#include "ordo/lab/model.h"
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
    bool priced; /* the model has the rates of the machine */
    ordo_plan_price price;
    bool counted; /* of a cuda plan, on a machine that the byte model knows */
    ordo_io_bytes bytes;
    const ordo_machine *memory; /* --memory: the machine whose levels are explained; else NULL */
} cli_plan_report;

/* Prints its error and returns an exit status. */
int cli_plan_show(const cli_json_target *target, const cli_plan_report *reports, size_t count);
void cli_plan_lines(const cli_plan_report *reports, size_t count);

/* Of each plan, what two parties compare before they expect equal bits; as cli_plan_show(). */
int cli_plan_contract(const cli_json_target *target, const cli_plan_report *reports, size_t count);

/* The choice of the I/O model at each memory level, as a table and as a JSON array. */
void cli_plan_memory_text(const cli_plan_report *report);
void cli_plan_memory_json(cli_json *json, const cli_plan_report *report);

#endif
