/* verify_report.c: what `ordo verify` compared and found, for people and as JSON. */
#include "attention/verify_report.h"

#include <inttypes.h>

cli_check *cli_verify_add(cli_verify_report *report)
{
    cli_check *c = &report->checks[report->count++];
    *c = (cli_check) { .verdict = CLI_EQUAL };
    return c;
}

cli_verdict cli_verify_verdict(const cli_verify_report *reports, size_t count)
{
    cli_verdict all = CLI_NOT_RUN;
    for (size_t i = 0; i < count; i++)
        if (reports[i].verdict > all)
            all = reports[i].verdict;
    return all;
}

static void print_check(const cli_check *c)
{
    static const char *const verdicts[] = { "not run", "equal", "DIFFERENT" };
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
    cli_executed_text(&r->is);
    fputs("promise   ", stdout);
    cli_levels_text(r->kept);
    puts("digests    XXH64, first run");
    cli_digests_text(r->block.of, NULL);
    printf("compared with the first run          runs   bits\n");
    for (size_t i = 0; i < r->count; i++)
        print_check(&r->checks[i]);
    static const char *const verdicts[] = { "nothing compared", "every bit equal", "DIFFERENT" };
    printf("verified   %" PRId64 " runs, %s, %.3g s\n", r->runs, verdicts[r->verdict], r->seconds);
}

/* null where nothing was compared. */
static void equal_json(cli_json *json, cli_verdict verdict)
{
    if (verdict == CLI_NOT_RUN)
        cli_json_null(json, "equal");
    else
        cli_json_bool(json, "equal", verdict == CLI_EQUAL);
}

static void check_json(cli_json *json, const cli_check *c)
{
    static const char *const verdicts[] = { "not run", "equal", "different" };
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
    cli_executed_json(json, &r->is);
    cli_levels_json(json, "promise", r->kept);
    cli_digests_json(json, "digests", r->block.of, NULL);
    cli_json_array(json, "checks");
    for (size_t i = 0; i < r->count; i++)
        check_json(json, &r->checks[i]);
    cli_json_end_array(json);
    cli_json_int(json, "runs", r->runs);
    equal_json(json, r->verdict);
    cli_json_real(json, "seconds", r->seconds);
}

static void results_json(cli_json *json, const void *what)
{
    const cli_results *results = what;
    equal_json(json, cli_verify_verdict(results->items, results->count));
    cli_results_json(json, results);
}

int cli_verify_show(const cli_json_target *target, const cli_verify_report *reports, size_t count)
{
    const cli_results results = {
        "verify", report_json, print_one, reports, sizeof *reports, count
    };
    return target->on ? cli_report_json(target, results.command, results_json, &results)
                      : cli_report_results(target, &results);
}
