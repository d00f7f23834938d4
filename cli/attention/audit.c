/* audit.c: `ordo audit`: recompute on a CPU what a GPU computed, all of it or a sample, and compare
 * every bit. */
#define _XOPEN_SOURCE 700
#include "ordo/audit.h"
#include "attention/audit_files.h"
#include "commands.h"
#include "kit/message.h"
#include "kit/report.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FILES = CLI_AUDIT_TENSORS + 1, MOST_THREADS = 1024 };

typedef struct request {
    const char *files[MOST_FILES];
    const char *plan, *inputs;
    int pass; /* index in "forward|backward|both" */
    int64_t sample, threads;
    uint64_t seed;
    bool seeded; /* --seed was given */
    cli_json_target json;
} request;

/* One unit to check. Those of the forward pass come first. */
typedef struct item {
    int64_t index; /* in its pass */
    ordo_audit_pass pass;
    double scores;
    bool taken; /* checked already, or by some thread now */
} item;

typedef struct audit {
    cli_audit_record record;
    ordo_plan_info info;
    int64_t units[2]; /* units of each pass, in the record */
    int64_t checked[2];
    item *items;
    int64_t count;    /* items */
    double scores[2]; /* scores of the items of each pass */
    unsigned kinds;   /* kinds of the items: a bit for each ordo_audit_kind */
    double seconds;

    pthread_mutex_t lock;
    int64_t next, done, different, first; /* first: item that differs; -1: none */
    int64_t unknown, first_unknown;       /* items that the emulator does not know; -1: none */
    ordo_audit_difference difference;     /* what differs in item `first` */
    ordo_status status;
    char message[512]; /* message of the status, or why the first unknown item is */
    bool terminal;
    double shown;
} audit;

static const char *const pass_names[] = { "forward", "backward" };

/* What the library says of a record: what is wrong in it is no wrong usage. */
static int of_record(ordo_status status)
{
    if (cli_exit_of(status) != CLI_USAGE)
        return cli_library(status);
    return cli_error(CLI_FAILED, "the record: %s", ordo_last_error());
}

/* ---- which units ---- */

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int count_units(audit *a, const request *r)
{
    const bool wanted[2] = { r->pass != 1 && a->record.forward,
                             r->pass != 0 && a->record.backward };
    if (r->pass == 1 && !a->record.backward)
        return cli_usage("--pass backward: no dq, dk or dv in the files");
    for (int p = 0; p < 2; p++)
        if (wanted[p])
            CLI_TRY(of_record(ordo_audit_unit_count(a->record.plan, &a->record.call,
                                                    (ordo_audit_pass)p, &a->units[p])));
    return CLI_OK;
}

/* All units, or `sample` different ones, each set of them with the same probability. */
static int choose_units(audit *a, const request *r)
{
    const int64_t total = a->units[0] + a->units[1];
    const int64_t wanted = r->sample > 0 && r->sample < total ? r->sample : total;
    uint64_t state = r->seed;
    a->items = calloc((size_t)(wanted + 1), sizeof *a->items);
    if (a->items == NULL)
        return cli_out_of_memory();
    for (int64_t i = 0; i < total; i++) {
        const double left = (double)(total - i), u = (double)(draw(&state) >> 11) * 0x1p-53;
        if (u * left >= (double)(wanted - a->count))
            continue;
        const int pass = i >= a->units[0];
        const int64_t index = i - (pass ? a->units[0] : 0);
        ordo_audit_unit unit = ORDO_AUDIT_UNIT_INIT;
        CLI_TRY(cli_library(ordo_audit_unit_describe(a->record.plan, &a->record.call,
                                                     (ordo_audit_pass)pass, index, &unit)));
        a->items[a->count++] = (item) { index, (ordo_audit_pass)pass, (double)unit.scores, false };
        a->scores[pass] += (double)unit.scores;
        a->kinds |= 1u << unit.kind;
        if (unit.kind == ORDO_AUDIT_BLANK) /* rows of all outputs */
            a->kinds |= pass ? 1u << ORDO_AUDIT_DQ | 1u << ORDO_AUDIT_DK_DV : 1u << ORDO_AUDIT_O;
        a->checked[pass]++;
    }
    return CLI_OK;
}

/* ---- work ---- */

/* The state after one more unit; called with the lock held. */
static void add_result(audit *a, int64_t at, ordo_status status,
                       const ordo_audit_difference *difference)
{
    const bool unknown = status == ORDO_ERR_UNSUPPORTED;
    a->done++;
    a->unknown += unknown;
    if (a->status == ORDO_OK && status != ORDO_OK &&
        (!unknown || a->first_unknown < 0 || at < a->first_unknown)) {
        a->status = unknown ? ORDO_OK : status;
        a->first_unknown = at;
        snprintf(a->message, sizeof a->message, "%s unit %" PRId64 ": %s",
                 pass_names[a->items[at].pass], a->items[at].index, ordo_last_error());
    }
    if (status != ORDO_OK || !difference->differs)
        return;
    a->different++;
    if (a->first < 0 || at < a->first) {
        a->first = at;
        a->difference = *difference;
    }
}

static void show_progress(audit *a)
{
    const double now = cli_now();
    if (!a->terminal || now - a->shown < 0.5)
        return;
    a->shown = now;
    fprintf(stderr, "\r%s: %" PRId64 " of %" PRId64 " units, %" PRId64 " different ",
            cli_message_prefix(), a->done, a->count, a->different);
}

static void check(audit *a, int64_t at)
{
    ordo_call call = a->record.call;
    ordo_audit_difference difference = ORDO_AUDIT_DIFFERENCE_INIT;
    call.threads = 1;
    const ordo_status status = ordo_audit_check(a->record.plan, &call, a->items[at].pass,
                                                a->items[at].index, 1, &difference);
    pthread_mutex_lock(&a->lock);
    add_result(a, at, status, &difference);
    show_progress(a);
    pthread_mutex_unlock(&a->lock);
}

static void *work(void *argument)
{
    audit *a = argument;
    for (;;) {
        pthread_mutex_lock(&a->lock);
        while (a->next < a->count && a->items[a->next].taken)
            a->next++;
        const int64_t at = a->status == ORDO_OK && a->next < a->count ? a->next++ : -1;
        pthread_mutex_unlock(&a->lock);
        if (at < 0)
            return NULL;
        check(a, at);
    }
}

static int64_t cores(void)
{
    ordo_machine *host = NULL;
    double workers = 1;
    if (ordo_machine_create(&host, "host") == ORDO_OK)
        (void)ordo_machine_get(host, "workers", &workers);
    ordo_machine_destroy(host);
    return (int64_t)workers;
}

/* Check the first unit of each pass to know the speed, and say how long all will take. */
static void estimate(audit *a, int64_t threads)
{
    double seconds = 0;
    for (int p = 0; p < 2; p++) {
        item *first = &a->items[p ? a->checked[0] : 0];
        if (a->checked[p] == 0)
            continue;
        const double begin = cli_now();
        first->taken = true;
        check(a, first - a->items);
        if (first->scores > 0)
            seconds += (cli_now() - begin) * a->scores[p] / first->scores;
    }
    if (a->status == ORDO_OK)
        fprintf(stderr,
                "%s: %" PRId64 " of %" PRId64 " units, %.3g M scores: about %.2g s on %" PRId64
                " thread%s\n",
                cli_message_prefix(), a->count, a->units[0] + a->units[1],
                (a->scores[0] + a->scores[1]) * 1e-6, seconds / (double)threads, threads,
                threads == 1 ? "" : "s");
}

static int run_units(audit *a, const request *r)
{
    pthread_t others[MOST_THREADS];
    int64_t threads = r->threads > 0 ? r->threads : cores(), started = 0;
    const double begin = cli_now();
    threads = threads > a->count ? a->count : threads;
    threads = threads > MOST_THREADS ? MOST_THREADS : threads < 1 ? 1 : threads;
    a->terminal = isatty(STDERR_FILENO);
    estimate(a, threads);
    while (started < threads - 1 && pthread_create(&others[started], NULL, work, a) == 0)
        started++;
    work(a);
    for (int64_t i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    if (a->terminal)
        fputs("\r\033[K", stderr);
    a->seconds = cli_now() - begin;
    return a->status == ORDO_OK ? CLI_OK : cli_error(CLI_FAILED, "%s", a->message);
}

/* ---- the report ---- */

static void unit_text(const audit *a, char *text, size_t capacity)
{
    const item *at = &a->items[a->first];
    ordo_audit_unit unit = ORDO_AUDIT_UNIT_INIT;
    (void)ordo_audit_unit_describe(a->record.plan, &a->record.call, at->pass, at->index, &unit);
    if (unit.kind == ORDO_AUDIT_BLANK)
        snprintf(text, capacity, "%s unit %" PRId64 ", the %" PRId64 " rows of no sequence",
                 pass_names[at->pass], at->index, unit.rows);
    else
        snprintf(text, capacity,
                 "%s unit %" PRId64 ", sequence %" PRId64 ", %shead %" PRId64 ", %s %" PRId64
                 " to %" PRId64,
                 pass_names[at->pass], at->index, unit.sequence,
                 unit.kind == ORDO_AUDIT_DK_DV ? "key " : "", unit.head,
                 unit.kind == ORDO_AUDIT_DK_DV ? "keys" : "rows", unit.row,
                 unit.row + unit.rows - 1);
}

/* The outputs that were compared, or some elements of them. */
static void print_outputs(const audit *a)
{
    for (int x = 0; x < CLI_AUDIT_TENSORS; x++) {
        const int kind = cli_audit_kind_of(x);
        if (kind >= 0 && a->kinds >> kind & 1 && a->record.arrays[x].path)
            printf(" %s", cli_audit_name(x));
    }
    putchar('\n');
}

static void print_audit(const audit *a)
{
    const ordo_audit_difference *d = &a->difference;
    const bool f32 = strcmp(d->tensor, "lse") == 0 || strcmp(d->tensor, "dsink") == 0 ||
                     strcmp(d->tensor, "dbias") == 0;
    const int digits = f32 ? 8 : 4;
    printf("plan       %s\n", a->info.numeric_key);
    for (int p = 0; p < 2; p++)
        if (a->units[p] > 0)
            printf("%-10s %" PRId64 " of %" PRId64 " units, %.3g M scores\n", pass_names[p],
                   a->checked[p], a->units[p], a->scores[p] * 1e-6);
    printf("time       %.3g s\n", a->seconds);
    if (a->first < 0) {
        printf("equal      every bit of %" PRId64 " units:", a->count);
        print_outputs(a);
        return;
    }
    if (a->unknown > 0)
        printf("unknown    %" PRId64 " units; the first is %s\n", a->unknown, a->message);
    char unit[160];
    unit_text(a, unit, sizeof unit);
    printf("DIFFERENT  %" PRId64 " of %" PRId64 " units; the first is %s\n", a->different, a->count,
           unit);
    printf("           %s, sequence %" PRId64 ", row %" PRId64 ", head %" PRId64 ", column %" PRId64
           ": found %.9g (0x%0*" PRIx32 "), expected %.9g (0x%0*" PRIx32 ")\n",
           d->tensor, d->sequence, d->row, d->head, d->column, d->found_value, digits, d->found,
           d->expected_value, digits, d->expected);
    printf("           elements of this unit that differ: %" PRId64 "\n", d->count);
}

static void audit_json(cli_json *json, const void *what)
{
    const audit *a = what;
    cli_json_text(json, "plan", a->record.line);
    cli_json_text(json, "key", a->info.numeric_key);
    for (int p = 0; p < 2; p++) {
        cli_json_object(json, pass_names[p]);
        json->compact = json->depth;
        cli_json_int(json, "units", a->units[p]);
        cli_json_int(json, "checked", a->checked[p]);
        cli_json_real(json, "scores", a->scores[p]);
        cli_json_end_object(json);
        json->compact = 0;
    }
    cli_json_real(json, "seconds", a->seconds);
    cli_json_bool(json, "equal", a->first < 0);
    cli_json_int(json, "different", a->different);
    cli_json_int(json, "unknown", a->unknown);
    if (a->first < 0) {
        cli_json_null(json, "first");
        return;
    }
    const ordo_audit_difference *d = &a->difference;
    char unit[160];
    unit_text(a, unit, sizeof unit);
    cli_json_object(json, "first");
    cli_json_text(json, "unit", unit);
    cli_json_text(json, "tensor", d->tensor);
    cli_json_int(json, "sequence", d->sequence);
    cli_json_int(json, "row", d->row);
    cli_json_int(json, "head", d->head);
    cli_json_int(json, "column", d->column);
    cli_json_int(json, "found_bits", d->found);
    cli_json_int(json, "expected_bits", d->expected);
    cli_json_real(json, "found", d->found_value);
    cli_json_real(json, "expected", d->expected_value);
    cli_json_int(json, "elements", d->count);
    cli_json_end_object(json);
}

static int run_audit(audit *a, const request *r)
{
    size_t count = 0;
    while (count < MOST_FILES && r->files[count])
        count++;
    if (count == 0)
        return cli_usage("expected a file: what `ordo run --save FILE` writes");
    if (r->seeded && r->sample == 0)
        return cli_usage("--seed: expected only with --sample");
    CLI_TRY(cli_audit_read(&a->record, r->files, count, r->plan, r->inputs));
    a->info = (ordo_plan_info)ORDO_PLAN_INFO_INIT;
    CLI_TRY(cli_library(ordo_plan_query(a->record.plan, &a->info)));
    CLI_TRY(count_units(a, r));
    CLI_TRY(choose_units(a, r));
    CLI_TRY(run_units(a, r));
    if (a->first < 0 && a->unknown > 0)
        return cli_error(CLI_UNSUPPORTED,
                         "%" PRId64 " of %" PRId64 " units cannot be audited, and the others are "
                         "equal; the first is %s",
                         a->unknown, a->count, a->message);
    if (r->json.on)
        CLI_TRY(cli_report_json(&r->json, "audit", audit_json, a));
    else
        print_audit(a);
    return a->first < 0 ? CLI_OK : CLI_DIFFERENT;
}

int cli_audit(int argc, char **argv)
{
    request r = { .pass = 2 };
    cli_option options[] = {
        OPT_INT("--sample", "N", &r.sample, 1, INT64_MAX, "check N units drawn at random"),
        OPT_U64("--seed", "N", &r.seed, "of the draw of --sample (default 0)"),
        OPT_CHOICE("--pass", "forward|backward|both", &r.pass, "what to check (default both)"),
        OPT_INT("--threads", "N", &r.threads, 1, MOST_THREADS, "(default: all cores)"),
        OPT_TEXT("--plan", "LINE", &r.plan, "the plan's line, if no file has it"),
        OPT_TEXT("--inputs", "WORDS", &r.inputs, "\"seed=N offset=N ...\", if no file has them"),
        OPT_JSON(&r.json),
    };
    const cli_section sections[] = { CLI_SECTION("Options", options) };
    const cli_syntax syntax = {
        "audit FILE... [OPTIONS]",
        "Recompute on a CPU what a GPU computed, bit for bit, and compare. A file is what\n"
        "`ordo run --save` writes: a .safetensors file with the tensors q, k, v, o, lse and "
        "perhaps\n"
        "dout, dq, dk, dv, dlse, slopes, sink, dsink, bias, dbias, and the plan's line in its "
        "metadata; or "
        ".npy\n"
        "files with such names. Exit status: 0 equal, 1 different, 2 usage, 3 not auditable, 4 a\n"
        "file that cannot be read.",
        sections,
        1,
        "  ordo audit step.safetensors\n"
        "  ordo audit step.safetensors --sample 100 --seed 7 --json\n"
        "  ordo audit q.npy k.npy v.npy o.npy lse.npy --plan \"$(cat plan.txt)\"\n",
        r.files,
        MOST_FILES
    };
    audit a = { .lock = PTHREAD_MUTEX_INITIALIZER, .first = -1, .first_unknown = -1 };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status)) {
        r.seeded = options[1].used;
        status = run_audit(&a, &r);
        cli_audit_free(&a.record);
        free(a.items);
    }
    return status;
}
