/* plan_args.h: options for explicit choices of a plan, and names of orders. */
#ifndef CLI_PLAN_ARGS_H
#define CLI_PLAN_ARGS_H

#include "kit/args.h"
#include "kit/json.h"
#include "ordo/ordo.h"

enum { CLI_CHOICE_OPTIONS = 12 };

typedef struct cli_choices {
    const char *order, *group, *tile_forward, *tile_backward;
    int issue, assign; /* -1: not given */
    int64_t section, workers, segments, keep_bits_memory, workspace_limit, split;
    cli_option options[CLI_CHOICE_OPTIONS]; /* the last, --split, is deprecated everywhere */
} cli_choices;

cli_section cli_choices_section(cli_choices *choices);

/* The same options where --plan replaces them: accepted with a note, and not in the help. */
cli_section cli_choices_deprecated(cli_choices *choices);

/* Convert the options for the library. Prints its error and returns an exit status. */
int cli_choices_finish(const cli_choices *choices, ordo_plan_options *options);

/* The options that give a plan's choices to plans of other problems. The section, which changes no
 * bit, depends on the number of heads and is left to ordo. */
int cli_choices_of(const ordo_plan *plan, ordo_plan_options *options);

/* Read the name of an order; the usage error lists all names. */
int cli_read_order(const char *name, ordo_order *order);

/* Read "waves" or a size; NULL gives 0, the default. */
int cli_read_group(const char *text, int64_t *group);

/* A group for people, ", group waves" or nothing if there is none, and as JSON. */
void cli_group_text(int64_t group);
void cli_group_json(cli_json *json, int64_t group);

/* Levels of the promise (ORDO_PROMISE_... of a plan): their names and the end of the line. */
void cli_levels_text(unsigned levels);
void cli_levels_json(cli_json *json, const char *key, unsigned levels);

/* Returns the plan's line, allocated, or NULL after printing an error and setting `exit_status`. */
char *cli_plan_line(const ordo_plan *plan, int *exit_status);

#endif
