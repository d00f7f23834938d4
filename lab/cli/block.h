/* block.h: results of `ordo block`, for people and as JSON. */
#ifndef CLI_BLOCK_H
#define CLI_BLOCK_H

#include "kit/report.h"
#include "ordo/lab/block.h"

/* One mode of the block. */
typedef struct cli_block_result {
    ordo_block_mode mode;
    uint64_t o, dx, dw; /* digests */
    bool repeats;       /* a second run has the same */
    bool timed;
    ordo_block_time time;
} cli_block_result;

typedef struct cli_block_report {
    ordo_block_job job;
    ordo_block_info info;
    cli_block_result modes[ORDO_BLOCK_MODES];
    int count;
    bool compared, equal; /* digests of several modes that drop */
    bool has_interference, has_trace;
    ordo_block_interference interference;
    ordo_block_trace trace;
} cli_block_report;

/* Interference and trace, if they were measured. */
void cli_block_beside_json(cli_json *json, const cli_block_report *report);
void cli_block_beside_text(const cli_block_report *report);

/* Print the report, or write it as JSON on request; returns an exit status. */
int cli_block_show(const cli_json_target *json, const cli_block_report *report);

#endif
