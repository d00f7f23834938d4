/* model_holdout.c: constants fitted to half of the measured rows, and the errors of the other half.
 *
 * Rows of a kind are numbered in the order of the file. Row i is used by the fit if i has an even
 * number of one bits: 0, 3, 5, 6, 9, ... That is half of them, and half of every second, fourth
 * and eighth one, so that lengths and masks which alternate in a file are in both halves.
 *
 * The fitted constant is its value times the geometric mean of measured over predicted times. */
#include "lab/model_predict.h"

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
        v->kinds[v->kind_count++] =
            (cli_holdout_kind) { .name = r->kind, .constant = r->constant, .value = r->value };
    return &v->kinds[i];
}

/* Divide the rows, and fit the constants. */
static void fit(cli_validation *v)
{
    for (size_t i = 0; i < v->count; i++) {
        cli_validated_row *r = &v->rows[i];
        if (isnan(r->predicted))
            continue;
        cli_holdout_kind *kind = kind_of(v, r);
        if (is_fitted(kind->rows++)) {
            const double extra = r->is.overhead_seconds;
            kind->log_ratios += log((r->is.seconds - extra) / (r->predicted - extra));
            kind->fitted++;
        } else {
            r->held_out = true;
        }
    }
    for (size_t k = 0; k < v->kind_count; k++) {
        cli_holdout_kind *kind = &v->kinds[k];
        if (kind->constant)
            kind->value *= exp(kind->log_ratios / (double)kind->fitted);
    }
}

int cli_holdout_fit(cli_validation *v)
{
    v->kind_count = 0;
    v->kinds = calloc(v->count, sizeof *v->kinds);
    if (!v->kinds)
        return cli_out_of_memory();
    fit(v);
    for (size_t i = 0; i < v->count; i++) {
        cli_validated_row *r = &v->rows[i];
        if (isnan(r->predicted))
            continue;
        cli_holdout_kind *kind = kind_of(v, r);
        const double before = cli_validate_error(r);
        r->value = kind->value;
        CLI_TRY(cli_validate_predict(v, r));
        if (!r->held_out)
            continue;
        const double error = cli_validate_error(r);
        kind->before += fabs(before);
        kind->after += fabs(error);
        if (fabs(error) > fabs(kind->worst))
            kind->worst = error;
    }
    return CLI_OK;
}

static double held_out(const cli_holdout_kind *kind)
{
    return (double)(kind->rows - kind->fitted);
}

void cli_holdout_print(const cli_validation *v)
{
    printf("\nrows that the fit did not use\n%-20s %8s %8s %10s %12s %12s %8s\n", "kind", "fitted",
           "held out", "constant", "mean before", "mean after", "worst");
    for (size_t k = 0; k < v->kind_count; k++) {
        const cli_holdout_kind *kind = &v->kinds[k];
        printf("%-20s %8zu %8zu", kind->name, kind->fitted, kind->rows - kind->fitted);
        if (kind->constant)
            printf(" %10.4f", kind->value);
        else
            printf(" %10s", "-");
        if (kind->rows == kind->fitted)
            printf(" %12s %12s %8s\n", "-", "-", "-");
        else
            printf(" %11.1f%% %11.1f%% %+7.1f%%\n", 100 * kind->before / held_out(kind),
                   100 * kind->after / held_out(kind), 100 * kind->worst);
    }
}

void cli_holdout_json(cli_json *json, const cli_validation *v)
{
    cli_json_array(json, "hold_out");
    for (size_t k = 0; k < v->kind_count; k++) {
        const cli_holdout_kind *kind = &v->kinds[k];
        cli_json_object(json, NULL);
        cli_json_text(json, "kind", kind->name);
        cli_json_uint(json, "fitted", kind->fitted);
        cli_json_uint(json, "held_out", kind->rows - kind->fitted);
        if (kind->constant)
            cli_json_real(json, "constant", kind->value);
        if (kind->rows > kind->fitted) {
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
