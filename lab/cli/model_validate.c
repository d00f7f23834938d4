/* model_validate.c: `ordo model validate`: predictions and measured times. */
#include "cli/model_predict.h"

#include "cli/model_times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef cli_validated_row row;
typedef cli_validation table;

/* ---- output ---- */

typedef struct errors {
    size_t count;
    double sum, worst; /* sums of relative errors, without and with sign */
} errors;

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
                 cli_row_causal(r) ? " causal" : "", r->embed, r->mode);
    else if (r->read_bytes + r->write_bytes > 0)
        snprintf(text, capacity, "read %.3g write %.3g B", r->read_bytes, r->write_bytes);
    else if (r->generator[0] != '\0')
        snprintf(text, capacity, "%.0fx%.0f %s, %.0f heads of %.0f", cli_at_least_one(r->rounds),
                 r->bits, r->generator, cli_at_least_one(r->heads), r->seq);
    else
        snprintf(text, capacity, "%s %.0fx%.0f, %.0f rows, size %.0f%s", r->precision,
                 cli_at_least_one(r->batch), cli_at_least_one(r->heads), r->seq, r->head_dim,
                 cli_row_causal(r) ? " causal" : "");
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
            printf("%-19s %-44s %12.2f %12.2f %+7.1f%%  %s\n", cli_validate_group(r->group), text,
                   r->is.seconds * 1e6, r->predicted * 1e6, 100 * cli_validate_error(r),
                   ordo_limiter_name(r->limiter));
    }
    printf("\n%-19s %6s %12s %10s\n", "kernel", "rows", "mean error", "worst");
    for (int g = 0; g <= CLI_GROUPS; g++) {
        const errors e = errors_of(t, g < CLI_GROUPS ? g : -1);
        if (e.count > 0)
            printf("%-19s %6zu %11.1f%% %+9.1f%%\n", g < CLI_GROUPS ? cli_validate_group(g) : "all",
                   e.count, 100 * e.sum / (double)e.count, 100 * e.worst);
    }
    cli_ratios_print(t);
    if (t->kinds)
        cli_holdout_print(t);
}

static void errors_json(cli_json *json, const table *t)
{
    cli_json_object(json, "errors");
    for (int g = 0; g <= CLI_GROUPS; g++) {
        const errors e = errors_of(t, g < CLI_GROUPS ? g : -1);
        if (e.count == 0)
            continue;
        cli_json_object(json, g < CLI_GROUPS ? cli_validate_group(g) : "all");
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
        cli_json_text(json, "kernel",
                      r->is.kernel[0] ? r->is.kernel : cli_validate_group(r->group));
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
    for (int g = 0; g < CLI_GROUPS; g++) {
        const errors e = errors_of(t, g);
        if (e.count > 0 && 100 * e.sum / (double)e.count > most)
            status = cli_error(CLI_DIFFERENT, "%s: mean error %.1f %%, at most %g %% allowed",
                               cli_validate_group(g), 100 * e.sum / (double)e.count, most);
    }
    return status;
}

/* What is compared, and the largest mean errors in percent. */
typedef struct wanted {
    bool hold_out, kinds;
    double most, most_ratio;
} wanted;

static int run(table *t, const cli_syntax *syntax, const wanted *w)
{
    CLI_TRY(cli_measured_read(&t->measured, t->path));
    t->count = t->measured.count;
    t->rows = calloc(t->count, sizeof *t->rows);
    if (!t->rows)
        return cli_out_of_memory();
    for (size_t i = 0; i < t->count; i++)
        t->rows[i].is = t->measured.rows[i];
    if (!cli_args_used(syntax, "--machine"))
        t->model->machine_name = t->measured.machine[0] != '\0' ? t->measured.machine : "host";
    CLI_TRY(cli_model_open(t->model, false));
    for (size_t i = 0; i < t->count; i++)
        CLI_TRY(cli_validate_predict(t, &t->rows[i]));
    if (w->hold_out)
        CLI_TRY(cli_holdout_fit(t));
    else if (w->kinds)
        CLI_TRY(cli_holdout_kinds(t));
    CLI_TRY(cli_model_show(t->model, "validate", print_table, table_json, t));
    const int status = t->kinds ? cli_holdout_most(t, w->most) : check_most(t, w->most);
    const int ratios = cli_ratios_most(t, w->most_ratio);
    return status == CLI_OK ? ratios : status;
}

int cli_model_validate(int argc, char **argv)
{
    cli_model_args model = { 0 };
    table t = { .model = &model };
    wanted w = { .most = INFINITY, .most_ratio = INFINITY };
    cli_option options[] = {
        OPT_FLAG("--kinds", &w.kinds, "errors of each kind, with the constants as they stand"),
        OPT_FLAG("--hold-out", &w.hold_out,
                 "fit constants of each kind to half of the rows; errors of the others"),
        OPT_REAL("--most", "PERCENT", &w.most,
                 "exit with 1 if the mean error of a kind of kernel is larger"),
        OPT_REAL("--most-ratio", "PERCENT", &w.most_ratio,
                 "the same for ratios of blocks, overlapped over other modes"),
    };
    const cli_section sections[] = { CLI_SECTION("Comparison", options),
                                     cli_model_section(&model) };
    const cli_syntax syntax = {
        "model validate FILE.json [OPTIONS]",
        "Compare predictions with measured times: what `ordo bench --json` printed, or a file of\n"
        "lab/bench/measured/. Prints the error of each row, the mean and the worst of each kind.\n"
        "The machine is the file's own unless named; FILE may be - for standard input.\n"
        "--kinds tells kinds of attention apart (pass, head size, source of keep bits) and fits "
        "nothing:\n"
        "for rows that no constant was fitted to. --hold-out fits the constants of each kind to "
        "half of\n"
        "its rows, and prints the errors of the other half before and after.",
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
        if (w.most < 0 || w.most_ratio < 0)
            status = cli_usage("%s %g: expected 0 or more percent",
                               w.most < 0 ? "--most" : "--most-ratio",
                               w.most < 0 ? w.most : w.most_ratio);
        else if (w.kinds && w.hold_out)
            status = cli_usage("--kinds with --hold-out: expected one of them");
        else
            status = t.path ? run(&t, &syntax, &w) : cli_usage("expected a file of measured times");
    }
    free(t.kinds);
    free(t.rows);
    cli_measured_free(&t.measured);
    cli_model_free(&model);
    return status;
}
