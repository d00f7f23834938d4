/* run.c: `ordo run`: run attention on seeded inputs or files, print digests of what comes out. */
#include "attention/run_inputs.h"
#include "attention/run_report.h"
#include "commands.h"
#include "kit/args.h"
#include "kit/execute.h"
#include "kit/message.h"
#include "kit/plan_args.h"
#include "kit/problem_args.h"
#include "kit/tensors.h"

#include <stdlib.h>
#include <string.h>

typedef struct request {
    cli_problem problem;
    cli_choices choices;
    cli_inputs inputs;
    int pass; /* index in "forward|backward|both" */
    int mode_asked;
    cli_dropout_mode mode;
    bool sequences, force;
} request;

enum { FORWARD, BACKWARD, BOTH };

static int digest_outputs(const cli_tensors *t, cli_run_report *report, bool sequences)
{
    const int64_t batch = sequences ? t->problem.batch : 0;
    report->digests = calloc((size_t)(batch + 1), sizeof *report->digests);
    if (report->digests == NULL)
        return cli_out_of_memory();
    report->sequences = batch;
    for (int64_t b = 0; b <= batch; b++) /* all of them first, then one by one */
        for (int i = 0; i < CLI_OUTPUTS; i++)
            if (report->has[i])
                report->digests[b].of[i] = cli_tensors_digest(t, (cli_output)i, b - 1);
    return CLI_OK;
}

static int run_once(const request *r, const ordo_plan *plan, cli_stage *stage,
                    cli_run_report *report)
{
    stage->call.seed = report->seed = r->problem.seed;
    stage->call.offset = report->offset = r->problem.offset;
    stage->call.threads = (int)report->threads;
    report->forward_s = report->backward_s = -1;
    report->has[CLI_O] = report->has[CLI_LSE] = r->pass != BACKWARD;
    report->has[CLI_DQ] = report->has[CLI_DK] = report->has[CLI_DV] = r->pass != FORWARD;
    int status =
        cli_execute(plan, stage, r->pass != FORWARD, &report->forward_s, &report->backward_s);
    if (status == CLI_OK)
        status = cli_stage_fetch(stage);
    return status == CLI_OK ? digest_outputs(stage->tensors, report, r->sequences) : status;
}

/* One problem with every thread count; a report for each. */
static int run_problem(const request *r, const ordo_problem *problem, ordo_plan_options *options,
                       cli_run_report *reports)
{
    const cli_list *threads = &r->problem.threads;
    ordo_plan *plan = NULL;
    cli_tensors tensors = { 0 };
    cli_stage stage = { .tensors = &tensors };
    /* The plan first: what is no problem at all is not one that is too large. */
    const ordo_status made = ordo_plan_create(&plan, problem, r->problem.machine, options);
    if (made != ORDO_OK)
        return cli_library(made);
    int status = cli_check_size(&r->problem, problem, options->backend,
                                threads->count ? (double)threads->count : 1, 1, r->force);
    if (status == CLI_OK && !cli_tensors_make(&tensors, plan, r->problem.q_numbers,
                                              r->problem.kv_numbers, NULL, r->problem.seed))
        status = cli_out_of_memory();
    if (status == CLI_OK)
        status = cli_inputs_load(&r->inputs, &tensors);
    if (status == CLI_OK)
        status = cli_stage_open(&stage, plan, &tensors, r->mode);
    for (size_t i = 0; i < (threads->count ? threads->count : 1) && status == CLI_OK; i++) {
        reports[i].backend = options->backend;
        reports[i].problem = tensors.problem;
        reports[i].dropout_mode = cli_mode_shown(options->backend, &tensors.problem, r->mode);
        reports[i].threads = threads->count ? threads->values[i] : 0;
        reports[i].line = cli_plan_line(plan, &status);
        if (status == CLI_OK)
            status = run_once(r, plan, &stage, &reports[i]);
        reports[i].differs =
            status == CLI_OK && i > 0 &&
            memcmp(reports[i].digests, reports[0].digests, sizeof *reports[i].digests) != 0;
    }
    if (status == CLI_OK)
        status = cli_outputs_save(&r->inputs, &tensors, reports[0].has);
    cli_stage_close(&stage);
    cli_tensors_free(&tensors);
    ordo_plan_destroy(plan);
    return status;
}

static int run_all(request *r, cli_run_report *reports, size_t problems, size_t runs)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    int status = cli_choices_finish(&r->choices, &options);
    if (status == CLI_OK)
        status = cli_choose_backend(&r->problem, &options.backend);
    if (status == CLI_OK)
        status = cli_choose_mode(r->mode_asked, options.backend, &r->mode);
    for (size_t i = 0; i < problems && status == CLI_OK; i++) {
        const ordo_problem problem = cli_problem_at(&r->problem, i);
        status = run_problem(r, &problem, &options, &reports[i * runs]);
    }
    return status == CLI_OK ? cli_run_show(&r->problem.json, reports, problems * runs) : status;
}

static int run_request(request *r)
{
    int status = cli_inputs_open(&r->inputs, &r->problem);
    if (status == CLI_OK)
        status = cli_problem_finish(&r->problem);
    if (status != CLI_OK)
        return status;
    const size_t problems = cli_problem_count(&r->problem);
    if (r->inputs.out_dir && problems > 1)
        return cli_usage("--out-dir: expected one problem, no lists");
    const size_t runs = r->problem.threads.count > 0 ? r->problem.threads.count : 1;
    cli_run_report *reports = calloc(problems * runs, sizeof *reports);
    if (reports == NULL)
        return cli_out_of_memory();
    status = run_all(r, reports, problems, runs);
    for (size_t i = 0; i < problems * runs; i++) {
        if (status == CLI_OK && reports[i].differs)
            status = cli_error(CLI_DIFFERENT, "the digests depend on the number of threads");
        free(reports[i].line);
        free(reports[i].digests);
    }
    free(reports);
    return status;
}

int cli_run(int argc, char **argv)
{
    request r = { 0 };
    cli_option more[] = {
        CLI_OPTION("--pass", "forward|backward|both", CLI_CHOICE, &r.pass, "what to digest (both)"),
        CLI_OPTION("--sequences", NULL, CLI_FLAG, &r.sequences, "digests of each sequence too"),
        CLI_MODE_OPTION(&r.mode_asked),
        CLI_OPTION("--force", NULL, CLI_FLAG, &r.force, "run however long it may take"),
    };
    r.pass = BOTH;
    r.mode_asked = -1;
    const cli_section sections[] = {
        cli_problem_section(&r.problem),
        cli_choices_section(&r.choices),
        cli_inputs_section(&r.inputs),
        CLI_SECTION("The run", more),
    };
    const cli_syntax syntax = {
        "run --seq N [OPTIONS]",
        "Run attention, forward and backward, on seeded inputs or on files; print the plan's line\n"
        "and an XXH64 digest of each result. Equal digests mean equal bits. With several thread\n"
        "counts the digests are compared, and a difference gives exit status 1.",
        sections, 4,
        "  ordo run --seq 256 --heads 4 --kv-heads 2 --mask causal --dtype bf16\n"
        "  ordo run --seq 200 --mask causal --dropout 0.1 --seed 7 --threads 1,2,4\n"
        "  ordo run --cu-seqlens 0,100,356 --heads 2 --sequences --json\n"
        "  ordo run --q q.npy --k k.npy --v v.npy --mask causal --out-dir results\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status))
        status = run_request(&r);
    cli_problem_free(&r.problem);
    return status;
}
