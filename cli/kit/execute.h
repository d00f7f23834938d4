/* execute.h: what the commands that execute plans share. */
#ifndef CLI_EXECUTE_H
#define CLI_EXECUTE_H

#include "kit/problem_args.h"
#include "kit/stage.h"

/* Each prints its error and returns an exit status. */

/* The backend to run on, if it can: the one named, or the cpu, or failing that the oracle. For
 * cuda its device is selected. */
int cli_choose_backend(const cli_problem *words, ordo_backend *backend);

/* --dropout-mode as typed (-1: not) for a backend. */
#define CLI_MODE_OPTION(target)                                                                    \
    CLI_OPTION("--dropout-mode", CLI_DROPOUT_MODES, CLI_CHOICE, target,                            \
               "cuda: when keep bits are made (given: ahead); changes none")
int cli_choose_mode(int asked, ordo_backend backend, cli_dropout_mode *mode);

/* Its name for a report; NULL where there is nothing to say. */
const char *cli_mode_shown(ordo_backend backend, const ordo_problem *problem,
                           cli_dropout_mode mode);

/* Refuse what would take hours or all the memory, before anything is allocated: `runs` passes
 * forward and backward over `copies` sets of tensors. */
int cli_check_size(const cli_problem *words, const ordo_problem *problem, ordo_backend backend,
                   double runs, double copies, bool force);

/* Both passes, or only the first, on poisoned outputs, after the keep bits they need; the seconds
 * each took, if not NULL. What came out is on the stage, until cli_stage_fetch(). */
int cli_execute(const ordo_plan *plan, cli_stage *stage, bool backward, double *forward_s,
                double *backward_s);

#endif
