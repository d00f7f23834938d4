/* plan.c: `ordo plan`: turn problems into plans and say everything about them. */
#include "attention/plan_report.h"
#include "commands.h"
#include "kit/args.h"
#include "kit/lab.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/plan_args.h"
#include "kit/problem_args.h"

#include <stdlib.h>
#include <string.h>

typedef struct request {
    cli_problem problem;
    cli_choices choices;
    bool check, line, memory, contract;
    ordo_machine *host; /* --memory without --machine */
    const char *read;
} request;

/* What the laboratory says of a plan on the machine named, or on the host; a plan's line alone
 * names none. */
static void forecast(cli_plan_report *report, const ordo_plan *plan, const request *r)
{
    ordo_machine *host = NULL;
    report->advised = !r->read && report->info.backend != ORDO_BACKEND_REF;
    if (!report->advised || !cli_lab())
        return;
    if (r->problem.machine)
        cli_lab()->forecast(plan, r->problem.machine, &report->forecast);
    else if (ordo_machine_create(&host, "host") == ORDO_OK)
        cli_lab()->forecast(plan, host, &report->forecast);
    ordo_machine_destroy(host);
}

/* Everything about a plan that was made; takes the plan over. */
static int fill_report(cli_plan_report *report, ordo_plan *plan, const request *r)
{
    const bool check = r->check;
    const ordo_block_mask *mask = cli_problem_mask(&r->problem, &report->problem);
    int status = CLI_OK;
    report->info = (ordo_plan_info)ORDO_PLAN_INFO_INIT;
    ordo_status known = ordo_plan_query(plan, &report->info);
    report->problem = (ordo_problem)ORDO_PROBLEM_INIT;
    if (known == ORDO_OK)
        known = ordo_plan_problem(plan, &report->problem);
    if (known == ORDO_OK && check) {
        cli_progress_start("checking");
        known = ordo_plan_check(plan, &report->pairs);
        if (known == ORDO_OK && mask)
            known = ordo_block_mask_check(plan, mask, &report->pairs);
        cli_progress_stop();
        report->checked = true;
    }
    if (known == ORDO_OK)
        forecast(report, plan, r);
    report->workspace = ordo_plan_workspace(plan);
    if (known != ORDO_OK)
        status = cli_library(known);
    else
        report->line = cli_plan_line(plan, &status);
    ordo_plan_destroy(plan);
    return status;
}

static int plan_problems(const request *r, cli_plan_report *reports, size_t count)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    int worst = cli_choices_finish(&r->choices, &options);
    if (worst != CLI_OK)
        return worst;
    options.backend = r->problem.backend;
    for (size_t i = 0; i < count; i++) {
        ordo_plan *plan = NULL;
        cli_plan_report *report = &reports[i];
        report->problem = cli_problem_at(&r->problem, i);
        report->status = ordo_plan_create(&plan, &report->problem, r->problem.machine, &options);
        if (report->status == ORDO_OK) {
            const int status = fill_report(report, plan, r);
            if (status != CLI_OK)
                return status;
            continue;
        }
        if (count == 1)
            return cli_library(report->status);
        /* One of several: the others are still worth showing. */
        snprintf(report->why, sizeof report->why, "%s", ordo_last_error());
        const int exit_status = cli_exit_of(report->status);
        worst = exit_status > worst ? exit_status : worst;
    }
    return worst;
}

/* Whether standard input has something else than ends of lines. */
static bool more_on_stdin(void)
{
    int c = getchar();
    while (c == '\n')
        c = getchar();
    return c != EOF;
}

/* The line on standard input, without its end. */
static int read_stdin_line(char **line)
{
    size_t length = 0, capacity = 0;
    *line = NULL;
    for (int c; (c = getchar()) != EOF && c != '\n';) {
        if (length + 2 > capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            char *bigger = capacity > (1 << 20) ? NULL : realloc(*line, capacity);
            if (bigger == NULL)
                return cli_usage("--read -: the line is too long for a plan");
            *line = bigger;
        }
        (*line)[length++] = (char)c;
    }
    if (*line == NULL)
        return cli_usage("--read -: expected a plan line on standard input");
    (*line)[length] = '\0';
    if (strlen(*line) != length || more_on_stdin())
        return cli_usage("--read -: expected one plan line on standard input, and nothing else");
    return CLI_OK;
}

static int plan_from_line(const request *r, cli_plan_report *report)
{
    ordo_plan *plan = NULL;
    char *typed = NULL;
    int status = strcmp(r->read, "-") == 0 ? read_stdin_line(&typed) : CLI_OK;
    if (status == CLI_OK) {
        report->status = ordo_plan_parse(&plan, typed ? typed : r->read);
        status =
            report->status == ORDO_OK ? fill_report(report, plan, r) : cli_library(report->status);
    }
    free(typed);
    return status;
}

static int show(const request *r, const cli_plan_report *reports, size_t count)
{
    if (r->contract)
        return cli_plan_contract(&r->problem.json, reports, count);
    if (r->problem.json.on || !r->line)
        return cli_plan_show(&r->problem.json, reports, count);
    cli_plan_lines(reports, count);
    return CLI_OK;
}

/* With --read the line says it all; options of the problem would be ignored. */
static int refuse_given(const cli_option *options, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (options[i].used && options[i].kind != CLI_JSON)
            return cli_usage("%s: the line after --read already states the problem",
                             options[i].name);
    return CLI_OK;
}

static int check_alone(const request *r)
{
    const int status = refuse_given(r->problem.options, CLI_PROBLEM_OPTIONS);
    return status != CLI_OK ? status : refuse_given(r->choices.options, CLI_CHOICE_OPTIONS);
}

static int open_host(request *r)
{
    return cli_library(ordo_machine_create(&r->host, "host"));
}

static int run_request(request *r)
{
    if (r->contract && r->line)
        return cli_usage("--contract and --line: expected one of them");
    if (r->memory && !cli_lab())
        return cli_error(CLI_UNSUPPORTED,
                         "--memory: this command was built without the laboratory");
    if (r->memory && (r->contract || r->line))
        return cli_usage("--memory and %s: expected one of them",
                         r->contract ? "--contract" : "--line");
    if (r->problem.json.on && r->line)
        return cli_usage("--json and --line: expected one of them; \"line\" is in the JSON");
    int status = r->read ? check_alone(r) : cli_problem_finish(&r->problem);
    if (status == CLI_OK && r->memory && !r->problem.machine)
        status = open_host(r);
    if (status != CLI_OK)
        return status;
    const size_t count = r->read ? 1 : cli_problem_count(&r->problem);
    cli_plan_report *reports = calloc(count, sizeof *reports);
    if (reports == NULL)
        return cli_out_of_memory();
    status = r->read ? plan_from_line(r, reports) : plan_problems(r, reports, count);
    for (size_t i = 0; r->memory && i < count; i++)
        reports[i].memory = r->problem.machine ? r->problem.machine : r->host;
    /* Several plans are shown even if some were refused, and the status says so. */
    if (status == CLI_OK || (count > 1 && status != CLI_FAILED)) {
        const int shown = show(r, reports, count);
        status = shown != CLI_OK ? shown : status;
    }
    for (size_t i = 0; i < count; i++)
        free(reports[i].line);
    free(reports);
    return status;
}

#define EXAMPLES                                                                                   \
    "  ordo plan --heads 32 --kv-heads 8 --seq 4k --dim 128 --mask causal --dtype bf16\n"          \
    "  ordo plan --seq 1k,4k,16k --heads 16 --dim 128 --dtype bf16 --machine h200 --json\n"        \
    "  ordo plan --seq 1000 --order spt --tile-backward 64x128 --mask causal --check\n"            \
    "  ordo plan --seq 4k --line | ordo plan --read -\n"                                           \
    "  ordo plan --seq 8k --heads 32 --dtype bf16 --machine h200 --contract\n"
#define MEMORY_EXAMPLE                                                                             \
    "  ordo plan --seq 8k --heads 32 --dim 256 --dtype bf16 --machine h200 --memory\n"

int cli_plan(int argc, char **argv)
{
    request r = { 0 };
    cli_option more[] = {
        OPT_FLAG("--check", &r.check, "check the plan tile by tile"),
        OPT_FLAG("--memory", &r.memory, "what the I/O model prefers at each memory level"),
        OPT_FLAG("--contract", &r.contract, "what two parties compare to expect equal bits"),
        OPT_FLAG("--line", &r.line, "print only the plan's line"),
        OPT_TEXT("--read", "LINE|-", &r.read, "read a plan's line instead of a problem"),
    };
    const cli_section sections[] = {
        cli_problem_section(&r.problem),
        cli_choices_section(&r.choices),
        CLI_SECTION("Output", more),
        { NULL, &r.choices.options[CLI_CHOICE_OPTIONS - 1], 1, "nothing: every plan has 1" },
    };
    const cli_syntax syntax = {
        "plan --seq N [OPTIONS]",
        "Turn a problem into a plan: tiles, the order of every sum, workspace, and the levels of\n"
        "the promise that it keeps. A list of values makes one plan for each value.",
        sections, 4, cli_lab() ? EXAMPLES MEMORY_EXAMPLE : EXAMPLES
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status))
        status = run_request(&r);
    cli_problem_free(&r.problem);
    ordo_machine_destroy(r.host);
    return status;
}
