/* verify.c: `ordo verify`: run problems in many ways and compare every bit. */
#define _XOPEN_SOURCE 700
#include "attention/verify_checks.h"
#include "attention/verify_cut.h"
#include "commands.h"
#include "kit/child.h"
#include "kit/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    cli_verify_request runs;
    const char *expect, *write;
} request;

/* ---- another machine ---- */

static void check_expected(cli_verify_report *r, const char *path, const cli_digest_block *there)
{
    const cli_digest_block *here = &r->block;
    char a[80], b[80];
    cli_check *c = cli_verify_add(r);
    snprintf(c->name, sizeof c->name, "digests of %s", path);
    c->runs = 1;
    if (!cli_digest_same_plan(here->line, there->line, a, b, sizeof a)) {
        c->verdict = CLI_DIFFERS;
        snprintf(c->note, sizeof c->note, "another plan: %s here, %s expected", a, b);
        return;
    }
    if (strcmp(here->inputs, there->inputs) != 0) {
        c->verdict = CLI_DIFFERS;
        snprintf(c->note, sizeof c->note, "other inputs: %.80s here, %.80s expected", here->inputs,
                 there->inputs);
        return;
    }
    for (int i = 0; i < CLI_OUTPUTS; i++)
        if (here->of[i] != there->of[i] && c->verdict == CLI_EQUAL) {
            c->verdict = CLI_DIFFERS;
            snprintf(c->note, sizeof c->note, "%s: %016" PRIx64 ", expected %016" PRIx64,
                     cli_output_name((cli_output)i), here->of[i], there->of[i]);
        }
}

/* ---- all problems ---- */

static int compare_expected(const request *r, cli_verify_report *reports, size_t count)
{
    cli_digest_block *there = NULL;
    size_t blocks = 0;
    if (r->expect == NULL)
        return CLI_OK;
    int status = cli_digest_read(r->expect, &there, &blocks);
    if (status == CLI_OK && blocks != count)
        status = cli_error(CLI_USAGE, "%s: digests of %zu problems, and %zu were run", r->expect,
                           blocks, count);
    for (size_t i = 0; i < count && status == CLI_OK; i++)
        check_expected(&reports[i], r->expect, &there[i]);
    cli_digest_free(there, blocks);
    return status;
}

static int write_digests(const request *r, const cli_verify_report *reports, size_t count)
{
    cli_digest_block *blocks = calloc(count, sizeof *blocks);
    if (blocks == NULL)
        return cli_out_of_memory();
    for (size_t i = 0; i < count; i++)
        blocks[i] = reports[i].block;
    const int status = cli_digest_write(r->write, blocks, count);
    free(blocks);
    return status;
}

/* What all problems found together; digests are kept only if every run agrees on them. */
static int conclude(const request *r, cli_verify_report *reports, size_t count)
{
    CLI_TRY(compare_expected(r, reports, count));
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < reports[i].count; c++)
            if (reports[i].checks[c].verdict > reports[i].verdict)
                reports[i].verdict = reports[i].checks[c].verdict;
    CLI_TRY(cli_verify_show(&r->runs.job.problem.json, reports, count));
    if (cli_verify_verdict(reports, count) == CLI_DIFFERS)
        return cli_error(CLI_DIFFERENT, "the bits differ%s", r->write ? "; nothing written" : "");
    return r->write ? write_digests(r, reports, count) : CLI_OK;
}

static int verify_all(const request *r)
{
    const size_t count = cli_problem_count(&r->runs.job.problem);
    const int64_t asked = cli_child_asked();
    cli_verify_report *reports = calloc(count, sizeof *reports);
    int status = CLI_OK;
    if (reports == NULL)
        return cli_out_of_memory();
    for (size_t i = 0; i < count && status == CLI_OK; i++)
        if (asked < 0 || (size_t)asked == i)
            status = cli_verify_problem(&r->runs, i, &reports[i]);
    if (status == CLI_OK && asked < 0)
        status = conclude(r, reports, count);
    for (size_t i = 0; i < count; i++) {
        free(reports[i].checks);
        free(reports[i].is.line);
        free(reports[i].block.inputs);
    }
    free(reports);
    return status;
}

/* What a list that was not given stands for. */
static bool fill_list(cli_list *list, const int64_t *values, size_t count)
{
    if (list->count > 0)
        return true;
    list->values = malloc(count * sizeof *values);
    if (list->values == NULL)
        return false;
    memcpy(list->values, values, count * sizeof *values);
    list->count = count;
    return true;
}

static int finish(request *r)
{
    cli_list *threads = &r->runs.job.problem.threads, *grids = &r->runs.grids;
    CLI_TRY(cli_job_finish(&r->runs.job));
    CLI_TRY(cli_report_check(&r->runs.job.problem.json, r->write));
    const ordo_problem first = cli_problem_at(&r->runs.job.problem, 0);
    if (r->runs.cut >= 0 && r->runs.job.problem.masks)
        return cli_usage("--cut: expected no --%s; its lists are those of whole sequences",
                         r->runs.job.problem.seen ? "seen" : "block-mask");
    if (r->runs.cut >= 0 && first.bias.on)
        return cli_usage("--cut: expected no --bias");
    const ordo_backend backend = r->runs.job.options.backend;
    if (r->runs.page > 0 && r->runs.cut != CLI_CUT_DECODE)
        return cli_usage("--page: expected --cut decode");
    if (r->runs.page > 0 && (first.mask != ORDO_MASK_CAUSAL || first.dropout.p > 0))
        return cli_usage("--page: expected --mask causal and no --dropout");
    if (r->runs.page > 0 && backend == ORDO_BACKEND_CUDA)
        return cli_usage("--page, backend cuda: the check has its pages on the host; expected ref, "
                         "cpu or emulator");
    if (grids->count > 0 && backend != ORDO_BACKEND_CUDA)
        return cli_usage("--grids: only backend cuda has grids; --threads are those of the cpu");
    if (r->runs.delay_us >= 0 && backend != ORDO_BACKEND_CPU)
        return cli_usage("--delay: only backend cpu has threads that wait for turns");
    bool good = true;
    if (backend == ORDO_BACKEND_CPU || backend == ORDO_BACKEND_EMULATOR) {
        good = fill_list(threads, (const int64_t[]) { 1, 2, 4, 8 }, 4);
    } else if (backend == ORDO_BACKEND_CUDA) { /* the sizes of Hopper's parts */
        good = fill_list(threads, (const int64_t[]) { 0 }, 1) &&
               fill_list(grids, (const int64_t[]) { 132, 114, 78, 32 }, 4);
    } else { /* the oracle: one thread, no turns */
        good = fill_list(threads, (const int64_t[]) { 1 }, 1);
    }
    if (!good)
        return cli_out_of_memory();
    if (r->runs.delay_us < 0) /* not given */
        r->runs.delay_us = backend == ORDO_BACKEND_CPU ? 100 : 0;
    return CLI_OK;
}

int cli_verify(int argc, char **argv)
{
    request r = {
        .runs = { .job = CLI_JOB_INIT,
                  .repeats = 2,
                  .delay_us = -1,
                  .cut = -1,
                  .argc = argc,
                  .argv = argv },
    };
    cli_option more[] = {
        OPT_INT("--repeats", "N", &r.runs.repeats, 1, 1000000, "runs of each kind (default 2)"),
        OPT_INT("--delay", "US", &r.runs.delay_us, 0, 999999,
                "cpu: longest random delay before a turn (default 100; 0 = none)"),
        OPT_LIST("--grids", "N[,N..]", &r.runs.grids, 1, 65536,
                 "cuda: smaller numbers of workers (default 132,114,78,32)"),
        OPT_CHOICE("--cut", "rows|columns|decode", &r.runs.cut,
                   "cut sequences into calls instead, and compare these with the uncut run"),
        OPT_INT("--page", "N", &r.runs.page, 1, 65536,
                "with --cut decode: keys in shuffled pages of N rows, NaN between them"),
        OPT_TEXT("--expect", "FILE", &r.expect, "compare with the digests that --write wrote"),
        OPT_OUTPUT("--write", "FILE", &r.write, "write the digests and the plan's line"),
        CLI_JOB_OPTIONS(&r.runs.job),
    };
    const cli_section sections[] = { cli_problem_section(&r.runs.job.problem),
                                     cli_choices_deprecated(&r.runs.job.choices),
                                     CLI_SECTION("The runs", more) };
    const cli_syntax syntax = {
        "verify (--seq N | --plan LINE) [OPTIONS]",
        "Run attention, forward and backward, many times and compare every bit with the first "
        "run:\n"
        "on each number of threads (default 1,2,4,8), with random delays, each sequence alone, "
        "the\n"
        "batch reversed, in another process, on each instruction set; on a GPU with each size of\n"
        "the grid and with other work on the device. With --cut, cut every sequence into parts\n"
        "instead: at any row, and at tile multiples with carried sums (rows), at multiples of 128\n"
        "columns (columns), or into single rows with the keys that each sees (decode). If bits\n"
        "differ, print the first element that differs and exit with status 1.",
        sections, 3,
        "  ordo verify --seq 300 --batch 2 --heads 4 --mask causal --dropout 0.1\n"
        "  ordo verify --cu-seqlens 0,100,356 --heads 2 --kv-heads 1 --dtype bf16 --repeats 3\n"
        "  ordo verify --seq 1k --heads 4 --kv-heads 2 --mask causal --dtype bf16 --cut decode\n"
        "  ordo verify --seq 300 --mask causal --dtype bf16 --cut decode --page 16\n"
        "  ordo verify --seq 256 --write here.txt && ordo verify --seq 256 --expect here.txt\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status) && (status = finish(&r)) == CLI_OK)
        status = verify_all(&r);
    cli_list_free(&r.runs.grids);
    cli_job_free(&r.runs.job);
    return status;
}
