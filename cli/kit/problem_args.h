/* problem_args.h: options for a problem, the same in every command that takes one. */
#ifndef CLI_PROBLEM_ARGS_H
#define CLI_PROBLEM_ARGS_H

#include "kit/args.h"
#include "kit/json.h"
#include "ordo/ordo.h"

enum { CLI_PROBLEM_OPTIONS = 30 };

typedef struct cli_problem {
    /* As typed; a list of n values stands for n problems. */
    cli_list batch, heads, seq, dim;
    int64_t kv_heads, kv_seq, v_dim;
    int mask, dtype, keying, device, bias; /* device, bias -1: not given */
    const char *window, *machine_name, *block_mask, *seen;
    double scale, softcap, dropout;
    bool alibi;
    cli_list cu_q, cu_kv, q_lens, kv_lens;
    int64_t rounds, bits;
    uint64_t seed, offset;
    cli_list threads;
    cli_json_target json;
    const char *line; /* --plan, in commands that have it; NULL: the options state the problem */

    /* With --plan, after cli_problem_read_plan(). */
    ordo_plan *plan;
    ordo_problem planned;

    /* After cli_problem_finish(). */
    ordo_layout layout;
    ordo_window window_read;
    ordo_backend backend;  /* DEFAULT if --device was not given */
    ordo_machine *machine; /* NULL: the host */
    int32_t *q_numbers;    /* packed: batch + 1 ends; padded: batch lengths; else NULL */
    int32_t *kv_numbers;
    ordo_block_mask **masks; /* masks of blocks or elements, one per value of seq; NULL: none */

    cli_option options[CLI_PROBLEM_OPTIONS];
} cli_problem;

/* Entry of a table of options. */
#define CLI_PLAN_OPTION(problem)                                                                   \
    OPT_TEXT("--plan", "LINE", &(problem)->line,                                                   \
             "line of ordo plan --line, in place of the options that it states")

/* The label of an option for a mask: the names of all, in the order of ordo_mask. */
const char *cli_mask_words(void);

/* Set the defaults, and return the options as a section for a cli_syntax. */
cli_section cli_problem_section(cli_problem *problem);

/* With --plan: read the line, and refuse options that state what the line states. A command that
 * looks at options before cli_problem_finish() calls this first. Prints its error and returns an
 * exit status. */
int cli_problem_read_plan(cli_problem *problem);

/* Check the options against each other and load the machine. Prints its error and returns an
 * exit status. */
int cli_problem_finish(cli_problem *problem);
/* Whether the option was typed, by its name with dashes. */
bool cli_problem_used(const cli_problem *problem, const char *name);

void cli_problem_free(cli_problem *problem);

/* One problem per combination of values in the lists. */
size_t cli_problem_count(const cli_problem *problem);
ordo_problem cli_problem_at(const cli_problem *problem, size_t index);

/* The mask of blocks or elements of a problem that cli_problem_at() returned; NULL: it has none. */
const ordo_block_mask *cli_problem_mask(const cli_problem *words, const ordo_problem *problem);

/* One line for people; the fields as a JSON object. */
void cli_problem_describe(const ordo_problem *problem, char *text, size_t capacity);
void cli_problem_json(cli_json *json, const char *key, const ordo_problem *problem);

#endif
