/* execute.h: what the commands that execute plans share. */
#ifndef CLI_EXECUTE_H
#define CLI_EXECUTE_H

#include "kit/plan_args.h"
#include "kit/problem_args.h"
#include "kit/stage.h"

enum { CLI_FORWARD, CLI_BACKWARD, CLI_PASSES };

/* The problems to execute, read from the command line. */
typedef struct cli_job {
    cli_problem problem;
    cli_choices choices;
    int mode;     /* --dropout-mode: 0 sequential, 1 fused, 2 pipelined; -1: not given */
    int backward; /* --backward-bits: 0 keep, 1 regenerate; -1: not given */
    bool force, sinks;

    /* After cli_job_finish(). */
    ordo_plan_options options; /* with a backend that is available */
    cli_dropout dropout;
} cli_job;

#define CLI_JOB_INIT                                                                               \
    {                                                                                              \
        .mode = -1, .backward = -1                                                                 \
    }

/* Entries of a table of options. */
#define CLI_JOB_OPTIONS(job)                                                                       \
    CLI_PLAN_OPTION(&(job)->problem),                                                              \
        OPT_CHOICE("--dropout-mode", "sequential|fused|pipelined", &(job)->mode,                   \
                   "make keep bits before the passes (cuda), inside them, or by segments"),        \
        OPT_CHOICE("--backward-bits", "keep|regenerate", &(job)->backward,                         \
                   "sequential: keep the forward bits (default), or make them again"),             \
        OPT_FLAG("--sinks", &(job)->sinks, "a learned logit for each head, seeded"),               \
        OPT_FLAG("--force", &(job)->force, "run however long it takes")

/* Each prints its error and returns an exit status. */

/* Check the options against each other and choose a backend that is available: the one named, or
 * the cpu, or else the oracle. For cuda the device is selected. */
int cli_job_finish(cli_job *job);
void cli_job_free(cli_job *job);

/* Make the plan of one problem. A problem that would take hours or all the memory is refused before
 * anything is allocated: `runs` passes forward and backward over `copies` sets of tensors. */
int cli_job_plan(const cli_job *job, const ordo_problem *problem, double runs, double copies,
                 ordo_plan **plan, ordo_plan_info *info);

/* What was executed, as every report states it. */
typedef struct cli_executed {
    ordo_backend backend;
    ordo_problem problem; /* as the plan holds it */
    uint64_t seed, offset;
    bool sinks;
    bool has_dropout; /* there is a choice of how to get keep bits: a device, or segments */
    cli_dropout dropout;
    int64_t threads;        /* 0: all of them, or those of a device */
    int64_t workers;        /* workers of a device; else 0 */
    int64_t segments;       /* segments of rows; 0: none */
    uint64_t segment_bytes; /* bytes of their keep bits in memory */
    char *line;             /* the plan's; free() releases it */
} cli_executed;

int cli_executed_fill(cli_executed *executed, const cli_job *job, const ordo_plan *plan,
                      int64_t threads);
void cli_executed_text(const cli_executed *executed);
void cli_executed_json(cli_json *json, const cli_executed *executed);

/* Digests of the outputs that `has` names; NULL: of all that have one, which is not 0. */
void cli_digests_text(const uint64_t of[CLI_OUTPUTS], const bool *has);
void cli_digests_json(cli_json *json, const char *key, const uint64_t of[CLI_OUTPUTS],
                      const bool *has);

/* Make the keep bits, fill the outputs with NaNs, and run both passes or only the forward pass. The
 * seconds of each pass are stored unless NULL. The results stay on the stage until
 * cli_stage_fetch(). */
int cli_execute(const ordo_plan *plan, cli_stage *stage, bool backward, double *forward_s,
                double *backward_s);

#endif
