/* bench_report.c: what `ordo bench` measured, for people and as JSON. */
#include "attention/bench_report.h"

#include "attention/bench_peak.h"
#include "kit/message.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const passes[CLI_PASSES] = { "forward", "backward" };

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

cli_spread cli_spread_of(double *samples, size_t count)
{
    qsort(samples, count, sizeof *samples, ascending);
    return (cli_spread) { samples[count / 4], samples[count / 2], samples[count - 1 - count / 4] };
}

static bool on_device(const cli_bench_report *r)
{
    return r->is.backend == ORDO_BACKEND_CUDA;
}

/* What the peak is. */
static const char *peak_name(const cli_bench_report *r)
{
    return on_device(r) ? "dense products at the clock of the datasheet" : cli_peak_name();
}

/* ---- for people ---- */

static void print_pass(const cli_bench_report *r, int pass)
{
    const cli_spread *s = &r->seconds[pass];
    const double rate = r->flops[pass] / s->median;
    const double unit = on_device(r) ? 1e-12 : 1e-9;
    const cli_output shown = pass == CLI_FORWARD ? CLI_O : CLI_DQ;
    printf("  %-9s %7" PRId64
           " %5zu %11.4g   %9.4g .. %-9.4g %8.4g %9.4g %6.1f %%   %-2s %016" PRIx64 "\n",
           passes[pass], on_device(r) ? r->is.workers : r->is.threads, r->runs[pass],
           s->median * 1e3, s->low * 1e3, s->high * 1e3, rate * unit, r->peak.median * unit,
           r->peak.median > 0 ? 100 * rate / r->peak.median : 0, cli_output_name(shown),
           r->digests[shown]);
}

static void print_bits(const cli_bench_report *r)
{
    const cli_spread *s = &r->bits;
    printf("  %-9s %7s %5zu %11.4g   %9.4g .. %-9.4g %zu bytes made before the passes, %.4g GB/s\n",
           "bits", "", r->bits_runs, s->median * 1e3, s->low * 1e3, s->high * 1e3, r->bits_bytes,
           (double)r->bits_bytes / s->median * 1e-9);
}

static bool same_problem(const cli_bench_report *a, const cli_bench_report *b)
{
    return strcmp(a->is.line, b->is.line) == 0;
}

static void print_text(const cli_bench_report *reports, size_t count)
{
    if (on_device(reports))
        printf("peak: %s; caches flushed before every run; spread: the middle half of them\n",
               peak_name(reports));
    else
        printf("peak: %s on registers, measured between the runs; spread: the middle half of "
               "them\n",
               peak_name(reports));
    for (size_t i = 0; i < count; i++) {
        const cli_bench_report *r = &reports[i];
        char text[512];
        if (i == 0 || !same_problem(r, r - 1)) {
            cli_problem_describe(&r->is.problem, text, sizeof text);
            printf("\n%s; %s; workspace %zu bytes%s%s\n", text, ordo_backend_name(r->is.backend),
                   r->workspace_bytes, r->is.has_dropout ? "; dropout " : "",
                   r->is.has_dropout ? cli_dropout_text(r->is.dropout) : "");
            printf("  %-9s %7s %5s %11s   %-22s %8s %9s %8s   %s\n", "pass",
                   on_device(r) ? "workers" : "threads", "runs", "median ms", "spread ms",
                   on_device(r) ? "TFLOP/s" : "GFLOP/s", "peak", "of peak", "digest");
        }
        for (int pass = 0; pass < CLI_PASSES; pass++)
            if (r->has[pass])
                print_pass(r, pass);
        if (r->bits_runs > 0)
            print_bits(r);
    }
}

/* ---- for programs ---- */

static void spread_json(cli_json *json, const char *key, const cli_spread *s)
{
    cli_json_object(json, key);
    cli_json_real(json, "low", s->low);
    cli_json_real(json, "median", s->median);
    cli_json_real(json, "high", s->high);
    cli_json_end_object(json);
}

static bool is_of(cli_output output, int pass)
{
    return (output == CLI_O || output == CLI_LSE) == (pass == CLI_FORWARD);
}

static void pass_json(cli_json *json, const cli_bench_report *r, int pass)
{
    const double rate = r->flops[pass] / r->seconds[pass].median;
    bool has[CLI_OUTPUTS];
    for (int i = 0; i < CLI_OUTPUTS; i++)
        has[i] = is_of((cli_output)i, pass) && r->digests[i] != 0;
    cli_json_object(json, NULL);
    cli_executed_json(json, &r->is);
    cli_json_text(json, "pass", passes[pass]);
    cli_json_uint(json, "runs", r->runs[pass]);
    spread_json(json, "seconds", &r->seconds[pass]);
    cli_json_real(json, "flops", r->flops[pass]);
    cli_json_real(json, "gflops", rate * 1e-9);
    spread_json(json, "peak_flops", &r->peak);
    cli_json_real(json, "of_peak", r->peak.median > 0 ? rate / r->peak.median : NAN);
    cli_json_uint(json, "workspace_bytes", r->workspace_bytes);
    if (r->bits_runs > 0)
        spread_json(json, "bits_seconds", &r->bits);
    else
        cli_json_null(json, "bits_seconds");
    cli_digests_json(json, "digests", r->digests, has);
    cli_json_end_object(json);
}

static void results_json(cli_json *json, const void *what)
{
    const cli_results *results = what;
    const cli_bench_report *reports = results->items;
    cli_json_text(json, "peak", peak_name(reports));
    cli_json_array(json, "results");
    for (size_t i = 0; i < results->count; i++)
        for (int pass = 0; pass < CLI_PASSES; pass++)
            if (reports[i].has[pass])
                pass_json(json, &reports[i], pass);
    cli_json_end_array(json);
}

int cli_bench_show(const cli_json_target *target, const cli_bench_report *reports, size_t count)
{
    const cli_results results = { .items = reports, .count = count };
    if (target->on)
        return cli_report_json(target, "bench", results_json, &results);
    print_text(reports, count);
    return CLI_OK;
}
