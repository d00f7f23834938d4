/* bench.c: `ordo bench attention`: times of both passes and what the cores could do. */
#include "attention/bench_device.h"
#include "attention/bench_peak.h"
#include "attention/bench_report.h"
#include "commands.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/work.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_RUNS = 3, MOST_RUNS = 10000 };
#define PEAK_SECONDS 0.005
#define UNSAID       HUGE_VAL

typedef struct request {
    cli_job job;
    int pass; /* index in "forward|backward|both" */
    double seconds;
    int64_t cores;
} request;

typedef struct samples {
    double *of[CLI_PASSES], *peak;
} samples;

/* ---- one problem, one number of threads ---- */

/* Once around: each requested pass, and the peak. */
static int measure_once(const ordo_plan *plan, const ordo_call *call, cli_bench_report *report,
                        samples *s)
{
    const size_t run = report->runs[CLI_FORWARD]++;
    report->runs[CLI_BACKWARD]++;
    ordo_status status = ORDO_OK;
    for (int pass = 0; pass < CLI_PASSES && status == ORDO_OK; pass++) {
        if (!report->has[pass])
            continue;
        const double before = cli_now();
        status = pass == CLI_FORWARD ? ordo_attention_forward(plan, call)
                                     : ordo_attention_backward(plan, call);
        s->of[pass][run] = cli_now() - before;
    }
    s->peak[run] = cli_peak_flops((int)report->is.threads, PEAK_SECONDS);
    if (status == ORDO_OK && s->peak[run] <= 0)
        return cli_error(CLI_FAILED, "cannot start %" PRId64 " threads to measure their peak",
                         report->is.threads);
    return cli_library(status);
}

static int measure_host(const request *r, const ordo_plan *plan, const cli_stage *stage,
                        cli_bench_report *report, samples *s)
{
    const size_t *runs = &report->runs[CLI_FORWARD]; /* as many backward */
    const double start = cli_now();
    while (*runs < MOST_RUNS && (*runs < LEAST_RUNS || cli_now() - start < r->seconds))
        CLI_TRY(measure_once(plan, &stage->call, report, s));
    report->peak = cli_spread_of(s->peak, *runs);
    return CLI_OK;
}

static int measure_device(const request *r, const ordo_plan *plan, const cli_stage *stage,
                          cli_bench_report *report, samples *s)
{
    const double peak = cli_bench_device_peak(r->job.problem.machine);
    for (int pass = 0; pass < CLI_PASSES; pass++) {
        size_t *runs = &report->runs[pass];
        *runs = MOST_RUNS;
        if (report->has[pass])
            CLI_TRY(cli_bench_device(plan, stage, pass, r->seconds, s->of[pass], runs));
    }
    if (stage->bits && stage->dropout == CLI_SEQUENTIAL_KEEP) {
        size_t *runs = &report->bits_runs;
        *runs = MOST_RUNS;
        CLI_TRY(cli_bench_device(plan, stage, CLI_BITS, r->seconds, s->peak, runs));
        report->bits = cli_spread_of(s->peak, *runs);
        report->bits_bytes = stage->bits_bytes;
    }
    report->peak = (cli_spread) { peak, peak, peak };
    return CLI_OK;
}

static int measure(const request *r, const ordo_plan *plan, cli_stage *stage,
                   cli_bench_report *report, samples *s)
{
    const cli_tensors *t = stage->tensors;
    const double pairs = stage->device && !t->mask
                             ? cli_work_nominal_pairs(&t->problem, t->q_numbers, t->kv_numbers)
                             : cli_work_pairs(&t->problem, t->q_numbers, t->kv_numbers, t->mask);
    stage->call.seed = report->is.seed;
    stage->call.offset = report->is.offset;
    stage->call.threads = (int)report->is.threads;
    report->flops[CLI_FORWARD] = cli_work_forward(&t->problem, pairs);
    report->flops[CLI_BACKWARD] = cli_work_backward(&t->problem, pairs);
    /* One run before the clock starts: it makes the threads and gives the digests. */
    CLI_TRY(cli_execute(plan, stage, report->has[CLI_BACKWARD], NULL, NULL));
    CLI_TRY(cli_stage_fetch(stage));
    for (int i = 0; i < CLI_OUTPUTS; i++)
        report->digests[i] = cli_tensors_digest(t, (cli_output)i, -1);
    CLI_TRY((stage->device ? measure_device : measure_host)(r, plan, stage, report, s));
    for (int pass = 0; pass < CLI_PASSES; pass++)
        if (report->has[pass])
            report->seconds[pass] = cli_spread_of(s->of[pass], report->runs[pass]);
    return CLI_OK;
}

/* ---- all of them ---- */

static int bench_problem(const request *r, size_t index, cli_bench_report *reports, samples *s)
{
    const cli_problem *words = &r->job.problem;
    const ordo_problem problem = cli_problem_at(words, index);
    const cli_list *threads = &words->threads;
    const size_t count = threads->count ? threads->count : 1;
    ordo_plan *plan = NULL;
    ordo_plan_info info;
    cli_tensors tensors = { 0 };
    cli_stage stage = { .tensors = &tensors };
    int status =
        cli_job_plan(&r->job, &problem, (double)(count * (LEAST_RUNS + 1)), 1, &plan, &info);
    if (status == CLI_OK && !cli_tensors_make(&tensors, plan, words->q_numbers, words->kv_numbers,
                                              NULL, words->seed, r->job.sinks))
        status = cli_out_of_memory();
    tensors.mask = cli_problem_mask(words, &problem);
    if (status == CLI_OK)
        status = cli_stage_open(&stage, plan, &tensors, r->job.dropout);
    for (size_t i = 0; i < count && status == CLI_OK; i++) {
        static char what[160]; /* outlives the work */
        cli_bench_report *report = &reports[i];
        status = cli_executed_fill(&report->is, &r->job, plan,
                                   threads->count ? threads->values[i] : r->cores);
        report->workspace_bytes = info.backward_workspace_bytes;
        report->has[CLI_FORWARD] = r->pass != CLI_BACKWARD;
        report->has[CLI_BACKWARD] = r->pass != CLI_FORWARD;
        snprintf(what, sizeof what, "problem %zu of %zu, %" PRId64 " %s", index + 1,
                 cli_problem_count(words), stage.device ? report->is.workers : report->is.threads,
                 stage.device ? "workers" : "threads");
        cli_progress_start(what);
        if (status == CLI_OK)
            status = measure(r, plan, &stage, report, s);
        cli_progress_stop();
    }
    cli_stage_close(&stage);
    cli_tensors_free(&tensors);
    ordo_plan_destroy(plan);
    return status;
}

static int bench_all(const request *r)
{
    const size_t problems = cli_problem_count(&r->job.problem);
    const size_t each = r->job.problem.threads.count ? r->job.problem.threads.count : 1;
    cli_bench_report *reports = calloc(problems * each, sizeof *reports);
    double *memory = malloc((CLI_PASSES + 1) * MOST_RUNS * sizeof *memory);
    int status = CLI_OK;
    if (reports == NULL || memory == NULL) {
        status = cli_out_of_memory();
    } else {
        samples s = { { memory, memory + MOST_RUNS }, memory + 2 * (size_t)MOST_RUNS };
        for (size_t i = 0; i < problems && status == CLI_OK; i++)
            status = bench_problem(r, i, &reports[i * each], &s);
        if (status == CLI_OK)
            status = cli_bench_show(&r->job.problem.json, reports, problems * each);
    }
    for (size_t i = 0; reports && i < problems * each; i++)
        free(reports[i].is.line);
    free(reports);
    free(memory);
    return status;
}

/* How many cores this process may use. */
static int find_cores(request *r)
{
    ordo_machine *host = NULL;
    double workers = 1;
    ordo_status status = ordo_machine_create(&host, "host");
    if (status == ORDO_OK)
        status = ordo_machine_get(host, "workers", &workers);
    ordo_machine_destroy(host);
    r->cores = (int64_t)workers;
    return cli_library(status);
}

static int finish(request *r)
{
    if (r->seconds != UNSAID && !(r->seconds > 0 && r->seconds <= 3600))
        return cli_usage("--seconds %g: expected more than 0, and 3600 at most", r->seconds);
    CLI_TRY(cli_job_finish(&r->job));
    if (r->seconds == UNSAID) /* a GPU slows down when it is busy for long */
        r->seconds = r->job.options.backend == ORDO_BACKEND_CUDA ? 0.1 : 1;
    return find_cores(r);
}

/* The word after "bench" says what to measure; it may stand nowhere else. */
static bool take_subject(int *argc, char ***argv, int *exit_status)
{
    if (*argc > 1 && strcmp((*argv)[1], "attention") == 0) {
        ++*argv;
        --*argc;
        return true;
    }
    if (*argc > 1 && (*argv)[1][0] != '-')
        *exit_status = cli_usage("'%s': expected an option, or what to measure as the first word: "
                                 "attention",
                                 (*argv)[1]);
    return false;
}

int cli_bench(int argc, char **argv)
{
    request r = { .job = CLI_JOB_INIT, .pass = CLI_PASSES, .seconds = UNSAID };
    cli_option more[] = {
        OPT_CHOICE("--pass", "forward|backward|both", &r.pass, "passes to time (default both)"),
        OPT_REAL("--seconds", "S", &r.seconds,
                 "per problem and thread count (default 1), or per pass of a GPU (0.1)"),
        CLI_JOB_OPTIONS(&r.job),
    };
    const cli_section sections[] = { cli_problem_section(&r.job.problem),
                                     cli_choices_deprecated(&r.job.choices),
                                     CLI_SECTION("The measurement", more) };
    const cli_syntax syntax = {
        "bench attention (--seq N | --plan LINE) [OPTIONS]",
        "Time attention, forward and backward, on seeded inputs that stay in place: what fits the\n"
        "cache is cached. Operations are counted over visible pairs only, per pair and head 4 dim\n"
        "forward and 10 dim backward. The peak is the rate of fused multiply-adds of the same\n"
        "number of threads, measured between the runs.\n"
        "On a GPU each pass runs in a separate burst and is timed by the device, with the "
        "caches\n"
        "flushed before every run. A causal mask counts half of all pairs, as is usual, and the\n"
        "peak is that of the datasheet. Keep bits that are made once are timed by themselves;\n"
        "otherwise their making is part of the passes' times (--dropout-mode, --backward-bits).",
        sections, 3,
        "  ordo bench attention --seq 256 --heads 4 --mask causal --threads 1,2 --seconds 0.1\n"
        "  ordo bench attention --seq 128,256 --dim 64,128 --dtype bf16 --seconds 0.1 --json\n"
    };
    int status = CLI_OK;
    const bool subject = take_subject(&argc, &argv, &status);
    if (status == CLI_OK && cli_args_read(&syntax, argc, argv, &status)) {
        status = subject ? finish(&r) : cli_usage("expected what to measure: attention");
        if (status == CLI_OK)
            status = bench_all(&r);
    }
    cli_job_free(&r.job);
    return status;
}
