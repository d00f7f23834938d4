/* run_report.c: what one run gave, for people and as JSON. */
#include "attention/run_report.h"

#include <inttypes.h>
#include <math.h>

static void print_one(const void *report)
{
    const cli_run_report *r = report;
    cli_executed_text(&r->is);
    printf("digests    XXH64%s\n", r->differs ? ", DIFFERENT from the first run" : "");
    cli_digests_text(r->digests[0].of, r->has);
    for (int64_t s = 0; s < r->sequences; s++) {
        printf("sequence %" PRId64 "\n", s);
        cli_digests_text(r->digests[s + 1].of, r->has);
    }
    printf("time       forward %.4g s", r->forward_s);
    if (!isnan(r->backward_s))
        printf(", backward %.4g s", r->backward_s);
    puts("");
}

static void report_json(cli_json *json, const void *report)
{
    const cli_run_report *r = report;
    cli_executed_json(json, &r->is);
    cli_digests_json(json, "digests", r->digests[0].of, r->has);
    if (r->sequences > 0) {
        cli_json_array(json, "sequences");
        for (int64_t s = 0; s < r->sequences; s++)
            cli_digests_json(json, NULL, r->digests[s + 1].of, r->has);
        cli_json_end_array(json);
    }
    cli_json_bool(json, "differs", r->differs);
    cli_json_real(json, "forward_s", r->forward_s);
    cli_json_real(json, "backward_s", r->backward_s);
}

int cli_run_show(const cli_json_target *target, const cli_run_report *reports, size_t count)
{
    return cli_report_results(
        target, &(cli_results) { "run", report_json, print_one, reports, sizeof *reports, count });
}
