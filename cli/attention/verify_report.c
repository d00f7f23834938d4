/* verify_report.c: what `ordo verify` compared and found, for people and as JSON. */
#include "attention/verify_report.h"

#include "kit/problem_args.h"

#include <inttypes.h>

enum { LEVELS = 5 };

static void print_check(const cli_check *c)
{
    static const char *const verdicts[] = { "equal", "DIFFERENT", "not run" };
    printf("  %-34s %5" PRId64 "   %s", c->name, c->runs, verdicts[c->verdict]);
    if (c->verdict == CLI_NOT_RUN)
        printf(": %s", c->note);
    else if (c->verdict == CLI_DIFFERS)
        printf("\n      %s", c->note);
    puts("");
}

static void print_one(const void *report)
{
    const cli_verify_report *r = report;
    char text[512];
    cli_problem_describe(&r->problem, text, sizeof text);
    printf("problem    %s\nbackend    %s\n", text, ordo_backend_name(r->backend));
    printf("seed       %" PRIu64 ", offset %" PRIu64 "\n", r->seed, r->offset);
    if (r->dropout_mode)
        printf("dropout    %s\n", r->dropout_mode);
    printf("plan       %s\npromise   ", r->block.line);
    for (int i = 0; i < LEVELS; i++)
        if (r->kept & 1u << i)
            printf(" %s", ordo_promise_name((ordo_promise)(1 << i)));
    const int64_t count = r->workers ? r->workers : r->threads;
    printf("\ndigests    XXH64, first run, %" PRId64 " %s%s\n", count,
           r->workers ? "worker" : "thread", count == 1 ? "" : "s");
    for (int i = 0; i < CLI_OUTPUTS; i++)
        printf("  %-8s %016" PRIx64 "\n", cli_output_name((cli_output)i), r->block.of[i]);
    printf("compared with the first run          runs   bits\n");
    for (size_t i = 0; i < r->count; i++)
        print_check(&r->checks[i]);
    printf("verified   %" PRId64 " runs, %s, %.3g s\n", r->runs,
           r->differs ? "DIFFERENT" : "every bit equal", r->seconds);
}

static void check_json(cli_json *json, const cli_check *c)
{
    static const char *const verdicts[] = { "equal", "different", "not run" };
    cli_json_object(json, NULL);
    cli_json_text(json, "name", c->name);
    cli_json_int(json, "runs", c->runs);
    cli_json_text(json, "bits", verdicts[c->verdict]);
    cli_json_text(json, "note", *c->note ? c->note : NULL);
    if (c->located)
        cli_difference_json(json, "difference", &c->difference);
    else
        cli_json_null(json, "difference");
    cli_json_end_object(json);
}

static void report_json(cli_json *json, const void *report)
{
    const cli_verify_report *r = report;
    cli_problem_json(json, "problem", &r->problem);
    cli_json_text(json, "backend", ordo_backend_name(r->backend));
    cli_json_text(json, "dropout_mode", r->dropout_mode);
    cli_json_uint(json, "seed", r->seed);
    cli_json_uint(json, "offset", r->offset);
    cli_json_text(json, "line", r->block.line);
    cli_json_array(json, "promise");
    for (int i = 0; i < LEVELS; i++)
        if (r->kept & 1u << i)
            cli_json_text(json, NULL, ordo_promise_name((ordo_promise)(1 << i)));
    cli_json_end_array(json);
    cli_json_object(json, "digests");
    for (int i = 0; i < CLI_OUTPUTS; i++) {
        char hex[24];
        snprintf(hex, sizeof hex, "%016" PRIx64, r->block.of[i]);
        cli_json_text(json, cli_output_name((cli_output)i), hex);
    }
    cli_json_end_object(json);
    cli_json_array(json, "checks");
    for (size_t i = 0; i < r->count; i++)
        check_json(json, &r->checks[i]);
    cli_json_end_array(json);
    cli_json_int(json, "runs", r->runs);
    cli_json_bool(json, "equal", !r->differs);
    cli_json_real(json, "seconds", r->seconds);
}

static void results_json(cli_json *json, const void *what)
{
    const cli_results *results = what;
    const cli_verify_report *reports = results->items;
    bool equal = true;
    for (size_t i = 0; i < results->count; i++)
        equal = equal && !reports[i].differs;
    cli_json_bool(json, "equal", equal);
    cli_results_json(json, results);
}

int cli_verify_show(const cli_json_wish *wish, const cli_verify_report *reports, size_t count)
{
    const cli_results results = {
        "verify", report_json, print_one, reports, sizeof *reports, count
    };
    return wish->on ? cli_report_json(wish, results.command, results_json, &results)
                    : cli_report_results(wish, &results);
}
