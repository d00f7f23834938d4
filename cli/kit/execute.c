/* execute.c: what the commands that execute plans share. */
#define _XOPEN_SOURCE 700
#include "kit/execute.h"

#include "kit/device.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/work.h"

#include <inttypes.h>
#include <unistd.h>

static int choose_backend(const cli_problem *words, ordo_backend *backend)
{
    const char *why = NULL;
    *backend = words->backend;
    if (*backend == ORDO_BACKEND_DEFAULT && words->machine &&
        ordo_machine_family_of(words->machine) == ORDO_MACHINE_CUDA)
        *backend = ORDO_BACKEND_CUDA;
    if (*backend == ORDO_BACKEND_DEFAULT)
        *backend =
            ordo_backend_available(ORDO_BACKEND_CPU, &why) ? ORDO_BACKEND_CPU : ORDO_BACKEND_REF;
    if (!ordo_backend_available(*backend, &why))
        return cli_error(CLI_UNSUPPORTED, "%s",
                         why ? why : "the requested backend is not available here");
    if (*backend == ORDO_BACKEND_REF && words->threads.count > 0)
        return cli_usage("--threads: backend ref has one");
    if (*backend != ORDO_BACKEND_CUDA)
        return CLI_OK;
    if (words->threads.count > 0)
        return cli_usage("--threads: backend cuda has none; the workers of a plan limit its grid");
    return cli_library(ordo_device_select(cli_device_find()));
}

enum { SEQUENTIAL, FUSED, PIPELINED, SEGMENTS = 8 /* at most, unless told otherwise */ };

static bool all_have(const cli_job *job, int64_t segments)
{
    ordo_plan_options options = job->options;
    ordo_status status = ORDO_OK;
    options.segments = segments;
    for (size_t i = 0; i < cli_problem_count(&job->problem) && status == ORDO_OK; i++) {
        const ordo_problem problem = cli_problem_at(&job->problem, i);
        ordo_plan *plan = NULL;
        status = ordo_plan_create(&plan, &problem, job->problem.machine, &options);
        ordo_plan_destroy(plan);
    }
    return status == ORDO_OK;
}

/* As many as all problems of the job can have. If there is no such number, the plan says why. */
static int64_t most_segments(const cli_job *job)
{
    int64_t segments = SEGMENTS;
    while (segments > 0 && !all_have(job, segments))
        segments--;
    return segments > 0 ? segments : SEGMENTS;
}

/* Segments, which the options of the plan name or the mode asks for. */
static int choose_segments(cli_job *job)
{
    ordo_plan_options *o = &job->options;
    const bool named = o->segments > 0 || o->keep_bits_memory > 0;
    if (named && job->mode >= 0 && job->mode != PIPELINED)
        return cli_usage("--dropout-mode: the plan has segments; expected pipelined");
    if (!named && job->mode == PIPELINED && job->problem.plan)
        return cli_usage("--dropout-mode pipelined: the plan has no segments; expected a line of "
                         "ordo plan --segments N");
    if ((named || job->mode == PIPELINED) && job->backward >= 0)
        return cli_usage(
            "--backward-bits: with dropout mode pipelined every pass makes the bits of "
            "its segments; expected --dropout-mode sequential");
    if (job->mode == PIPELINED && !named)
        o->segments = most_segments(job);
    if (named)
        job->mode = PIPELINED;
    return CLI_OK;
}

/* Hosts make bits inside the passes; a device makes them before unless told otherwise. */
static int choose_dropout(cli_job *job)
{
    if (job->problem.dropout == 0 && (job->mode >= 0 || job->backward >= 0))
        return cli_usage("--%s: expected only with --dropout above 0",
                         job->mode >= 0 ? "dropout-mode" : "backward-bits");
    CLI_TRY(choose_segments(job));
    if (job->mode == PIPELINED) {
        job->dropout = CLI_PIPELINED;
        return CLI_OK;
    }
    const ordo_backend backend = job->options.backend;
    const bool device = backend == ORDO_BACKEND_CUDA;
    const bool fused = job->mode >= 0 ? job->mode == FUSED : !device;
    if (!device && !fused)
        return cli_usage("--dropout-mode sequential: backend %s makes keep bits inside the passes; "
                         "expected fused",
                         ordo_backend_name(backend));
    if (fused && job->backward >= 0)
        return cli_usage("--backward-bits: with dropout mode fused every pass makes its own bits; "
                         "expected --dropout-mode sequential");
    job->dropout = fused                ? CLI_FUSED
                   : job->backward == 1 ? CLI_SEQUENTIAL_REGENERATE
                                        : CLI_SEQUENTIAL_KEEP;
    return CLI_OK;
}

int cli_job_finish(cli_job *job)
{
    job->options = (ordo_plan_options)ORDO_PLAN_OPTIONS_INIT;
    const cli_section choices = { .options = job->choices.options, .count = CLI_CHOICE_OPTIONS };
    const char *choice = job->problem.line ? cli_section_used(&choices) : NULL;
    if (choice)
        return cli_usage("%s: the line of --plan states it", choice);
    CLI_TRY(cli_problem_finish(&job->problem));
    CLI_TRY(job->problem.plan ? cli_choices_of(job->problem.plan, &job->options)
                              : cli_choices_finish(&job->choices, &job->options));
    CLI_TRY(choose_backend(&job->problem, &job->options.backend));
    return choose_dropout(job);
}

void cli_job_free(cli_job *job)
{
    cli_problem_free(&job->problem);
}

/* What a backend does in a few minutes on a small machine. */
static double flops_allowed(ordo_backend backend)
{
    return backend == ORDO_BACKEND_REF        ? 2e11
           : backend == ORDO_BACKEND_EMULATOR ? 2e12
           : backend == ORDO_BACKEND_CUDA     ? 5e16
                                              : 2e13;
}

static int check_size(const cli_job *job, const ordo_problem *p, double runs, double copies)
{
    const ordo_backend backend = job->options.backend;
    const double pairs = cli_work_pairs(p, job->problem.q_numbers, job->problem.kv_numbers,
                                        cli_problem_mask(&job->problem, p));
    const double flops = runs * (cli_work_forward(p, pairs) + cli_work_backward(p, pairs));
    const double bytes = copies * cli_work_bytes(p);
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    if (bytes > 0.8 * memory)
        return cli_error(CLI_UNSUPPORTED,
                         "about %.3g GB of tensors, and this machine has %.3g GB of memory",
                         bytes / 1e9, memory / 1e9);
    if (flops > flops_allowed(backend) && !job->force)
        return cli_error(CLI_UNSUPPORTED,
                         "about %.2g floating-point operations, more than the %.2g that %s does in "
                         "a few minutes; --force runs it anyway",
                         flops, flops_allowed(backend), ordo_backend_name(backend));
    return CLI_OK;
}

int cli_job_plan(const cli_job *job, const ordo_problem *problem, double runs, double copies,
                 ordo_plan **plan, ordo_plan_info *info)
{
    /* The plan first: what is no problem at all is not one that is too large. */
    ordo_status created =
        job->problem.plan ? ordo_plan_parse(plan, job->problem.line)
                          : ordo_plan_create(plan, problem, job->problem.machine, &job->options);
    *info = (ordo_plan_info)ORDO_PLAN_INFO_INIT;
    if (created == ORDO_OK)
        created = ordo_plan_query(*plan, info);
    return created == ORDO_OK ? check_size(job, problem, runs, copies) : cli_library(created);
}

int cli_executed_fill(cli_executed *e, const cli_job *job, const ordo_plan *plan, int64_t threads)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    int status = CLI_OK;
    e->problem = (ordo_problem)ORDO_PROBLEM_INIT;
    ordo_status known = ordo_plan_query(plan, &info);
    if (known == ORDO_OK)
        known = ordo_plan_problem(plan, &e->problem);
    if (known != ORDO_OK)
        return cli_library(known);
    const bool device = info.backend == ORDO_BACKEND_CUDA;
    e->backend = info.backend;
    e->seed = job->problem.seed;
    e->offset = job->problem.offset;
    e->sinks = job->sinks;
    e->has_dropout = e->problem.dropout.p > 0 && (device || info.segments > 0);
    e->segments = info.segments;
    e->segment_bytes = info.segment_bytes;
    e->dropout = job->dropout;
    e->threads = device ? 0 : threads;
    e->workers = device ? info.workers : 0;
    e->line = cli_plan_line(plan, &status);
    return status;
}

void cli_executed_text(const cli_executed *e)
{
    const int64_t count = e->workers ? e->workers : e->threads;
    char text[512];
    cli_problem_describe(&e->problem, text, sizeof text);
    printf("problem    %s%s\nbackend    %s", text, e->sinks ? ", sinks" : "",
           ordo_backend_name(e->backend));
    if (count > 0)
        printf(", %" PRId64 " %s%s", count, e->workers ? "worker" : "thread",
               count == 1 ? "" : "s");
    printf("\nseed       %" PRIu64 ", offset %" PRIu64 "\n", e->seed, e->offset);
    if (e->has_dropout)
        printf("dropout    %s", cli_dropout_text(e->dropout));
    if (e->segments > 0)
        printf(", %" PRId64 " segments, %" PRIu64 " B of keep bits", e->segments, e->segment_bytes);
    if (e->has_dropout)
        puts("");
    printf("plan       %s\n", e->line);
}

static void count_json(cli_json *json, const char *key, int64_t count)
{
    if (count > 0)
        cli_json_int(json, key, count);
    else
        cli_json_null(json, key);
}

void cli_executed_json(cli_json *json, const cli_executed *e)
{
    cli_problem_json(json, "problem", &e->problem);
    cli_json_bool(json, "sinks", e->sinks);
    cli_json_text(json, "backend", ordo_backend_name(e->backend));
    count_json(json, "threads", e->threads);
    count_json(json, "workers", e->workers);
    cli_json_text(json, "dropout_mode", e->has_dropout ? cli_dropout_mode(e->dropout) : NULL);
    cli_json_text(json, "backward_bits", e->has_dropout ? cli_dropout_backward(e->dropout) : NULL);
    if (e->segments > 0) {
        cli_json_int(json, "segments", e->segments);
        cli_json_uint(json, "segment_bytes", e->segment_bytes);
    }
    cli_json_uint(json, "seed", e->seed);
    cli_json_uint(json, "offset", e->offset);
    cli_json_text(json, "line", e->line);
}

void cli_digests_text(const uint64_t of[CLI_OUTPUTS], const bool *has)
{
    for (int i = 0; i < CLI_OUTPUTS; i++)
        if (has ? has[i] : of[i] != 0)
            printf("  %-8s %016" PRIx64 "\n", cli_output_name((cli_output)i), of[i]);
}

void cli_digests_json(cli_json *json, const char *key, const uint64_t of[CLI_OUTPUTS],
                      const bool *has)
{
    cli_json_object(json, key);
    for (int i = 0; i < CLI_OUTPUTS; i++) {
        char hex[24];
        snprintf(hex, sizeof hex, "%016" PRIx64, of[i]);
        if (has ? has[i] : of[i] != 0)
            cli_json_text(json, cli_output_name((cli_output)i), hex);
    }
    cli_json_end_object(json);
}

static int time_pass(const ordo_plan *plan, const cli_stage *stage, bool backward, double *seconds)
{
    int status = stage->noise ? cli_noise_launch(stage->noise) : CLI_OK;
    if (status != CLI_OK)
        return status;
    cli_progress_start(backward ? "backward" : "forward");
    const double before = cli_now();
    ordo_status ran = cli_stage_before_pass(stage);
    if (ran == ORDO_OK)
        ran = backward ? ordo_attention_backward(plan, &stage->call)
                       : ordo_attention_forward(plan, &stage->call);
    status = ran == ORDO_OK ? cli_stage_wait(stage) : cli_library(ran);
    if (seconds)
        *seconds = cli_now() - before;
    cli_progress_stop();
    return status;
}

int cli_execute(const ordo_plan *plan, cli_stage *stage, bool backward, double *forward_s,
                double *backward_s)
{
    CLI_TRY(cli_stage_bits(stage));
    CLI_TRY(cli_stage_poison(stage));
    CLI_TRY(time_pass(plan, stage, false, forward_s));
    return backward ? time_pass(plan, stage, true, backward_s) : CLI_OK;
}
