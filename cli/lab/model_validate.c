/* model_validate.c: `ordo model validate`: predictions beside measured times. */
#include "lab/model_validate.h"

#include "lab/model_times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef cli_validated_row row;
typedef cli_validation table;

/* Errors are reported for each kind of kernel. */
static const char *const groups[] = {
    "gemm", "rng", "memory", "attention", "attention-backward", "block", "training", "other"
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

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
    return ordo_dropout_mode_name((ordo_dropout_mode)i);
}

static ordo_precision precision_of(const cli_measured_row *r)
{
    return (ordo_precision)word_of(r->precision, precision_name, ORDO_PRECISIONS, 0);
}

static int small(double x)
{
    return x >= 0 && x < 1000 ? (int)x : -1;
}

static ordo_rng rng_of(const cli_measured_row *r)
{
    return (ordo_rng) { small(r->rounds), small(r->bits),
                        (ordo_generator)word_of(r->generator, generator_name, ORDO_GENERATORS, 0) };
}

static bool is_causal(const cli_measured_row *r)
{
    return r->causal || strncmp(r->mask, "causal", 6) == 0;
}

static double at_least_one(double x)
{
    return x > 0 ? x : 1;
}

/* Convert to a size; a number that is none becomes -1, which the library refuses. */
static int64_t whole(double x)
{
    return x >= 0 && x < 1e15 ? (int64_t)x : -1;
}

static ordo_status predict_gemm(const ordo_model *model, const cli_measured_row *r,
                                ordo_kernel_time *time)
{
    ordo_gemm g = ORDO_GEMM_INIT;
    g.precision = precision_of(r);
    g.m = whole(r->m);
    g.n = whole(r->n);
    g.k = whole(r->k);
    return ordo_model_gemm(model, &g, time);
}

static ordo_status predict_attention(const ordo_model *model, const cli_measured_row *r,
                                     bool backward, ordo_kernel_time *time, const char **constant)
{
    ordo_attention_shape s = ORDO_ATTENTION_SHAPE_INIT;
    s.precision = precision_of(r);
    s.batch = whole(at_least_one(r->batch));
    s.heads = whole(at_least_one(r->heads));
    s.kv_heads = whole(r->kv_heads);
    s.q_len = whole(r->seq);
    s.kv_len = whole(r->kv_seq);
    s.head_dim = whole(r->head_dim);
    s.causal = is_causal(r);
    s.backward = backward;
    s.utilization = r->utilization;
    s.rng = rng_of(r);
    s.keep = strcmp(r->keep, "made") == 0 || (r->dropout > 0 && !r->keep[0]) ? ORDO_KEEP_MADE
             : strcmp(r->keep, "given") == 0                                 ? ORDO_KEEP_GIVEN
                                                                             : ORDO_KEEP_NONE;
    const ordo_status status = ordo_model_attention_constant(model, &s, constant);
    return status == ORDO_OK ? ordo_model_attention(model, &s, time) : status;
}

static ordo_status predict_block(const ordo_model *model, const cli_measured_row *r, bool training,
                                 ordo_kernel_time *time)
{
    ordo_block b = ORDO_BLOCK_INIT;
    ordo_block_report report;
    b.precision = precision_of(r);
    b.batch = whole(at_least_one(r->batch));
    b.seq = whole(r->seq);
    b.embed = whole(r->embed);
    b.head_dim = whole(r->head_dim);
    b.causal = is_causal(r);
    b.rng = rng_of(r);
    b.overlap_qkv_only = strcmp(r->overlap, "qkv") == 0;
    const ordo_status status = ordo_model_block(model, &b, &report);
    if (status != ORDO_OK)
        return status;
    const int mode = word_of(r->mode, mode_name, ORDO_DROPOUT_MODES, -1);
    const ordo_training *t = &report.training;
    *time = report.gemm[0];
    /* GEMMs without attention: alone, then the bits made, or the bits made beside them. */
    if (strcmp(r->mode, "gemm") == 0) {
        time->seconds = report.gemm_seconds;
    } else if (strcmp(r->mode, "gemm-then-rng") == 0) {
        time->seconds = report.gemm_then_rng;
    } else if (strcmp(r->mode, "gemm-beside-rng") == 0) {
        time->seconds = report.gemm_beside_rng;
    } else if (training) {
        time->seconds = mode == ORDO_DROPOUT_MODE_FUSED        ? t->fused
                        : mode == ORDO_DROPOUT_MODE_SEQUENTIAL ? t->sequential_kept
                        : mode == ORDO_DROPOUT_MODE_OVERLAPPED ? t->overlapped_kept
                                                               : t->none;
    } else if (strcmp(r->mode, "overlapped-qkv") == 0) {
        return cli_block_beside_qkv(model, &b, &report, &time->seconds);
    } else {
        time->seconds = mode >= 0 ? report.mode[mode] : report.none;
    }
    return ORDO_OK;
}

/* The cores and the multiply-add rate that were measured beside the row, if it says. */
static ordo_status adjust(ordo_model *model, const cli_measured_row *r)
{
    static const char *const rates[] = { "tensor_f32", "tensor_bf16", "tensor_f16" };
    ordo_status status = ORDO_OK;
    if (strcmp(r->state, "burst") == 0)
        status = ordo_model_set(model, "steady", 0);
    if (status == ORDO_OK && r->overhead_seconds > 0) /* which holds the launch */
        status = ordo_model_set(model, "launch", 0);
    if (status != ORDO_OK || r->threads <= 0)
        return status;
    status = ordo_model_set(model, "workers", r->threads);
    const double clock = cli_model_constant(model, "clock_tensor");
    for (size_t i = 0; i < 3 && status == ORDO_OK && r->peak_flops > 0; i++)
        status = ordo_model_set(model, rates[i], r->peak_flops / r->threads / (clock * 1e9));
    return status;
}

static ordo_status predict_kernel(const ordo_model *model, const cli_measured_row *r,
                                  ordo_kernel_time *time, const char **constant)
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
        return predict_attention(model, r, backward, time, constant);
    *time = (ordo_kernel_time) { .seconds = NAN }; /* a kernel the model does not know */
    return ORDO_OK;
}

static int group_of(const cli_measured_row *r)
{
    const char *name = r->kernel[0] != '\0'               ? r->kernel
                       : strcmp(r->pass, "backward") == 0 ? "attention-backward"
                                                          : "attention";
    int i = 0;
    while (i < GROUPS - 1 && strcmp(groups[i], name) != 0)
        i++;
    return i;
}

int cli_validate_predict(const cli_validation *t, cli_validated_row *r)
{
    ordo_model *model = NULL;
    ordo_kernel_time time = { 0 };
    int status = cli_model_create(t->model, &model);
    if (status == CLI_OK)
        status = cli_model_apply_set(t->model, model);
    if (status == CLI_OK)
        status = cli_library(adjust(model, &r->is));
    if (status == CLI_OK && r->constant && r->value > 0) /* fitted */
        status = cli_library(ordo_model_set(model, r->constant, r->value));
    if (status == CLI_OK)
        status = cli_library(predict_kernel(model, &r->is, &time, &r->constant));
    if (status == CLI_OK && r->constant)
        r->value = cli_model_constant(model, r->constant);
    ordo_model_destroy(model);
    r->predicted = time.seconds + r->is.overhead_seconds;
    r->limiter = time.limiter;
    r->group = group_of(&r->is);
    r->kind = r->constant ? r->constant : groups[r->group];
    if (status == CLI_OK && !(r->is.seconds > 0))
        return cli_usage("%s: a result has no \"seconds\"", t->path);
    return status;
}

/* ---- output ---- */

typedef struct errors {
    size_t count;
    double sum, worst; /* of relative errors, without and with sign */
} errors;

double cli_validate_error(const cli_validated_row *r)
{
    return r->predicted / r->is.seconds - 1;
}

static errors errors_of(const table *t, int group)
{
    errors e = { 0 };
    for (size_t i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        if ((group >= 0 && r->group != group) || isnan(r->predicted))
            continue;
        const double error = cli_validate_error(r);
        e.count++;
        e.sum += fabs(error);
        if (fabs(error) > fabs(e.worst))
            e.worst = error;
    }
    return e;
}

static void describe(const cli_measured_row *r, char *text, size_t capacity)
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

static void print_table(const void *what)
{
    const table *t = what;
    printf("%s: predictions for %s, %s calibration\n\n%-19s %-44s %12s %12s %8s  %s\n", t->path,
           ordo_machine_title(t->model->machine),
           ordo_calibration_name((ordo_calibration)t->model->calibration), "kernel", "row",
           "measured us", "predicted us", "error", "limiter");
    for (size_t i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        char text[96];
        describe(&r->is, text, sizeof text);
        if (isnan(r->predicted))
            printf("%-19s %-44s %12.2f %12s\n", r->is.kernel, text, r->is.seconds * 1e6,
                   "not modelled");
        else
            printf("%-19s %-44s %12.2f %12.2f %+7.1f%%  %s\n", groups[r->group], text,
                   r->is.seconds * 1e6, r->predicted * 1e6, 100 * cli_validate_error(r),
                   ordo_limiter_name(r->limiter));
    }
    printf("\n%-19s %6s %12s %10s\n", "kernel", "rows", "mean error", "worst");
    for (int g = 0; g <= GROUPS; g++) {
        const errors e = errors_of(t, g < GROUPS ? g : -1);
        if (e.count > 0)
            printf("%-19s %6zu %11.1f%% %+9.1f%%\n", g < GROUPS ? groups[g] : "all", e.count,
                   100 * e.sum / (double)e.count, 100 * e.worst);
    }
    cli_ratios_print(t);
    if (t->kinds)
        cli_holdout_print(t);
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

static void table_json(cli_json *json, const void *what)
{
    const table *t = what;
    cli_json_text(json, "file", t->path);
    cli_json_array(json, "rows");
    for (size_t i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        char text[96];
        describe(&r->is, text, sizeof text);
        cli_json_object(json, NULL);
        cli_json_text(json, "kernel", r->is.kernel[0] ? r->is.kernel : groups[r->group]);
        cli_json_text(json, "row", text);
        cli_json_real(json, "measured_seconds", r->is.seconds);
        cli_json_real(json, "predicted_seconds", r->predicted);
        cli_json_real(json, "error", cli_validate_error(r));
        cli_json_text(json, "limiter", ordo_limiter_name(r->limiter));
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
    errors_json(json, t);
    cli_ratios_json(json, t);
    if (t->kinds)
        cli_holdout_json(json, t);
}

/* Report every kind of kernel whose mean error is larger than allowed. */
static int check_most(const table *t, double most)
{
    int status = CLI_OK;
    for (int g = 0; g < GROUPS; g++) {
        const errors e = errors_of(t, g);
        if (e.count > 0 && 100 * e.sum / (double)e.count > most)
            status = cli_error(CLI_DIFFERENT, "%s: mean error %.1f %%, at most %g %% allowed",
                               groups[g], 100 * e.sum / (double)e.count, most);
    }
    return status;
}

static int run(table *t, const cli_syntax *syntax, double most, bool hold_out)
{
    CLI_TRY(cli_measured_read(&t->measured, t->path));
    t->count = t->measured.count;
    t->rows = calloc(t->count, sizeof *t->rows);
    if (!t->rows)
        return cli_out_of_memory();
    for (size_t i = 0; i < t->count; i++)
        t->rows[i].is = t->measured.rows[i];
    if (!cli_args_given(syntax, "--machine"))
        t->model->machine_name = t->measured.machine[0] != '\0' ? t->measured.machine : "host";
    CLI_TRY(cli_model_open(t->model, false));
    for (size_t i = 0; i < t->count; i++)
        CLI_TRY(cli_validate_predict(t, &t->rows[i]));
    if (hold_out)
        CLI_TRY(cli_holdout_fit(t));
    CLI_TRY(cli_model_show(t->model, "validate", print_table, table_json, t));
    return hold_out ? cli_holdout_most(t, most) : check_most(t, most);
}

int cli_model_validate(int argc, char **argv)
{
    cli_model_args model = { 0 };
    table t = { .model = &model };
    double most = INFINITY;
    bool hold_out = false;
    cli_option options[] = {
        OPT_FLAG("--hold-out", &hold_out,
                 "fit constants of attention to half of the rows; errors of the others"),
        OPT_REAL("--most", "PERCENT", &most,
                 "exit with 1 if the mean error of a kind of kernel is larger"),
    };
    const cli_section sections[] = { CLI_SECTION("Comparison", options),
                                     cli_model_section(&model) };
    const cli_syntax syntax = {
        "model validate FILE.json [OPTIONS]",
        "Compare predictions with measured times: what `ordo bench --json` printed, or a file of\n"
        "bench/lab/measured/. Prints the error of each row, the mean and the worst of each kind.\n"
        "The machine is the file's own unless named; FILE may be - for standard input.\n"
        "--hold-out fits one constant for each kind of attention (pass, head size, source of keep\n"
        "bits) to half of its rows, and prints the errors of the other half before and after.",
        sections, 2,
        "  ordo bench attention --seq 256 --heads 4 --seconds 0.1 --json | ordo model validate -\n"
    };
    int status = CLI_OK;
    if (argc > 1 && (argv[1][0] != '-' || argv[1][1] == '\0')) {
        t.path = argv[1];
        argv++;
        argc--;
    }
    if (cli_args_read(&syntax, argc, argv, &status)) {
        if (most < 0)
            status = cli_usage("--most %g: expected 0 or more percent", most);
        else
            status = t.path ? run(&t, &syntax, most, hold_out)
                            : cli_usage("expected a file of measured times");
    }
    free(t.kinds);
    free(t.rows);
    cli_measured_free(&t.measured);
    cli_model_free(&model);
    return status;
}
