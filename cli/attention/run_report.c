/* run_report.c: what one run gave, for people and as JSON. */
#include "attention/run_report.h"

#include "kit/problem_args.h"

#include <inttypes.h>

static void print_digests(const cli_run_report *r, const cli_digests *digests)
{
    for (int i = 0; i < CLI_OUTPUTS; i++)
        if (r->has[i])
            printf("  %-8s %016" PRIx64 "\n", cli_output_name((cli_output)i), digests->of[i]);
}

static void print_one(const void *report)
{
    const cli_run_report *r = report;
    char text[512];
    cli_problem_describe(&r->problem, text, sizeof text);
    printf("problem    %s\nbackend    %s", text, ordo_backend_name(r->backend));
    if (r->threads > 0)
        printf(", %" PRId64 " threads", r->threads);
    printf("\nseed       %" PRIu64 ", offset %" PRIu64 "\n", r->seed, r->offset);
    if (r->dropout_mode)
        printf("dropout    %s\n", r->dropout_mode);
    printf("plan       %s\n", r->line);
    printf("digests    XXH64%s\n", r->differs ? ", DIFFERENT from the first run" : "");
    print_digests(r, &r->digests[0]);
    for (int64_t s = 0; s < r->sequences; s++) {
        printf("sequence %" PRId64 "\n", s);
        print_digests(r, &r->digests[s + 1]);
    }
    printf("time       forward %.4g s", r->forward_s);
    if (r->backward_s >= 0)
        printf(", backward %.4g s", r->backward_s);
    puts("");
}

static void digests_json(cli_json *json, const char *key, const cli_run_report *r,
                         const cli_digests *digests)
{
    cli_json_object(json, key);
    for (int i = 0; i < CLI_OUTPUTS; i++) {
        char hex[24];
        snprintf(hex, sizeof hex, "%016" PRIx64, digests->of[i]);
        if (r->has[i])
            cli_json_text(json, cli_output_name((cli_output)i), hex);
    }
    cli_json_end_object(json);
}

static void seconds_json(cli_json *json, const char *key, double seconds)
{
    if (seconds >= 0)
        cli_json_real(json, key, seconds);
    else
        cli_json_null(json, key);
}

static void report_json(cli_json *json, const void *report)
{
    const cli_run_report *r = report;
    cli_problem_json(json, "problem", &r->problem);
    cli_json_text(json, "backend", ordo_backend_name(r->backend));
    if (r->threads > 0)
        cli_json_int(json, "threads", r->threads);
    else
        cli_json_null(json, "threads");
    cli_json_text(json, "dropout_mode", r->dropout_mode);
    cli_json_uint(json, "seed", r->seed);
    cli_json_uint(json, "offset", r->offset);
    cli_json_text(json, "line", r->line);
    digests_json(json, "digests", r, &r->digests[0]);
    if (r->sequences > 0) {
        cli_json_array(json, "sequences");
        for (int64_t s = 0; s < r->sequences; s++)
            digests_json(json, NULL, r, &r->digests[s + 1]);
        cli_json_end_array(json);
    }
    cli_json_bool(json, "differs", r->differs);
    seconds_json(json, "forward_s", r->forward_s);
    seconds_json(json, "backward_s", r->backward_s);
}

int cli_run_show(const cli_json_wish *wish, const cli_run_report *reports, size_t count)
{
    return cli_report_results(
        wish, &(cli_results) { "run", report_json, print_one, reports, sizeof *reports, count });
}
