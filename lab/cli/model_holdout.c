/* model_holdout.c: errors of each kind of kernel: with the constants as they stand, or with
 * constants fitted to half of the measured rows, of the other half.
 *
 * Rows of a kind are numbered in the order of the file. Row i is used by the fit if i has an even
 * number of one bits: 0, 3, 5, 6, 9, ... That is half of them, and half of every second, fourth
 * and eighth one, so that lengths and masks which alternate in a file are in both halves.
 *
 * A kind of attention has two constants: its time is `value` times its price, P, and `start` times
 * what one nanosecond of start takes in all, U. The fit makes the sum of squares of relative errors
 * least; a start below 0 is taken as 0. Keep bits by themselves have the start alone: between their
 * two rows of the fit it predicts the one from the other better than a factor does. */
#include "cli/model_predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_fitted(size_t index)
{
    bool even = true;
    for (; index > 0; index &= index - 1)
        even = !even;
    return even;
}

static cli_holdout_kind *kind_of(cli_validation *v, const cli_validated_row *r)
{
    size_t i = 0;
    while (i < v->kind_count && strcmp(v->kinds[i].name, r->kind) != 0)
        i++;
    if (i == v->kind_count)
        v->kinds[v->kind_count++] = (cli_holdout_kind) { .name = r->kind, .constant = r->constant };
    return &v->kinds[i];
}

/* Seconds of a row with the given constants, without what the measurement adds. */
static int seconds_with(const cli_validation *v, cli_validated_row r, double value, double start,
                        double *seconds)
{
    r.value = value;
    r.start = start;
    CLI_TRY(cli_validate_predict(v, &r));
    *seconds = r.predicted - r.is.overhead_seconds;
    return CLI_OK;
}

static int add_row(const cli_validation *v, const cli_validated_row *r, cli_holdout_kind *kind)
{
    const double measured = r->is.seconds - r->is.overhead_seconds;
    double price, started;
    CLI_TRY(seconds_with(v, *r, 1, 0, &price));
    CLI_TRY(seconds_with(v, *r, 1, 1, &started));
    const double p = price / measured, u = (started - price) / measured;
    kind->pp += p * p;
    kind->pu += p * u;
    kind->uu += u * u;
    kind->p += p;
    kind->u += u;
    return CLI_OK;
}

static void solve(cli_holdout_kind *kind)
{
    const double area = kind->pp * kind->uu - kind->pu * kind->pu;
    if (cli_validate_start_only(kind->constant)) {
        kind->value = 1;
        kind->start = kind->uu > 0 ? fmax((kind->u - kind->pu) / kind->uu, 0) : 0;
        return;
    }
    kind->value = kind->p / kind->pp;
    if (area <= 1e-3 * kind->pp * kind->uu) /* one length only tells nothing of the start */
        return;
    const double start = (kind->u * kind->pp - kind->p * kind->pu) / area;
    if (start <= 0)
        return;
    kind->start = start;
    kind->value = (kind->p * kind->uu - kind->u * kind->pu) / area;
}

/* Divide the rows, and fit the constants. */
static int fit(cli_validation *v)
{
    for (size_t i = 0; i < v->count; i++) {
        cli_validated_row *r = &v->rows[i];
        if (isnan(r->predicted))
            continue;
        cli_holdout_kind *kind = kind_of(v, r);
        r->held_out = !is_fitted(kind->rows++);
        if (r->held_out)
            continue;
        kind->fitted++;
        if (kind->constant)
            CLI_TRY(add_row(v, r, kind));
    }
    for (size_t k = 0; k < v->kind_count; k++)
        if (v->kinds[k].constant)
            solve(&v->kinds[k]);
    return CLI_OK;
}

static void add_error(cli_holdout_kind *kind, const cli_validated_row *r)
{
    const double error = cli_validate_error(r);
    kind->after += fabs(error);
    if (fabs(error) > fabs(kind->worst))
        kind->worst = error;
}

static int make_kinds(cli_validation *v)
{
    v->kind_count = 0;
    v->kinds = calloc(v->count, sizeof *v->kinds);
    return v->kinds ? CLI_OK : cli_out_of_memory();
}

int cli_holdout_kinds(cli_validation *v)
{
    CLI_TRY(make_kinds(v));
    for (size_t i = 0; i < v->count; i++) {
        if (isnan(v->rows[i].predicted))
            continue;
        cli_holdout_kind *kind = kind_of(v, &v->rows[i]);
        kind->rows++;
        add_error(kind, &v->rows[i]);
    }
    return CLI_OK;
}

int cli_holdout_fit(cli_validation *v)
{
    CLI_TRY(make_kinds(v));
    CLI_TRY(fit(v));
    v->fitted = true;
    for (size_t i = 0; i < v->count; i++) {
        cli_validated_row *r = &v->rows[i];
        if (isnan(r->predicted))
            continue;
        cli_holdout_kind *kind = kind_of(v, r);
        const double before = cli_validate_error(r);
        r->value = kind->value;
        r->start = kind->start;
        CLI_TRY(cli_validate_predict(v, r));
        if (!r->held_out)
            continue;
        kind->before += fabs(before);
        add_error(kind, r);
    }
    return CLI_OK;
}

static double held_out(const cli_holdout_kind *kind)
{
    return (double)(kind->rows - kind->fitted);
}

static void print_kinds(const cli_validation *v)
{
    printf("\nkinds of kernels, constants as they stand\n%-20s %8s %12s %8s\n", "kind", "rows",
           "mean error", "worst");
    for (size_t k = 0; k < v->kind_count; k++) {
        const cli_holdout_kind *kind = &v->kinds[k];
        printf("%-20s %8zu %11.1f%% %+7.1f%%\n", kind->name, kind->rows,
               100 * kind->after / held_out(kind), 100 * kind->worst);
    }
}

void cli_holdout_print(const cli_validation *v)
{
    if (!v->fitted) {
        print_kinds(v);
        return;
    }
    printf("\nrows that the fit did not use\n%-20s %8s %8s %10s %9s %12s %12s %8s\n", "kind",
           "fitted", "held out", "constant", "start, ns", "mean before", "mean after", "worst");
    for (size_t k = 0; k < v->kind_count; k++) {
        const cli_holdout_kind *kind = &v->kinds[k];
        printf("%-20s %8zu %8zu", kind->name, kind->fitted, kind->rows - kind->fitted);
        if (kind->constant)
            printf(" %10.4f %9.1f", kind->value, kind->start);
        else
            printf(" %10s %9s", "-", "-");
        if (kind->rows == kind->fitted)
            printf(" %12s %12s %8s\n", "-", "-", "-");
        else
            printf(" %11.1f%% %11.1f%% %+7.1f%%\n", 100 * kind->before / held_out(kind),
                   100 * kind->after / held_out(kind), 100 * kind->worst);
    }
}

void cli_holdout_json(cli_json *json, const cli_validation *v)
{
    cli_json_array(json, v->fitted ? "hold_out" : "kinds");
    for (size_t k = 0; k < v->kind_count; k++) {
        const cli_holdout_kind *kind = &v->kinds[k];
        cli_json_object(json, NULL);
        cli_json_text(json, "kind", kind->name);
        if (v->fitted) {
            cli_json_uint(json, "fitted", kind->fitted);
            cli_json_uint(json, "held_out", kind->rows - kind->fitted);
        } else {
            cli_json_uint(json, "rows", kind->rows);
        }
        if (v->fitted && kind->constant) {
            cli_json_real(json, "constant", kind->value);
            cli_json_real(json, "start_ns", kind->start);
        }
        if (kind->rows > kind->fitted) {
            if (v->fitted)
                cli_json_real(json, "mean_before", kind->before / held_out(kind));
            cli_json_real(json, "mean", kind->after / held_out(kind));
            cli_json_real(json, "worst", kind->worst);
        }
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

int cli_holdout_most(const cli_validation *v, double most)
{
    int status = CLI_OK;
    for (size_t k = 0; k < v->kind_count && isfinite(most); k++) {
        const cli_holdout_kind *kind = &v->kinds[k];
        if (kind->rows == kind->fitted)
            status =
                cli_error(CLI_DIFFERENT, "%s: no row is held out, of %zu", kind->name, kind->rows);
        else if (100 * kind->after / held_out(kind) > most)
            status = cli_error(CLI_DIFFERENT, "%s: mean error %.1f %%, at most %g %% allowed",
                               kind->name, 100 * kind->after / held_out(kind), most);
    }
    return status;
}
