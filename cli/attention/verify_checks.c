/* verify_checks.c: the runs of one problem by `ordo verify`, and their comparison.
 *
 * The first run is the measure. The others differ from it in what must not matter: the number of
 * threads or the size of the grid, their timing, the place in the batch, the instruction set, the
 * process. */
#define _XOPEN_SOURCE 700
#include "attention/verify_checks.h"

#include "attention/verify_cut.h"
#include "kit/child.h"
#include "kit/execute.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/seen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* "" = the one the library chooses by itself. */
static const char *const targets[] = { "", "generic", "neon", "avx2", "avx512" };
enum { TARGETS = sizeof targets / sizeof targets[0] };

/* One problem and its first run. */
typedef struct trial {
    const cli_verify_request *request;
    size_t index; /* number of the problem */
    ordo_problem problem;
    ordo_plan *plan;
    ordo_plan_info info;
    cli_tensors first, again; /* results to compare with; memory for all other runs in place */
    cli_stage base, stage;    /* theirs */
    cli_noise noise;          /* cuda */
    cli_verify_report *report;
} trial;

/* ---- runs ---- */

static int run(const trial *t, const ordo_plan *plan, cli_stage *stage, int64_t threads)
{
    stage->call.seed = t->request->job.problem.seed;
    stage->call.offset = t->request->job.problem.offset;
    stage->call.threads = (int)threads;
    t->report->runs++;
    return cli_execute(plan, stage, true, NULL, NULL);
}

/* Once; what came out lies in the tensors. The stage stays open. */
static int run_first(const trial *t, const ordo_plan *plan, cli_tensors *tensors, cli_stage *stage)
{
    CLI_TRY(cli_stage_open(stage, plan, tensors, t->request->job.dropout));
    CLI_TRY(run(t, plan, stage, t->report->is.threads));
    return cli_stage_fetch(stage);
}

/* The same on tensors that are staged for nothing else. */
static int run_once(const trial *t, const ordo_plan *plan, cli_tensors *tensors)
{
    cli_stage stage = { 0 };
    const int status = run_first(t, plan, tensors, &stage);
    cli_stage_close(&stage);
    return status;
}

static void not_run(cli_check *c, const char *why)
{
    c->verdict = CLI_NOT_RUN;
    snprintf(c->note, sizeof c->note, "%s", why);
}

/* Note the first difference of a check; later ones are likely to have the same cause. */
static void note(const trial *t, cli_check *c, bool differs, const cli_difference *d)
{
    if (!differs || c->verdict == CLI_DIFFERS)
        return;
    c->verdict = CLI_DIFFERS;
    c->located = true;
    c->difference = *d;
    cli_difference_text(&t->first.problem, d, c->note, sizeof c->note);
}

static bool promised(const trial *t, ordo_promise level, cli_check *c)
{
    if (!(t->info.kept & (unsigned)level))
        not_run(c, "not promised by this plan");
    return t->info.kept & (unsigned)level;
}

/* Compare a run in place. On a device its outputs are fetched only if they differ. */
static int compare(const trial *t, cli_check *c)
{
    cli_difference d;
    bool equal = false;
    int status = t->stage.device ? cli_stage_equal(&t->base, &t->stage, &equal) : CLI_OK;
    if (status == CLI_OK && !equal)
        status = cli_stage_fetch(&t->stage);
    note(t, c, status == CLI_OK && !equal && cli_compare_all(&t->first, &t->again, &d), &d);
    return status;
}

/* Run in place as often as requested, and compare each time. */
static int repeat(trial *t, const ordo_plan *plan, int64_t threads, cli_check *c)
{
    int status = CLI_OK;
    cli_progress_start(c->name);
    for (; c->runs < t->request->repeats && status == CLI_OK; c->runs++) {
        status = run(t, plan, &t->stage, threads);
        if (status == CLI_OK)
            status = compare(t, c);
    }
    cli_progress_stop();
    return status;
}

/* ---- threads and their timing ---- */

static int check_threads(trial *t, int64_t threads, int64_t delay_us)
{
    cli_check *c = cli_verify_add(t->report);
    int used =
        snprintf(c->name, sizeof c->name, "%" PRId64 " thread%s", threads, threads == 1 ? "" : "s");
    if (delay_us > 0)
        snprintf(c->name + used, sizeof c->name - (size_t)used, ", delays up to %" PRId64 " us",
                 delay_us);
    if (threads != t->report->is.threads && !promised(t, ORDO_PROMISE_PORTABLE, c))
        return CLI_OK;
    ordo_delay_turns(delay_us);
    const int status = repeat(t, t->plan, threads, c);
    ordo_delay_turns(0);
    return status;
}

static int check_all_threads(trial *t)
{
    const cli_list *threads = &t->request->job.problem.threads;
    int status = CLI_OK;
    for (int late = 0; late < 2; late++)
        for (size_t i = 0; i < threads->count && status == CLI_OK; i++)
            if (!late || (t->request->delay_us > 0 && threads->values[i] > 1))
                status = check_threads(t, threads->values[i], late ? t->request->delay_us : 0);
    return status;
}

/* ---- the size of the grid, and other work on the device ---- */

static int check_grid(trial *t, int64_t workers, bool noisy)
{
    cli_check *c = cli_verify_add(t->report);
    ordo_plan_options options = t->request->job.options;
    ordo_plan *plan = NULL;
    snprintf(c->name, sizeof c->name, "%" PRId64 " worker%s%s", workers, workers == 1 ? "" : "s",
             noisy ? ", device under load" : "");
    if (workers != t->info.workers && !promised(t, ORDO_PROMISE_PORTABLE, c))
        return CLI_OK;
    options.workers = workers;
    const ordo_status created =
        ordo_plan_create(&plan, &t->problem, t->request->job.problem.machine, &options);
    if (created ==
        ORDO_ERR_UNSUPPORTED) { /* too few for an order whose chains wait on each other */
        not_run(c, ordo_last_error());
        return CLI_OK;
    }
    t->stage.noise = noisy ? &t->noise : NULL;
    const int status = created == ORDO_OK ? repeat(t, plan, 0, c) : cli_library(created);
    t->stage.noise = NULL;
    ordo_plan_destroy(plan);
    return status;
}

/* The grid of the first run, then others that are smaller. */
static int check_all_grids(trial *t)
{
    const cli_list *grids = &t->request->grids;
    int status = CLI_OK;
    for (int noisy = 0; noisy < 2 && status == CLI_OK; noisy++) {
        status = check_grid(t, t->info.workers, noisy);
        for (size_t i = 0; i < grids->count && status == CLI_OK; i++)
            if (grids->values[i] < t->info.workers)
                status = check_grid(t, grids->values[i], noisy);
    }
    return status;
}

/* ---- when keep bits are made ---- */

static int check_dropout(trial *t, cli_dropout dropout)
{
    cli_check *c = cli_verify_add(t->report);
    snprintf(c->name, sizeof c->name, "dropout %s", cli_dropout_text(dropout));
    if (dropout == CLI_FUSED && t->problem.dropout.keying == ORDO_KEYING_FA2) {
        not_run(c, "bits of keying fa2 are read, never made inside");
        return CLI_OK;
    }
    t->stage.dropout = dropout;
    const int status = repeat(t, t->plan, 0, c);
    t->stage.dropout = t->request->job.dropout;
    return status;
}

static int check_all_dropouts(trial *t)
{
    int status = CLI_OK;
    for (int i = 0; i < CLI_DROPOUTS && status == CLI_OK; i++)
        if (i != (int)t->request->job.dropout)
            status = check_dropout(t, (cli_dropout)i);
    return status;
}

/* ---- the batch ---- */

static int64_t length_of(const cli_tensors *t, cli_output output, int64_t sequence)
{
    return cli_tensors_extent(t, output, sequence).rows;
}

/* Sequence b as a separate problem, dense, with its id. */
static int run_alone(trial *t, int64_t b, cli_check *c)
{
    ordo_problem alone = t->problem;
    ordo_plan *plan = NULL;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    cli_tensors tensors = { 0 };
    cli_difference d;
    ordo_block_mask *mask = NULL;
    alone.layout = ORDO_DENSE;
    alone.batch = 1;
    alone.q_len = length_of(&t->first, CLI_O, b);
    alone.kv_len = length_of(&t->first, CLI_DK, b);
    alone.total_q = alone.total_kv = 0;
    if (alone.q_len == 0 || alone.kv_len == 0)
        return CLI_OK;
    if (t->first.mask)
        CLI_TRY(cli_mask_part(t->first.mask, alone.q_len, alone.kv_len, &mask));
    if (mask && !alone.seen.on)
        alone.blocks.entries = mask->entries > 0 ? mask->entries : 1;
    ordo_status created =
        ordo_plan_create(&plan, &alone, t->request->job.problem.machine, &t->request->job.options);
    if (created == ORDO_OK)
        created = ordo_plan_query(plan, &info);
    int status = cli_library(created);
    if (status == CLI_OK && strcmp(info.numeric_key, t->info.numeric_key) != 0) {
        ordo_plan_destroy(plan); /* the shape made ordo replace the order: other bits, rightly */
        cli_mask_destroy(mask);
        return CLI_OK;
    }
    if (status == CLI_OK && !cli_tensors_make(&tensors, plan, NULL, NULL, &b,
                                              t->request->job.problem.seed, t->request->job.sinks))
        status = cli_out_of_memory();
    tensors.mask = mask;
    if (status == CLI_OK)
        status = run_once(t, plan, &tensors);
    c->runs += status == CLI_OK;
    note(t, c, status == CLI_OK && cli_compare_sequence(&t->first, b, &tensors, 0, &d), &d);
    cli_tensors_free(&tensors);
    ordo_plan_destroy(plan);
    cli_mask_destroy(mask);
    return status;
}

static int check_alone(trial *t)
{
    cli_check *c = cli_verify_add(t->report);
    int status = CLI_OK;
    snprintf(c->name, sizeof c->name, "each sequence alone");
    if (!promised(t, ORDO_PROMISE_BATCH, c))
        return CLI_OK;
    cli_progress_start(c->name);
    for (int64_t b = 0; b < t->problem.batch && status == CLI_OK; b++)
        status = run_alone(t, b, c);
    cli_progress_stop();
    if (c->runs == 0)
        not_run(c, "alone, no sequence has a plan with this numeric key");
    return status;
}

/* Lengths or ends of the sequences in reverse order; NULL stays NULL. */
static bool reverse(const ordo_problem *p, const int32_t *numbers, int32_t **out)
{
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t n = p->batch;
    *out = NULL;
    if (numbers == NULL)
        return true;
    int32_t *reversed = malloc(sizeof *reversed * (size_t)(n + 1));
    if (reversed == NULL)
        return false;
    for (int64_t b = 0; b < n + packed; b++)
        reversed[b] = packed ? numbers[n] - numbers[n - b] : numbers[n - 1 - b];
    *out = reversed;
    return true;
}

static int run_reversed(trial *t, const int32_t *q, const int32_t *kv, int64_t *ids, cli_check *c)
{
    const int64_t n = t->problem.batch;
    cli_tensors tensors;
    cli_difference d;
    for (int64_t b = 0; b < n; b++)
        ids[b] = n - 1 - b;
    if (!cli_tensors_make(&tensors, t->plan, q, kv, ids, t->request->job.problem.seed,
                          t->request->job.sinks))
        return cli_out_of_memory();
    tensors.mask = t->first.mask;
    cli_progress_start(c->name);
    const int status = run_once(t, t->plan, &tensors);
    cli_progress_stop();
    c->runs = 1;
    for (int64_t b = 0; b < n && status == CLI_OK; b++)
        note(t, c, cli_compare_sequence(&t->first, b, &tensors, n - 1 - b, &d), &d);
    cli_tensors_free(&tensors);
    return status;
}

static int check_reversed(trial *t)
{
    cli_check *c = cli_verify_add(t->report);
    int32_t *q = NULL, *kv = NULL;
    int64_t *ids = malloc(sizeof *ids * (size_t)t->problem.batch);
    int status = CLI_OK;
    snprintf(c->name, sizeof c->name, "the batch in reverse order");
    if (promised(t, ORDO_PROMISE_BATCH, c)) {
        const bool good = ids && reverse(&t->problem, t->first.q_numbers, &q) &&
                          reverse(&t->problem, t->first.kv_numbers, &kv);
        status = good ? run_reversed(t, q, kv, ids, c) : cli_out_of_memory();
    }
    free(ids);
    free(q);
    free(kv);
    return status;
}

/* ---- processes and instruction sets ---- */

static int check_target(trial *t, const char *target)
{
    cli_check *c = cli_verify_add(t->report);
    cli_difference d;
    bool lacks;
    snprintf(c->name, sizeof c->name, *target ? "another process, target %s" : "another process",
             target);
    if (*target && !promised(t, ORDO_PROMISE_PORTABLE, c))
        return CLI_OK;
    cli_tensors_poison(&t->again);
    cli_progress_start(c->name);
    const int status =
        cli_child_run(t->request->argc, t->request->argv, t->index, target, &t->again, &lacks);
    cli_progress_stop();
    CLI_TRY(status);
    if (lacks && *target) {
        t->report->count--; /* not a target of this machine */
        return CLI_OK;
    }
    if (lacks) {
        not_run(c, "this system cannot start another process");
        return CLI_OK;
    }
    c->runs = 1;
    t->report->runs++;
    note(t, c, cli_compare_all(&t->first, &t->again, &d), &d);
    return CLI_OK;
}

static int check_targets(trial *t)
{
    const bool cpu =
        t->request->job.options.backend == ORDO_BACKEND_CPU; /* others have one target */
    int status = CLI_OK;
    for (int i = 0; i < (cpu ? TARGETS : 1) && status == CLI_OK; i++)
        status = check_target(t, targets[i]);
    return status;
}

/* ---- one problem ---- */

static int take_digests(trial *t)
{
    cli_verify_report *r = t->report;
    r->block.line = r->is.line;
    r->block.inputs = cli_digest_inputs(&t->first, r->is.seed, r->is.offset);
    for (int i = 0; i < CLI_OUTPUTS; i++)
        r->block.of[i] = cli_tensors_digest(&t->first, (cli_output)i, -1);
    return r->block.inputs ? CLI_OK : cli_out_of_memory();
}

static int run_checks(trial *t)
{
    CLI_TRY(take_digests(t));
    if (t->request->cut >= 0)
        return cli_verify_cut(&(cli_cut_trial) { t->request, &t->info, &t->first, &t->base,
                                                 &t->again, &t->stage, t->report });
    CLI_TRY(t->stage.device ? check_all_grids(t) : check_all_threads(t));
    if (t->stage.device && t->problem.dropout.p > 0 && t->stage.dropout != CLI_PIPELINED)
        CLI_TRY(check_all_dropouts(t));
    if (t->problem.batch > 1) {
        CLI_TRY(check_alone(t));
        CLI_TRY(check_reversed(t));
    }
    return check_targets(t);
}

static bool allocate(trial *t)
{
    const cli_verify_request *r = t->request;
    const int32_t *q = r->job.problem.q_numbers, *kv = r->job.problem.kv_numbers;
    t->report->checks =
        calloc(2 * (r->job.problem.threads.count + r->grids.count + 1) + 5 + TARGETS,
               sizeof *t->report->checks);
    return t->report->checks &&
           cli_tensors_make(&t->first, t->plan, q, kv, NULL, r->job.problem.seed, r->job.sinks) &&
           cli_tensors_make(&t->again, t->plan, q, kv, NULL, r->job.problem.seed, r->job.sinks);
}

static void set_mask(trial *t)
{
    t->first.mask = t->again.mask = cli_problem_mask(&t->request->job.problem, &t->problem);
}

/* Where all other runs take place. */
static int open_stage(trial *t)
{
    const int status = cli_stage_open(&t->stage, t->plan, &t->again, t->request->job.dropout);
    return status == CLI_OK && t->stage.device ? cli_noise_open(&t->noise) : status;
}

/* Runs that the checks will make, roughly. */
static double runs_of(const cli_verify_request *r)
{
    const size_t ways = r->job.problem.threads.count + r->grids.count;
    return 4 + TARGETS + 2.0 * (double)r->repeats * (double)ways;
}

int cli_verify_problem(const cli_verify_request *r, size_t index, cli_verify_report *report)
{
    trial t = { .request = r, .index = index, .report = report };
    const bool child = cli_child_asked() >= 0;
    const double start = cli_now();
    t.problem = cli_problem_at(&r->job.problem, index);
    int status = cli_job_plan(&r->job, &t.problem, runs_of(r), 3, &t.plan, &t.info);
    if (status == CLI_OK)
        status = cli_executed_fill(&report->is, &r->job, t.plan, r->job.problem.threads.values[0]);
    if (status == CLI_OK && !allocate(&t))
        status = cli_out_of_memory();
    set_mask(&t);
    report->kept = t.info.kept;
    if (status == CLI_OK)
        status = run_first(&t, t.plan, &t.first, &t.base);
    if (status == CLI_OK && child)
        status = cli_child_answer(&t.first);
    if (status == CLI_OK && !child && (status = open_stage(&t)) == CLI_OK)
        status = run_checks(&t);
    if (t.noise.stream)
        cli_noise_close(&t.noise);
    cli_stage_close(&t.base);
    cli_stage_close(&t.stage);
    cli_tensors_free(&t.first);
    cli_tensors_free(&t.again);
    ordo_plan_destroy(t.plan);
    report->seconds = cli_now() - start;
    return status;
}
