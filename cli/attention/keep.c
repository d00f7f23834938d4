/* keep.c: `ordo keep`: statistics of the keep bits of dropout, their rows, or a picture of them. */
#include "attention/keep_report.h"
#include "commands.h"
#include "kit/args.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/picture.h"
#include "kit/problem_args.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS_AT_ONCE = 1 << 20, /* bytes of rows held at a time, one row at least */
    MOST_PIXELS = 1 << 28,
    EXPERIMENTS = 2,
};
#define MOST_ELEMENTS (INT64_C(1) << 38) /* statistics of a few minutes, a file of 256 GiB */

typedef struct span {
    int64_t first, count; /* 0, 0: all */
} span;

typedef struct request {
    cli_problem problem;
    int experiment; /* index in "3|5", or -1 */
    bool dump, force;
    const char *export, *picture, *rows_text, *cols_text;
    int format;             /* an ordo_dropout_format */
    int64_t sequence, head; /* -1: not given */
    span rows, cols;
} request;

/* "A..B", B excluded. */
static bool read_span(const char *text, span *s)
{
    char first[32];
    const char *dots = strstr(text, "..");
    int64_t a, b;
    if (dots == NULL || (size_t)(dots - text) >= sizeof first)
        return false;
    memcpy(first, text, (size_t)(dots - text));
    first[dots - text] = '\0';
    if (!cli_read_size(first, 0, INT64_MAX, &a) || !cli_read_size(dots + 2, 0, INT64_MAX, &b) ||
        a >= b)
        return false;
    *s = (span) { a, b - a };
    return true;
}

static int finish(request *r)
{
    int status = cli_problem_finish(&r->problem);
    if (status != CLI_OK)
        return status;
    if (r->problem.dropout == 0)
        return cli_usage(r->problem.plan
                             ? "--plan: expected a line with dropout"
                             : "--dropout: missing; expected a probability above 0, such as 0.1");
    static const char *const ignored[] = { "--mask",  "--window",  "--block-mask", "--seen",
                                           "--scale", "--softcap", "--alibi" };
    for (size_t x = 0; x < sizeof ignored / sizeof ignored[0]; x++)
        if (cli_problem_used(&r->problem, ignored[x]))
            return cli_usage("%s: keep bits do not depend on it", ignored[x]);
    if (r->problem.threads.count > 1)
        return cli_usage("--threads: expected one number; keep bits do not depend on it");
    if (r->dump + (r->export != NULL) + (r->picture != NULL) > 1)
        return cli_usage("--dump, --export, --picture: expected one of them at a time");
    if (r->format != ORDO_DROPOUT_BYTES && !r->export)
        return cli_usage("--format: expected only with --export");
    if (r->dump && r->problem.json.on)
        return cli_usage("--json: --dump prints rows of 0 and 1");
    const bool rows = r->dump || r->export || r->picture;
    if (rows && cli_problem_count(&r->problem) > 1)
        return cli_usage("--dump, --export, --picture: expected one problem, no lists");
    if (!rows && (r->rows_text || r->cols_text || r->sequence >= 0 || r->head >= 0))
        return cli_usage(
            "--rows, --cols, --sequence, --head: expected only with --dump, --export or --picture");
    if (r->rows_text && !read_span(r->rows_text, &r->rows))
        return cli_usage("--rows %s: expected FIRST..END, such as 0..64", r->rows_text);
    if (r->cols_text && !read_span(r->cols_text, &r->cols))
        return cli_usage("--cols %s: expected FIRST..END, such as 0..128", r->cols_text);
    return CLI_OK;
}

static ordo_dropout_call call_of(const request *r)
{
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    call.seed = r->problem.seed;
    call.offset = r->problem.offset;
    if (r->problem.layout == ORDO_PACKED) {
        call.cu_q = r->problem.q_numbers;
        call.cu_kv = r->problem.kv_numbers;
    }
    call.threads = r->problem.threads.count > 0 ? (int)r->problem.threads.values[0] : 0;
    static const int rounds[EXPERIMENTS] = { 3, 5 };
    call.experiment_rounds = r->experiment >= 0 ? rounds[r->experiment] : 0;
    return call;
}

static void warn(const ordo_dropout_call *call)
{
    if (call->experiment_rounds)
        cli_error(CLI_OK,
                  "warning: %d rounds are an experiment; such bits are correlated from row to "
                  "row, head to head and step to step: not for training",
                  call->experiment_rounds);
}

/* ---- statistics ---- */

static int measure(const request *r, cli_keep_report *report)
{
    ordo_dropout_info info;
    ordo_status status = ordo_dropout_query(&report->problem, &report->call, &info);
    if (status == ORDO_OK && info.elements > MOST_ELEMENTS && !r->force)
        return cli_error(CLI_UNSUPPORTED,
                         "%" PRIu64 " elements, more than are counted in a few minutes; --force "
                         "counts them anyway",
                         info.elements);
    cli_progress_start("counting");
    if (status == ORDO_OK)
        status = cli_keep_measure(&report->problem, &report->call, &report->statistics);
    cli_progress_stop();
    return cli_library(status);
}

static int statistics(const request *r)
{
    const size_t count = cli_problem_count(&r->problem);
    cli_keep_report *reports = calloc(count, sizeof *reports);
    if (reports == NULL)
        return cli_out_of_memory();
    int status = CLI_OK;
    for (size_t i = 0; i < count && status == CLI_OK; i++) {
        reports[i].problem = cli_problem_at(&r->problem, i);
        reports[i].call = call_of(r);
        status = measure(r, &reports[i]);
    }
    if (status == CLI_OK)
        status = cli_keep_show(&r->problem.json, reports, count);
    for (size_t i = 0; i < count && status == CLI_OK; i++) {
        const char *which;
        if (cli_keep_suspicious(&reports[i].statistics, &which))
            status = cli_error(CLI_DIFFERENT, "%s: not what independent draws would give", which);
    }
    free(reports);
    return status;
}

/* ---- rows ---- */

static const char *path_of(const request *r)
{
    return r->dump ? "-" : r->export ? r->export : r->picture;
}

/* Where rows go, and what has gone there. */
typedef struct sink {
    const request *request;
    cli_file file;
    cli_picture picture;
    uint64_t elements, kept;
} sink;

static void write_row(sink *s, const unsigned char *row, size_t bytes)
{
    FILE *out = s->file.stream;
    if (s->request->dump) {
        for (size_t i = 0; i < bytes; i++)
            putc(row[i] ? '1' : '0', out);
        putc('\n', out);
    } else if (s->request->picture) {
        cli_picture_row(&s->picture, row);
    } else {
        fwrite(row, 1, bytes, out);
    }
    for (size_t i = 0; i < bytes; i++)
        s->kept += (uint64_t)__builtin_popcount(row[i]);
}

/* The rectangle of one head, a few rows at a time. */
static int write_part(sink *s, const ordo_problem *p, const ordo_dropout_call *c,
                      ordo_dropout_part part, int64_t rows, int64_t cols)
{
    const bool bits = part.format == ORDO_DROPOUT_BITS;
    const size_t row_bytes = (size_t)(bits ? (cols + 7) / 8 : cols);
    const int64_t most = (int64_t)(row_bytes < ROWS_AT_ONCE ? ROWS_AT_ONCE / row_bytes : 1);
    unsigned char *buffer = malloc((size_t)most * row_bytes);
    if (buffer == NULL)
        return cli_out_of_memory();
    ordo_status status = ORDO_OK;
    for (const int64_t end = part.row + rows;
         part.row < end && status == ORDO_OK && !ferror(s->file.stream); part.row += part.rows) {
        part.rows = end - part.row < most ? end - part.row : most;
        status = ordo_dropout_export(p, c, NULL, &part, buffer, (size_t)most * row_bytes, NULL);
        for (int64_t i = 0; i < part.rows && status == ORDO_OK && !ferror(s->file.stream); i++)
            write_row(s, buffer + (size_t)i * row_bytes, row_bytes);
    }
    free(buffer);
    s->elements += (uint64_t)rows * (uint64_t)cols;
    return cli_library(status);
}

/* Rows and columns of the rectangle of one sequence. */
static void extent(const request *r, const ordo_problem *p, const ordo_dropout_call *c, int64_t b,
                   int64_t *rows, int64_t *cols)
{
    const int64_t kv_len = p->kv_len ? p->kv_len : p->q_len;
    *rows = (c->cu_q ? c->cu_q[b + 1] - c->cu_q[b] : p->q_len) - r->rows.first;
    *cols = (c->cu_kv ? c->cu_kv[b + 1] - c->cu_kv[b] : kv_len) - r->cols.first;
    *rows = r->rows.count ? r->rows.count : *rows;
    *cols = r->cols.count ? r->cols.count : *cols;
}

static int write_head(sink *s, const ordo_problem *p, const ordo_dropout_call *c, int64_t sequence,
                      int64_t head)
{
    const request *r = s->request;
    ordo_dropout_part part = ORDO_DROPOUT_PART_INIT;
    int64_t rows = 0, cols = 0;
    part.sequence = sequence;
    part.head = head;
    part.row = r->rows.first, part.rows = r->rows.count;
    part.col = r->cols.first, part.cols = r->cols.count;
    part.format = r->export ? (ordo_dropout_format)r->format : ORDO_DROPOUT_BYTES;
    CLI_TRY(cli_library(ordo_dropout_export(p, c, NULL, &part, NULL, 0, &(size_t) { 0 })));
    extent(r, p, c, sequence, &rows, &cols);
    if (rows == 0 || cols == 0)
        return CLI_OK;
    if (!r->picture)
        return write_part(s, p, c, part, rows, cols);
    if (rows > MOST_PIXELS / cols)
        return cli_usage("--picture: %" PRId64 " x %" PRId64 " elements: expected at most 2^28; "
                         "choose with --rows and --cols",
                         rows, cols);
    s->picture = cli_picture_start(s->file.stream, r->picture, (uint32_t)cols, (uint32_t)rows);
    const int status = write_part(s, p, c, part, rows, cols);
    cli_picture_finish(&s->picture);
    return status;
}

/* --export takes all sequences and heads where none is named, the others the first. */
typedef struct heads {
    int64_t sequence, sequence_end, head, head_end;
} heads;

static heads heads_of(const request *r, const ordo_problem *p)
{
    const int64_t sequence = r->sequence < 0 ? 0 : r->sequence, head = r->head < 0 ? 0 : r->head;
    return (heads) {
        .sequence = sequence,
        .sequence_end = r->export && r->sequence < 0 ? p->batch : sequence + 1,
        .head = head,
        .head_end = r->export && r->head < 0 ? p->heads : head + 1,
    };
}

/* Refuse a file that no disk holds, before the first byte. A reader of "-" stops when it likes. */
static int check_export(const request *r, const ordo_problem *p, const ordo_dropout_call *c)
{
    const heads h = heads_of(r, p);
    const bool alike = c->cu_q == NULL; /* every sequence has the same size */
    double elements = 0;
    int64_t rows = 0, cols = 0;
    if (!r->export || cli_is_stdout(r->export) || r->force || h.sequence_end > p->batch)
        return CLI_OK;
    for (int64_t b = h.sequence; b < (alike ? h.sequence + 1 : h.sequence_end); b++) {
        extent(r, p, c, b, &rows, &cols);
        elements += (double)rows * (double)cols;
    }
    elements *=
        (double)(h.head_end - h.head) * (alike ? (double)(h.sequence_end - h.sequence) : 1.0);
    if (elements > (double)MOST_ELEMENTS)
        return cli_error(CLI_UNSUPPORTED,
                         "--export %s: %.3g elements, expected at most 2^38; choose with --rows, "
                         "--cols, --sequence and --head, or use --force",
                         r->export, elements);
    return CLI_OK;
}

/* Stops early where the stream has failed: committing the file then says why. */
static int write_heads(sink *s, const ordo_problem *p, const ordo_dropout_call *c)
{
    const heads all = heads_of(s->request, p);
    int status = CLI_OK;
    for (int64_t b = all.sequence; b < all.sequence_end; b++)
        for (int64_t h = all.head; h < all.head_end && status == CLI_OK && !ferror(s->file.stream);
             h++)
            status = write_head(s, p, c, b, h);
    return status;
}

static const char *kind_of(const request *r)
{
    return r->picture ? "picture" : "export";
}

static void written_fields(cli_json *json, const void *what)
{
    const sink *s = what;
    cli_json_text(json, kind_of(s->request), path_of(s->request));
    cli_json_bool(json, "experiment", s->request->experiment >= 0);
    cli_json_uint(json, "elements", s->elements);
    cli_json_uint(json, "kept", s->kept);
}

static int report_written(const sink *s)
{
    const request *r = s->request;
    if (r->problem.json.on)
        return cli_report_json(&r->problem.json, "keep", written_fields, s);
    if (!cli_is_stdout(path_of(r)))
        printf("%-10s %s: kept %" PRIu64 " of %" PRIu64 "\n", kind_of(r), path_of(r), s->kept,
               s->elements);
    return CLI_OK;
}

static int rows(const request *r)
{
    const ordo_problem problem = cli_problem_at(&r->problem, 0);
    const ordo_dropout_call call = call_of(r);
    sink s = { .request = r };
    int status = cli_report_check(&r->problem.json, path_of(r));
    if (status != CLI_OK)
        return status;
    CLI_TRY(cli_library(ordo_dropout_query(&problem, &call, &(ordo_dropout_info) { 0 })));
    status = check_export(r, &problem, &call);
    if (status == CLI_OK)
        status = cli_file_open(&s.file, path_of(r));
    if (status != CLI_OK)
        return status;
    cli_progress_start("writing");
    status = write_heads(&s, &problem, &call);
    cli_progress_stop();
    if (status != CLI_OK) {
        cli_file_discard(&s.file);
        return status;
    }
    status = cli_file_commit(&s.file);
    return status == CLI_OK && !r->dump ? report_written(&s) : status;
}

int cli_keep(int argc, char **argv)
{
    request r = { .experiment = -1, .sequence = -1, .head = -1 };
    cli_option more[] = {
        CLI_PLAN_OPTION(&r.problem),
        OPT_FLAG("--dump", &r.dump, "print the rows of one head as 0 and 1"),
        OPT_OUTPUT("--export", "FILE", &r.export,
                   "write the rows of every head; - = standard output"),
        OPT_CHOICE("--format", "bytes|bits", &r.format,
                   "of --export: one byte or one bit per element (default bytes)"),
        OPT_OUTPUT("--picture", "FILE", &r.picture,
                   "draw one head, kept elements white; PNG if FILE ends in .png, else PGM"),
        OPT_TEXT("--rows", "A..B", &r.rows_text, "only rows A to B - 1"),
        OPT_TEXT("--cols", "A..B", &r.cols_text, "only columns A to B - 1"),
        OPT_INT("--sequence", "N", &r.sequence, 0, INT32_MAX, "only sequence N"),
        OPT_INT("--head", "N", &r.head, 0, INT32_MAX, "only head N"),
        OPT_CHOICE("--experiment-rounds", "3|5", &r.experiment,
                   "too few Philox rounds: not for training"),
        OPT_FLAG("--force", &r.force, "count or write any number of elements"),
    };
    const cli_section sections[] = { cli_problem_section(&r.problem),
                                     CLI_SECTION("The keep bits", more) };
    const cli_syntax syntax = {
        "keep (--seq N --dropout P | --plan LINE) [OPTIONS]",
        "Make the keep bits of dropout of a problem. Without --dump, --export or --picture, print\n"
        "how many elements are kept and the correlation of neighbours along each coordinate that\n"
        "the random numbers depend on; z is the distance from the expected value in standard\n"
        "deviations. If the bits are suspicious, the exit status is 1.",
        sections, 2,
        "  ordo keep --seq 1k --heads 4 --dropout 0.1\n"
        "  ordo keep --seq 64 --kv-seq 128 --dropout 0.1 --seed 7 --dump --rows 0..8\n"
        "  ordo keep --seq 1k --dropout 0.1 --picture bits.png --rows 0..128 --cols 0..128\n"
        "  ordo keep --batch 2 --heads 8 --seq 512 --dropout 0.1 --keying fa2 --json\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status) && (status = finish(&r)) == CLI_OK) {
        const ordo_dropout_call call = call_of(&r);
        warn(&call);
        status = r.dump || r.export || r.picture ? rows(&r) : statistics(&r);
    }
    cli_problem_free(&r.problem);
    return status;
}
