/* model_validate.c: `ordo model validate`: predictions beside measured times.
 *
 * Reads what `ordo bench --json` and bench/calibrate print: a document with "results", each a
 * kernel, its sizes and its "seconds". A row without "kernel" is one of `ordo bench`: attention,
 * its "problem" and "pass". Keys that say nothing about time are passed over. */
#include "json_read.h"
#include "model.h"
#include "output.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 16 << 20, WORD = 32 };

/* A row as read; a zero or an empty word means that the key was not there. */
typedef struct row {
    char kernel[WORD], pass[WORD], precision[WORD], generator[WORD], drop[WORD], mode[WORD];
    char state[WORD], mask[WORD], overlap[WORD], label[64];
    double m, n, k, batch, heads, kv_heads, seq, kv_seq, head_dim, embed;
    double rounds, bits, dropout, read_bytes, write_bytes, elements;
    double threads, peak_flops, utilization;
    double seconds, overhead_seconds;
    bool causal;

    double predicted;
    ordo_limiter limiter;
    int group;
} row;

typedef struct table {
    cli_model_args *model;
    const char *path;
    char machine[256]; /* a name or a path */
    row *rows;
    size_t count;
} table;

/* What is compared with what: errors are stated for each kind of kernel. */
static const char *const groups[] = {
    "gemm", "rng", "memory", "attention", "attention-backward", "block", "training", "other"
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

/* ---- reading ---- */

typedef struct field {
    const char *name;
    size_t at;
    int kind; /* 0 number, 1 word, 2 flag */
} field;

#define NUMBER(name_, member_)                                                                     \
    {                                                                                              \
        name_, offsetof(row, member_), 0                                                           \
    }
#define WORDS(name_, member_)                                                                      \
    {                                                                                              \
        name_, offsetof(row, member_), 1                                                           \
    }
static const field fields[] = {
    WORDS("kernel", kernel),
    WORDS("pass", pass),
    WORDS("precision", precision),
    WORDS("dtype", precision),
    WORDS("generator", generator),
    WORDS("drop", drop),
    WORDS("mode", mode),
    WORDS("state", state),
    WORDS("mask", mask),
    WORDS("overlap", overlap),
    WORDS("label", label),
    NUMBER("m", m),
    NUMBER("n", n),
    NUMBER("k", k),
    NUMBER("batch", batch),
    NUMBER("heads", heads),
    NUMBER("kv_heads", kv_heads),
    NUMBER("seq", seq),
    NUMBER("kv_seq", kv_seq),
    NUMBER("dim", head_dim),
    NUMBER("head_dim", head_dim),
    NUMBER("embed", embed),
    NUMBER("rounds", rounds),
    NUMBER("bits", bits),
    NUMBER("dropout", dropout),
    NUMBER("read_bytes", read_bytes),
    NUMBER("write_bytes", write_bytes),
    NUMBER("elements", elements),
    NUMBER("threads", threads),
    NUMBER("utilization", utilization),
    NUMBER("overhead_seconds", overhead_seconds),
    { "causal", offsetof(row, causal), 2 },
};

/* A number, or the median of a spread. */
static bool read_spread(cli_json_reader *r, double *value)
{
    char key[WORD];
    bool first = true;
    if (cli_json_peek(r) != '{')
        return cli_json_number(r, value);
    if (!cli_json_open(r, '{'))
        return false;
    while (cli_json_next(r, '}', &first)) {
        if (!cli_json_key(r, key, sizeof key))
            return false;
        if (!(strcmp(key, "median") == 0 ? cli_json_number(r, value) : cli_json_skip(r)))
            return false;
    }
    return !r->bad;
}

static bool read_members(cli_json_reader *r, row *to);

static bool read_member(cli_json_reader *r, const char *key, row *to)
{
    if (strcmp(key, "seconds") == 0)
        return read_spread(r, &to->seconds);
    if (strcmp(key, "peak_flops") == 0)
        return read_spread(r, &to->peak_flops);
    if (strcmp(key, "problem") == 0)
        return read_members(r, to);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(fields[i].name, key) != 0 || cli_json_peek(r) == 'n') /* null */
            continue;
        char *at = (char *)to + fields[i].at;
        if (fields[i].kind == 0)
            return cli_json_number(r, (double *)(void *)at);
        if (fields[i].kind == 2)
            return cli_json_flag(r, (bool *)(void *)at);
        return cli_json_string(r, at, strcmp(key, "label") == 0 ? sizeof to->label : WORD);
    }
    return cli_json_skip(r);
}

static bool read_members(cli_json_reader *r, row *to)
{
    char key[WORD];
    bool first = true;
    if (!cli_json_open(r, '{'))
        return false;
    while (cli_json_next(r, '}', &first))
        if (!cli_json_key(r, key, sizeof key) || !read_member(r, key, to))
            return false;
    return !r->bad;
}

static bool read_results(cli_json_reader *r, table *t)
{
    size_t room = 0;
    bool first = true;
    if (!cli_json_open(r, '['))
        return false;
    while (cli_json_next(r, ']', &first)) {
        if (t->count == room) {
            room = room ? 2 * room : 64;
            row *more = realloc(t->rows, room * sizeof *more);
            if (!more)
                return cli_json_bad(r, "less, for want of memory");
            t->rows = more;
        }
        t->rows[t->count] = (row) { .seconds = 0 };
        if (!read_members(r, &t->rows[t->count]))
            return false;
        t->count++;
    }
    return !r->bad;
}

static bool read_document(cli_json_reader *r, table *t)
{
    char key[WORD];
    bool first = true;
    if (!cli_json_open(r, '{'))
        return false;
    while (cli_json_next(r, '}', &first)) {
        if (!cli_json_key(r, key, sizeof key))
            return false;
        const bool read = strcmp(key, "results") == 0 && !t->rows ? read_results(r, t)
                          : strcmp(key, "machine") == 0
                              ? cli_json_string(r, t->machine, sizeof t->machine)
                              : cli_json_skip(r);
        if (!read)
            return false;
    }
    return cli_json_done(r);
}

static int read_file(table *t)
{
    FILE *file = strcmp(t->path, "-") == 0 ? stdin : fopen(t->path, "rb");
    if (!file)
        return cli_error(CLI_USAGE, "%s: %s", t->path, strerror(errno));
    char *text = malloc(MOST_BYTES + 1);
    const size_t length = text ? fread(text, 1, MOST_BYTES + 1, file) : 0;
    const bool failed = ferror(file) != 0;
    if (file != stdin)
        fclose(file);
    int status = CLI_OK;
    cli_json_reader reader = cli_json_reader_of(text, length);
    if (!text)
        status = cli_error(CLI_FAILED, "out of memory");
    else if (failed)
        status = cli_error(CLI_FAILED, "%s: cannot be read", t->path);
    else if (length > MOST_BYTES)
        status = cli_usage("%s: more than %d bytes", t->path, MOST_BYTES);
    else if (!read_document(&reader, t))
        status = cli_usage("%s: %s", t->path, reader.why);
    else if (t->count == 0)
        status = cli_usage("%s: no \"results\" to compare with", t->path);
    free(text);
    return status;
}

/* ---- predicting ---- */

static int word_of(const char *word, const char *(*name)(int), int count, int fallback)
{
    for (int i = 0; i < count; i++)
        if (strcmp(name(i), word) == 0)
            return i;
    return fallback;
}
static const char *precision_name(int i)
{
    return ordo_precision_name((ordo_precision)i);
}
static const char *generator_name(int i)
{
    return ordo_generator_name((ordo_generator)i);
}
static const char *mode_name(int i)
{
    return ordo_mode_name((ordo_mode)i);
}

static ordo_precision precision_of(const row *r)
{
    return (ordo_precision)word_of(r->precision, precision_name, ORDO_PRECISIONS, 0);
}

static ordo_rng rng_of(const row *r)
{
    return (ordo_rng) { (int)r->rounds, (int)r->bits,
                        (ordo_generator)word_of(r->generator, generator_name, ORDO_GENERATORS, 0) };
}

static bool is_causal(const row *r)
{
    return r->causal || strncmp(r->mask, "causal", 6) == 0;
}

static double at_least_one(double x)
{
    return x > 0 ? x : 1;
}

static ordo_status predict_gemm(const ordo_model *model, const row *r, ordo_kernel_time *time)
{
    ordo_gemm g = ORDO_GEMM_INIT;
    g.precision = precision_of(r);
    g.m = (int64_t)r->m;
    g.n = (int64_t)r->n;
    g.k = (int64_t)r->k;
    return ordo_model_gemm(model, &g, time);
}

static ordo_status predict_attention(const ordo_model *model, const row *r, bool backward,
                                     ordo_kernel_time *time)
{
    ordo_attention_shape s = ORDO_ATTENTION_SHAPE_INIT;
    s.precision = precision_of(r);
    s.batch = (int64_t)at_least_one(r->batch);
    s.heads = (int64_t)at_least_one(r->heads);
    s.kv_heads = (int64_t)r->kv_heads;
    s.q_len = (int64_t)r->seq;
    s.kv_len = (int64_t)r->kv_seq;
    s.head_dim = (int64_t)r->head_dim;
    s.causal = is_causal(r);
    s.backward = backward;
    s.utilization = r->utilization;
    s.rng = rng_of(r);
    s.drop = strcmp(r->drop, "fused") == 0 || (r->dropout > 0 && !r->drop[0]) ? ORDO_DROP_FUSED
             : strcmp(r->drop, "mask") == 0                                   ? ORDO_DROP_MASK
                                                                              : ORDO_DROP_NONE;
    return ordo_model_attention(model, &s, time);
}

static ordo_status predict_block(const ordo_model *model, const row *r, bool training,
                                 ordo_kernel_time *time)
{
    ordo_block b = ORDO_BLOCK_INIT;
    ordo_block_report report;
    b.precision = precision_of(r);
    b.batch = (int64_t)at_least_one(r->batch);
    b.seq = (int64_t)r->seq;
    b.embed = (int64_t)r->embed;
    b.head_dim = (int64_t)r->head_dim;
    b.causal = is_causal(r);
    b.rng = rng_of(r);
    b.overlap_qkv_only = strcmp(r->overlap, "qkv") == 0;
    const ordo_status status = ordo_model_block(model, &b, &report);
    if (status != ORDO_OK)
        return status;
    const int mode = word_of(r->mode, mode_name, ORDO_MODES, -1);
    const ordo_training *t = &report.training;
    *time = report.gemm[0];
    /* GEMMs without attention: alone, with the mask behind them, with the mask beside them. */
    if (strcmp(r->mode, "gemm") == 0) {
        time->seconds = report.gemm_seconds;
    } else if (strcmp(r->mode, "gemm-then-rng") == 0) {
        time->seconds = report.gemm_then_rng;
    } else if (strcmp(r->mode, "gemm-beside-rng") == 0) {
        time->seconds = report.gemm_beside_rng;
    } else if (training) {
        time->seconds = mode == ORDO_MODE_FUSED        ? t->fused
                        : mode == ORDO_MODE_SEQUENTIAL ? t->sequential_kept
                        : mode == ORDO_MODE_OVERLAPPED ? t->overlapped_kept
                                                       : t->none;
    } else {
        time->seconds = mode >= 0 ? report.mode[mode] : report.none;
    }
    return ORDO_OK;
}

/* The cores and the multiply-add rate that were measured beside the row, if it says. */
static ordo_status adjust(ordo_model *model, const row *r)
{
    static const char *const rates[] = { "tensor_f32", "tensor_bf16", "tensor_f16" };
    ordo_model_constant clock = { 0 };
    ordo_status status = ORDO_OK;
    if (strcmp(r->state, "burst") == 0)
        status = ordo_model_set(model, "steady", 0);
    if (status == ORDO_OK && r->overhead_seconds > 0) /* which holds the launch */
        status = ordo_model_set(model, "launch", 0);
    if (status != ORDO_OK || r->threads <= 0)
        return status;
    status = ordo_model_set(model, "workers", r->threads);
    for (size_t i = 0; i < ordo_model_constant_count() && status == ORDO_OK; i++) {
        ordo_model_constant c;
        if (ordo_model_constant_at(model, i, &c) == ORDO_OK && strcmp(c.name, "clock_tensor") == 0)
            clock = c;
    }
    for (size_t i = 0; i < 3 && status == ORDO_OK && r->peak_flops > 0; i++)
        status = ordo_model_set(model, rates[i], r->peak_flops / r->threads / (clock.value * 1e9));
    return status;
}

static ordo_status predict_kernel(const ordo_model *model, const row *r, ordo_kernel_time *time)
{
    const char *kernel = r->kernel;
    const bool bench = kernel[0] == '\0';
    if (strcmp(kernel, "gemm") == 0)
        return predict_gemm(model, r, time);
    if (strcmp(kernel, "rng") == 0) {
        const ordo_rng rng = rng_of(r);
        const double columns = r->kv_seq > 0 ? r->kv_seq : r->seq;
        const double elements =
            r->elements > 0 ? r->elements
                            : at_least_one(r->batch) * at_least_one(r->heads) * r->seq * columns;
        return ordo_model_rng(model, &rng, elements, time);
    }
    if (strcmp(kernel, "memory") == 0)
        return ordo_model_memory(model, r->read_bytes, r->write_bytes, time);
    if (strcmp(kernel, "block") == 0 || strcmp(kernel, "training") == 0)
        return predict_block(model, r, kernel[0] == 't', time);
    const bool backward =
        strcmp(kernel, "attention-backward") == 0 || strcmp(r->pass, "backward") == 0;
    if (backward || bench || strcmp(kernel, "attention") == 0)
        return predict_attention(model, r, backward, time);
    *time = (ordo_kernel_time) { .seconds = NAN }; /* a kernel the model does not know */
    return ORDO_OK;
}

static int group_of(const row *r)
{
    const char *name = r->kernel[0] != '\0'               ? r->kernel
                       : strcmp(r->pass, "backward") == 0 ? "attention-backward"
                                                          : "attention";
    int i = 0;
    while (i < GROUPS - 1 && strcmp(groups[i], name) != 0)
        i++;
    return i;
}

static int predict(const table *t, row *r)
{
    ordo_model *model = NULL;
    ordo_kernel_time time = { 0 };
    ordo_status status =
        ordo_model_create(&model, t->model->machine, (ordo_calibration)t->model->calibration);
    int exit_status = CLI_OK;
    for (size_t i = 0; i < t->model->set.count && status == ORDO_OK && exit_status == CLI_OK; i++)
        exit_status = cli_model_apply(model, t->model->set.at[i]);
    if (status == ORDO_OK)
        status = adjust(model, r);
    if (status == ORDO_OK)
        status = predict_kernel(model, r, &time);
    ordo_model_destroy(model);
    if (exit_status != CLI_OK || status != ORDO_OK)
        return exit_status != CLI_OK ? exit_status : cli_library_error(status);
    r->predicted = time.seconds + r->overhead_seconds;
    r->limiter = time.limiter;
    r->group = group_of(r);
    if (!(r->seconds > 0))
        return cli_usage("%s: a result has no \"seconds\"", t->path);
    return CLI_OK;
}

/* ---- output ---- */

typedef struct errors {
    size_t count;
    double sum, worst; /* of relative errors, without and with sign */
} errors;

static double error_of(const row *r)
{
    return r->predicted / r->seconds - 1;
}

static errors errors_of(const table *t, int group)
{
    errors e = { 0 };
    for (size_t i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        if ((group >= 0 && r->group != group) || isnan(r->predicted))
            continue;
        const double error = error_of(r);
        e.count++;
        e.sum += fabs(error);
        if (fabs(error) > fabs(e.worst))
            e.worst = error;
    }
    return e;
}

static void describe(const row *r, char *text, size_t capacity)
{
    if (r->label[0] != '\0')
        snprintf(text, capacity, "%s", r->label);
    else if (r->m > 0)
        snprintf(text, capacity, "%s %.0fx%.0fx%.0f", r->precision, r->m, r->n, r->k);
    else if (r->embed > 0)
        snprintf(text, capacity, "%s %.0f rows%s, width %.0f %s", r->precision, r->seq,
                 is_causal(r) ? " causal" : "", r->embed, r->mode);
    else if (r->read_bytes + r->write_bytes > 0)
        snprintf(text, capacity, "read %.3g write %.3g B", r->read_bytes, r->write_bytes);
    else if (r->generator[0] != '\0')
        snprintf(text, capacity, "%.0fx%.0f %s, %.0f heads of %.0f", at_least_one(r->rounds),
                 r->bits, r->generator, at_least_one(r->heads), r->seq);
    else
        snprintf(text, capacity, "%s %.0fx%.0f, %.0f rows, size %.0f%s", r->precision,
                 at_least_one(r->batch), at_least_one(r->heads), r->seq, r->head_dim,
                 is_causal(r) ? " causal" : "");
}

static void print_table(const table *t)
{
    printf("%s: predictions for %s, %s calibration\n\n%-19s %-44s %12s %12s %8s  %s\n", t->path,
           ordo_machine_title(t->model->machine),
           ordo_calibration_name((ordo_calibration)t->model->calibration), "kernel", "row",
           "measured us", "predicted us", "error", "limiter");
    for (size_t i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        char text[96];
        describe(r, text, sizeof text);
        if (isnan(r->predicted))
            printf("%-19s %-44s %12.2f %12s\n", r->kernel, text, r->seconds * 1e6, "not modelled");
        else
            printf("%-19s %-44s %12.2f %12.2f %+7.1f%%  %s\n", groups[r->group], text,
                   r->seconds * 1e6, r->predicted * 1e6, 100 * error_of(r),
                   ordo_limiter_name(r->limiter));
    }
    printf("\n%-19s %6s %12s %10s\n", "kernel", "rows", "mean error", "worst");
    for (int g = 0; g <= GROUPS; g++) {
        const errors e = errors_of(t, g < GROUPS ? g : -1);
        if (e.count > 0)
            printf("%-19s %6zu %11.1f%% %+9.1f%%\n", g < GROUPS ? groups[g] : "all", e.count,
                   100 * e.sum / (double)e.count, 100 * e.worst);
    }
}

static void errors_json(cli_json *json, const table *t)
{
    cli_json_object(json, "errors");
    for (int g = 0; g <= GROUPS; g++) {
        const errors e = errors_of(t, g < GROUPS ? g : -1);
        if (e.count == 0)
            continue;
        cli_json_object(json, g < GROUPS ? groups[g] : "all");
        cli_json_uint(json, "rows", e.count);
        cli_json_real(json, "mean", e.sum / (double)e.count);
        cli_json_real(json, "worst", e.worst);
        cli_json_end_object(json);
    }
    cli_json_end_object(json);
}

static void table_json(FILE *out, const void *what)
{
    const table *t = what;
    cli_json json = { .out = out };
    cli_json_object(&json, NULL);
    cli_json_heading(&json, "model");
    cli_json_text(&json, "part", "validate");
    cli_model_json(&json, t->model);
    cli_json_text(&json, "file", t->path);
    cli_json_array(&json, "rows");
    for (size_t i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        char text[96];
        describe(r, text, sizeof text);
        cli_json_object(&json, NULL);
        cli_json_text(&json, "kernel", r->kernel[0] ? r->kernel : groups[r->group]);
        cli_json_text(&json, "row", text);
        cli_json_real(&json, "measured_seconds", r->seconds);
        cli_json_real(&json, "predicted_seconds", r->predicted);
        cli_json_real(&json, "error", error_of(r));
        cli_json_text(&json, "limiter", ordo_limiter_name(r->limiter));
        cli_json_end_object(&json);
    }
    cli_json_end_array(&json);
    errors_json(&json, t);
    cli_json_end_object(&json);
}

static int run(table *t, const cli_syntax *syntax, double most)
{
    int status = read_file(t);
    if (status != CLI_OK)
        return status;
    if (!cli_args_given(syntax, "--machine"))
        t->model->machine_name = t->machine[0] != '\0' ? t->machine : "host";
    status = cli_model_finish(t->model, false);
    for (size_t i = 0; i < t->count && status == CLI_OK; i++)
        status = predict(t, &t->rows[i]);
    if (status != CLI_OK)
        return status;
    if (t->model->json.on)
        status = cli_model_output(t->model->json.path, table_json, t);
    else
        print_table(t);
    if (status != CLI_OK || most <= 0)
        return status;
    for (int g = 0; g < GROUPS; g++) {
        const errors e = errors_of(t, g);
        if (e.count > 0 && 100 * e.sum / (double)e.count > most)
            status = cli_error(CLI_DIFFERENT, "%s: mean error %.1f %%, at most %g %% allowed",
                               groups[g], 100 * e.sum / (double)e.count, most);
    }
    return status;
}

int cli_model_validate(int argc, char **argv)
{
    cli_model_args model = { 0 };
    table t = { .model = &model };
    double most = 0;
    cli_option options[] = {
        CLI_OPTION("--most", "PERCENT", CLI_REAL, &most,
                   "exit with 1 if the mean error of a kind of kernel is larger"),
    };
    const cli_section sections[] = { CLI_SECTION("Comparison", options),
                                     cli_model_section(&model) };
    const cli_syntax syntax = {
        "model validate FILE.json [OPTIONS]",
        "Compare predictions with measured times: what `ordo bench --json` printed, or a file of\n"
        "bench/measured/. Prints the error of each row, the mean and the worst of each kind.\n"
        "The machine is the file's own unless named; FILE may be - for standard input.",
        sections, 2,
        "  ordo bench attention --seq 256 --heads 4 --seconds 0.1 --json | ordo model validate -\n"
    };
    int status = CLI_OK;
    if (argc > 1 && (argv[1][0] != '-' || argv[1][1] == '\0')) {
        t.path = argv[1];
        argv++;
        argc--;
    }
    if (cli_args_read(&syntax, argc, argv, &status))
        status = t.path ? run(&t, &syntax, most) : cli_usage("expected a file of measured times");
    free(t.rows);
    cli_model_free(&model);
    return status;
}
