/* verify_cut.h: `ordo verify --cut`: sequences cut into calls, compared with the uncut run. */
#ifndef CLI_VERIFY_CUT_H
#define CLI_VERIFY_CUT_H

#include "attention/verify_checks.h"

/* The values of --cut. */
typedef enum cli_cut { CLI_CUT_ROWS, CLI_CUT_COLUMNS, CLI_CUT_DECODE } cli_cut;

/* One problem, its plan and the run to compare with. */
typedef struct cli_cut_trial {
    const cli_verify_request *request;
    const ordo_plan_info *info;
    const cli_tensors *first; /* results to compare with */
    const cli_stage *base;    /* the same where the backend has them */
    cli_tensors *again;       /* results of the pieces, put together */
    cli_stage *stage;         /* its stage */
    cli_verify_report *report;
} cli_cut_trial;

/* Run the pieces and add the checks of request->cut to the report. Prints its error and returns an
 * exit status. */
int cli_verify_cut(const cli_cut_trial *trial);

#endif
