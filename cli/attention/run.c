/* run.c: `ordo run`: run attention on seeded inputs or files, print digests of what comes out. */
#include "attention/run_inputs.h"
#include "attention/run_report.h"
#include "commands.h"
#include "kit/message.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    cli_job job;
    cli_inputs inputs;
    int pass; /* index in "forward|backward|both" */
    bool sequences;
} request;

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
    stage->call.seed = report->is.seed;
    stage->call.offset = report->is.offset;
    stage->call.threads = (int)report->is.threads;
    report->forward_s = report->backward_s = NAN;
    report->has[CLI_O] = report->has[CLI_LSE] = r->pass != CLI_BACKWARD;
    report->has[CLI_DQ] = report->has[CLI_DK] = report->has[CLI_DV] = r->pass != CLI_FORWARD;
    report->has[CLI_DSINK] = r->pass != CLI_FORWARD && r->job.sinks;
    report->has[CLI_DBIAS] = r->pass != CLI_FORWARD && stage->tensors->problem.bias.on;
    CLI_TRY(
        cli_execute(plan, stage, r->pass != CLI_FORWARD, &report->forward_s, &report->backward_s));
    CLI_TRY(cli_stage_fetch(stage));
    return digest_outputs(stage->tensors, report, r->sequences);
}

/* One problem with every thread count; a report for each. */
static int run_problem(const request *r, const ordo_problem *problem, cli_run_report *reports)
{
    const cli_problem *words = &r->job.problem;
    const size_t runs = words->threads.count > 0 ? words->threads.count : 1;
    ordo_plan *plan = NULL;
    ordo_plan_info info;
    cli_tensors tensors = { 0 };
    cli_stage stage = { .tensors = &tensors };
    int status = cli_job_plan(&r->job, problem, (double)runs, 1, &plan, &info);
    if (status == CLI_OK && !cli_tensors_make(&tensors, plan, words->q_numbers, words->kv_numbers,
                                              NULL, words->seed, r->job.sinks))
        status = cli_out_of_memory();
    tensors.mask = cli_problem_mask(words, problem);
    if (status == CLI_OK)
        status = cli_inputs_load(&r->inputs, &tensors);
    if (status == CLI_OK)
        status = cli_stage_open(&stage, plan, &tensors, r->job.dropout);
    for (size_t i = 0; i < runs && status == CLI_OK; i++) {
        const int64_t threads = words->threads.count > 0 ? words->threads.values[i] : 0;
        status = cli_executed_fill(&reports[i].is, &r->job, plan, threads);
        if (status == CLI_OK)
            status = run_once(r, plan, &stage, &reports[i]);
        reports[i].differs =
            status == CLI_OK && i > 0 &&
            memcmp(reports[i].digests, reports[0].digests, sizeof *reports[i].digests) != 0;
    }
    if (status == CLI_OK)
        status = cli_outputs_save(&r->inputs, &tensors, reports[0].has, reports[0].is.line,
                                  reports[0].is.seed, reports[0].is.offset);
    cli_stage_close(&stage);
    cli_tensors_free(&tensors);
    ordo_plan_destroy(plan);
    return status;
}

static int run_all(const request *r, cli_run_report *reports, size_t problems, size_t runs)
{
    for (size_t i = 0; i < problems; i++) {
        const ordo_problem problem = cli_problem_at(&r->job.problem, i);
        CLI_TRY(run_problem(r, &problem, &reports[i * runs]));
    }
    return cli_run_show(&r->job.problem.json, reports, problems * runs);
}

static int run_request(request *r)
{
    const cli_problem *words = &r->job.problem;
    CLI_TRY(cli_inputs_open(&r->inputs, &r->job.problem));
    CLI_TRY(cli_job_finish(&r->job));
    const size_t problems = cli_problem_count(words);
    if ((r->inputs.out_dir || r->inputs.save) && problems > 1)
        return cli_usage("--%s: expected one problem, no lists",
                         r->inputs.out_dir ? "out-dir" : "save");
    if (r->inputs.save && words->masks)
        return cli_usage("--save: expected no %s, which has no place in the file",
                         words->seen ? "--seen" : "block mask");
    CLI_TRY(cli_outputs_check(&r->inputs));
    const size_t runs = words->threads.count > 0 ? words->threads.count : 1;
    cli_run_report *reports = calloc(problems * runs, sizeof *reports);
    if (reports == NULL)
        return cli_out_of_memory();
    int status = run_all(r, reports, problems, runs);
    for (size_t i = 0; i < problems * runs; i++) {
        if (status == CLI_OK && reports[i].differs)
            status = cli_error(CLI_DIFFERENT, "the digests depend on the number of threads");
        free(reports[i].is.line);
        free(reports[i].digests);
    }
    free(reports);
    return status;
}

int cli_run(int argc, char **argv)
{
    request r = { .job = CLI_JOB_INIT, .pass = CLI_PASSES };
    cli_option more[] = {
        OPT_CHOICE("--pass", "forward|backward|both", &r.pass, "outputs to digest (default both)"),
        OPT_FLAG("--sequences", &r.sequences, "print the digests of each sequence too"),
        CLI_JOB_OPTIONS(&r.job),
    };
    const cli_section sections[] = {
        cli_problem_section(&r.job.problem),
        cli_choices_deprecated(&r.job.choices),
        cli_inputs_section(&r.inputs),
        CLI_SECTION("The run", more),
    };
    const cli_syntax syntax = {
        "run (--seq N | --plan LINE) [OPTIONS]",
        "Run attention, forward and backward, on seeded inputs or on files; print the plan's line\n"
        "and an XXH64 digest of each result. Equal digests mean equal bits. With several thread\n"
        "counts the digests are compared, and a difference gives exit status 1.",
        sections, 4,
        "  ordo run --seq 256 --heads 4 --kv-heads 2 --mask causal --dtype bf16\n"
        "  ordo run --seq 200 --mask causal --dropout 0.1 --seed 7 --threads 1,2,4\n"
        "  ordo run --plan \"$(ordo plan --seq 1000 --mask causal --order spt --line)\" --seed 7\n"
        "  ordo run --seq 512 --heads 2 --mask causal --block-mask documents:200,312\n"
        "  ordo run --cu-seqlens 0,100,356 --heads 2 --sequences --json\n"
        "  ordo run --q q.npy --k k.npy --v v.npy --mask causal --out-dir results\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status))
        status = run_request(&r);
    cli_job_free(&r.job);
    return status;
}
