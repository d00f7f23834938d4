/* model_ratios.c: ratios of blocks in two dropout modes, predicted and measured.
 *
 * A ratio does not depend on how fast the board was on the day of the run, so that it says more of
 * the model than single times do. */
#include "cli/model_predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS_MOST = 512 };

/* The same block, but for the mode. */
static bool same_block(const cli_measured_row *a, const cli_measured_row *b)
{
    return strcmp(a->kernel, b->kernel) == 0 && strcmp(a->precision, b->precision) == 0 &&
           strcmp(a->generator, b->generator) == 0 && strcmp(a->mask, b->mask) == 0 &&
           strcmp(a->state, b->state) == 0 && a->causal == b->causal && a->seq == b->seq &&
           a->embed == b->embed && a->batch == b->batch && a->head_dim == b->head_dim &&
           a->rounds == b->rounds && a->bits == b->bits && strcmp(a->placement, b->placement) == 0;
}

static bool is_block(const cli_validated_row *r, const char *mode)
{
    return (strcmp(r->is.kernel, "block") == 0 || strcmp(r->is.kernel, "training") == 0 ||
            strcmp(r->is.kernel, "part") == 0) &&
           strcmp(r->is.mode, mode) == 0;
}

static const cli_validated_row *in_mode(const cli_validation *t, const cli_validated_row *like,
                                        const char *mode)
{
    for (size_t i = 0; i < t->count; i++)
        if (is_block(&t->rows[i], mode) && same_block(&t->rows[i].is, &like->is))
            return &t->rows[i];
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

cli_ratios cli_validate_ratios(const cli_validation *t, const char *base)
{
    cli_ratios r = { .base = base };
    double measured[PAIRS_MOST], predicted[PAIRS_MOST], sum = 0, squares = 0;
    for (size_t i = 0; i < t->count && r.count < PAIRS_MOST; i++) {
        const cli_validated_row *beside = &t->rows[i];
        const cli_validated_row *other =
            is_block(beside, "overlapped") ? in_mode(t, beside, base) : NULL;
        if (!other)
            continue;
        const double error =
            other->predicted / beside->predicted / (other->is.seconds / beside->is.seconds) - 1;
        measured[r.count] = beside->is.seconds - other->is.seconds;
        predicted[r.count] = beside->predicted - other->predicted;
        r.count++;
        r.absolute += fabs(error);
        sum += error;
        squares += error * error;
    }
    if (r.count == 0)
        return r;
    const double n = (double)r.count;
    r.absolute /= n;
    r.deviation = sqrt(fmax(squares / n - sum / n * sum / n, 0));
    r.measured_seconds = median(measured, r.count);
    r.predicted_seconds = median(predicted, r.count);
    return r;
}

static const char *const bases[] = { "sequential", "fused" };

void cli_ratios_print(const cli_validation *t)
{
    bool first = true;
    for (int i = 0; i < 2; i++) {
        const cli_ratios r = cli_validate_ratios(t, bases[i]);
        if (r.count == 0)
            continue;
        if (first)
            puts("\nratios of blocks, and medians of the differences");
        first = false;
        printf("overlapped over %-10s  %zu blocks, mean error %.1f %%, standard deviation %.3f; "
               "it takes %+.1f us, predicted %+.1f us\n",
               r.base, r.count, 100 * r.absolute, r.deviation, 1e6 * r.measured_seconds,
               1e6 * r.predicted_seconds);
    }
}

int cli_ratios_most(const cli_validation *t, double most)
{
    int status = CLI_OK;
    for (int i = 0; i < 2 && isfinite(most); i++) {
        const cli_ratios r = cli_validate_ratios(t, bases[i]);
        if (r.count > 0 && 100 * r.absolute > most)
            status = cli_error(CLI_DIFFERENT,
                               "overlapped over %s: mean error %.1f %%, at most %g %% allowed",
                               r.base, 100 * r.absolute, most);
    }
    return status;
}

void cli_ratios_json(cli_json *json, const cli_validation *t)
{
    cli_json_object(json, "overlapped_over");
    for (int i = 0; i < 2; i++) {
        const cli_ratios r = cli_validate_ratios(t, bases[i]);
        if (r.count == 0)
            continue;
        cli_json_object(json, r.base);
        cli_json_uint(json, "blocks", r.count);
        cli_json_real(json, "mean", r.absolute);
        cli_json_real(json, "standard_deviation", r.deviation);
        cli_json_real(json, "measured_difference_seconds", r.measured_seconds);
        cli_json_real(json, "predicted_difference_seconds", r.predicted_seconds);
        cli_json_end_object(json);
    }
    cli_json_end_object(json);
}
