/* schedule_ranks.c: `ordo schedule --ranks`: simulate attention over ranks, price the methods, draw
 * them. */
#include "cli/schedule_ranks.h"

#include "cli/schedule_chart.h"
#include "kit/args.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/report.h"
#include "ordo/machine.h"
#include "ordo/status.h"

#include <inttypes.h>
#include <string.h>

#define MOST      (INT64_C(1) << 32)
#define MOST_RATE 1e9

typedef struct request {
    int64_t ranks, seq, batch, heads, kv_heads, dim;
    int mask, layout, method, dtype;
    const char *machine;
    double link_gbs, link_us, tflops;
    bool ascii;
    const char *svg, *html, *trace;
    cli_json_target json;
} request;

/* ---- the problem ---- */

static int value_of(const ordo_machine *machine, const char *key, const char *option, double *value)
{
    if (ordo_machine_get(machine, key, value) == ORDO_OK)
        return CLI_OK;
    return cli_usage("%s: missing; machine %s does not give %s", option, ordo_machine_name(machine),
                     key);
}

/* Rates that are not given come from the machine. */
static int read_rates(const request *r, ordo_rank_problem *p, const ordo_machine *machine)
{
    double clock, workers, rate, efficiency, link;
    p->flop_per_s = r->tflops * 1e12;
    p->link_bytes_per_s = r->link_gbs * 1e9;
    p->link_ns = r->link_us * 1e3;
    if (r->tflops == 0) {
        const char *key = r->dtype == 1 ? "mma_flop_per_clk_f32" : "mma_flop_per_clk_bf16";
        CLI_TRY(value_of(machine, "clock_ghz", "--tflops", &clock));
        CLI_TRY(value_of(machine, "workers", "--tflops", &workers));
        CLI_TRY(value_of(machine, key, "--tflops", &rate));
        CLI_TRY(value_of(machine, "mma_efficiency", "--tflops", &efficiency));
        p->flop_per_s = clock * 1e9 * workers * rate * efficiency;
    }
    if (r->link_gbs == 0) {
        CLI_TRY(value_of(machine, "nvlink_bytes_per_s", "--link-gbs", &link));
        p->link_bytes_per_s = link / 2; /* the figure counts both directions */
    }
    return CLI_OK;
}

static int check_rates(const request *r)
{
    const struct {
        const char *name;
        double value;
    } rates[] = { { "--tflops", r->tflops },
                  { "--link-gbs", r->link_gbs },
                  { "--link-us", r->link_us } };
    for (int i = 0; i < 3; i++)
        if (rates[i].value < 0 || rates[i].value > MOST_RATE)
            return cli_usage("%s %g: expected 0 to %g", rates[i].name, rates[i].value, MOST_RATE);
    return CLI_OK;
}

static int make_problem(const request *r, cli_rank_report *report)
{
    ordo_rank_problem *p = &report->problem;
    *p = (ordo_rank_problem)ORDO_RANK_PROBLEM_INIT;
    p->ranks = r->ranks;
    p->rows = r->seq;
    p->batch = r->batch;
    p->heads = r->heads;
    p->kv_heads = r->kv_heads;
    p->head_dim = r->dim;
    p->element_bytes = r->dtype == 1 ? 4 : 2;
    p->mask = r->mask == 1 ? ORDO_MASK_FULL : ORDO_MASK_CAUSAL;
    p->zigzag = r->layout == 0;
    p->record = r->ascii || r->svg || r->html || r->trace;
    CLI_TRY(check_rates(r));
    ordo_machine *machine = NULL;
    CLI_TRY(cli_library(ordo_machine_create(&machine, r->machine)));
    snprintf(report->machine, sizeof report->machine, "%s", ordo_machine_name(machine));
    const int status = read_rates(r, p, machine);
    ordo_machine_destroy(machine);
    return status;
}

static int simulate(const request *r, cli_rank_report *report)
{
    for (int m = 1; m <= ORDO_RANKS_METHODS; m++) {
        if (r->method != 0 && r->method != m)
            continue;
        cli_rank_run *run = &report->runs[report->count++];
        run->info.method = (ordo_rank_method)m;
        const ordo_status status =
            ordo_rank_timeline_create(&run->timeline, &report->problem, run->info.method);
        if (status == ORDO_OK)
            CLI_TRY(cli_library(ordo_rank_timeline_query(run->timeline, &run->info)));
        else if (status == ORDO_ERR_UNSUPPORTED)
            snprintf(run->why, sizeof run->why, "%s", ordo_last_error());
        else
            return cli_library(status);
    }
    if (!cli_rank_best(report))
        return cli_error(CLI_UNSUPPORTED, "%s", report->runs[0].why);
    return CLI_OK;
}

/* ---- the report ---- */

static void print_text(const cli_rank_report *report)
{
    const ordo_rank_problem *p = &report->problem;
    const cli_rank_run *best = cli_rank_best(report);
    printf("simulated: %" PRId64 " ranks, %s, %" PRId64 " x %" PRId64 " rows, %" PRId64 "/%" PRId64
           " heads of %" PRId64 ", %s\n",
           p->ranks, p->zigzag ? "zigzag" : "contiguous", p->batch, p->rows, p->heads,
           p->kv_heads ? p->kv_heads : p->heads, p->head_dim, ordo_mask_name(p->mask));
    printf("a rank (%s): %.0f TFLOP/s in products, link %.1f GB/s each way, %.1f us\n",
           report->machine, p->flop_per_s / 1e12, p->link_bytes_per_s / 1e9, p->link_ns / 1e3);
    printf("%-8s %11s %11s %11s %8s %8s %9s %9s\n", "method", "forward ms", "backward ms",
           "both ms", "/ideal", "busy %", "sent GB", "held GB");
    for (size_t i = 0; i < report->count; i++) {
        const cli_rank_run *run = &report->runs[i];
        const ordo_rank_info *x = &run->info;
        if (!run->timeline) {
            printf("%-8s refused: %s\n", ordo_rank_method_name(x->method), run->why);
            continue;
        }
        printf("%-8s %11.3f %11.3f %10.3f%c %8.3f %8.1f %9.3f %9.3f\n",
               ordo_rank_method_name(x->method), x->forward_ns / 1e6, x->backward_ns / 1e6,
               cli_rank_total_ns(x) / 1e6, run == best ? '*' : ' ',
               cli_rank_total_ns(x) / x->ideal_ns, 100 * x->utilization, x->sent_bytes / 1e9,
               x->memory_bytes / 1e9);
    }
}

static void run_json(cli_json *json, const cli_rank_run *run)
{
    const ordo_rank_info *x = &run->info;
    cli_json_object(json, NULL);
    cli_json_text(json, "method", ordo_rank_method_name(x->method));
    if (!run->timeline) {
        cli_json_text(json, "error", run->why);
    } else {
        cli_json_int(json, "backward_products", x->products);
        cli_json_int(json, "items", x->items);
        cli_json_int(json, "stages", x->stages);
        cli_json_real(json, "forward_ns", x->forward_ns);
        cli_json_real(json, "backward_ns", x->backward_ns);
        cli_json_real(json, "total_ns", cli_rank_total_ns(x));
        cli_json_real(json, "ideal_ns", x->ideal_ns);
        cli_json_real(json, "utilization", x->utilization);
        cli_json_real(json, "sent_bytes", x->sent_bytes);
        cli_json_real(json, "memory_bytes", x->memory_bytes);
    }
    cli_json_end_object(json);
}

static void report_json(cli_json *json, const void *what)
{
    const cli_rank_report *report = what;
    const ordo_rank_problem *p = &report->problem;
    cli_json_bool(json, "simulated", true);
    cli_json_text(json, "machine", report->machine);
    cli_json_int(json, "ranks", p->ranks);
    cli_json_text(json, "layout", p->zigzag ? "zigzag" : "contiguous");
    cli_json_int(json, "rows", p->rows);
    cli_json_real(json, "flop_per_s", p->flop_per_s);
    cli_json_real(json, "link_bytes_per_s", p->link_bytes_per_s);
    cli_json_real(json, "link_ns", p->link_ns);
    cli_json_text(json, "best", ordo_rank_method_name(cli_rank_best(report)->info.method));
    cli_json_array(json, "methods");
    for (size_t i = 0; i < report->count; i++)
        run_json(json, &report->runs[i]);
    cli_json_end_array(json);
}

static int write_report(const request *r, cli_rank_report *report)
{
    const bool taken = cli_json_on_stdout(&r->json) || cli_is_stdout(r->svg) ||
                       cli_is_stdout(r->trace) || cli_is_stdout(r->html);
    if (r->svg)
        CLI_TRY(cli_report_file(r->svg, cli_rank_svg, report));
    if (r->html)
        CLI_TRY(cli_report_file(r->html, cli_rank_html, report));
    if (r->trace)
        CLI_TRY(cli_report_file(r->trace, cli_rank_trace, report));
    if (r->json.on)
        CLI_TRY(cli_report_json(&r->json, "schedule", report_json, report));
    if (taken)
        return CLI_OK;
    print_text(report);
    report->width = cli_terminal_width();
    if (r->ascii)
        cli_rank_ascii(stdout, report);
    return CLI_OK;
}

static int run_request(const request *r)
{
    cli_rank_report report = { 0 };
    const int streams = cli_json_on_stdout(&r->json) + cli_is_stdout(r->svg) +
                        cli_is_stdout(r->trace) + cli_is_stdout(r->html);
    if (streams > 1)
        return cli_usage(
            "expected at most one of --json, --svg, --trace and --html on standard output");
    int status = make_problem(r, &report);
    if (status == CLI_OK)
        status = simulate(r, &report);
    if (status == CLI_OK)
        status = write_report(r, &report);
    for (size_t i = 0; i < report.count; i++)
        ordo_rank_timeline_destroy(report.runs[i].timeline);
    return status;
}

int cli_schedule_ranks(int argc, char **argv)
{
    request r = { .seq = 131072,
                  .batch = 1,
                  .heads = 32,
                  .kv_heads = 8,
                  .dim = 128,
                  .machine = "h200",
                  .link_us = 5 };
    cli_option shape[] = {
        OPT_INT("--ranks", "N", &r.ranks, 1, 4096, "ranks that divide each sequence"),
        OPT_INT("--seq", "N", &r.seq, 1, MOST, "rows of a sequence (default 131072)"),
        OPT_INT("--batch", "N", &r.batch, 1, MOST, "sequences (default 1)"),
        OPT_INT("--heads", "N", &r.heads, 1, MOST, "query heads (default 32)"),
        OPT_INT("--kv-heads", "N", &r.kv_heads, 1, MOST, "key heads (default 8)"),
        OPT_INT("--dim", "N", &r.dim, 1, MOST, "head size (default 128)"),
        OPT_CHOICE("--dtype", "bf16|f32", &r.dtype, "type of the tensors (default bf16)"),
        OPT_CHOICE("--mask", "causal|full", &r.mask, "which keys a row sees (default causal)"),
        OPT_CHOICE("--layout", "zigzag|contiguous", &r.layout, "rows of a rank (default zigzag)"),
        OPT_CHOICE("--method", "all|heads|gather|relay", &r.method, "what to replay (default all)"),
    };
    cli_option rates[] = {
        OPT_TEXT("--machine", "NAME|FILE", &r.machine, "what a rank is (default h200)"),
        OPT_ABOVE("--tflops", "X", &r.tflops,
                  "its rate in matrix products (default the machine's)"),
        OPT_ABOVE("--link-gbs", "X", &r.link_gbs,
                  "GB/s of its link in one direction (default half of NVLink's)"),
        OPT_REAL("--link-us", "X", &r.link_us, "latency of a message in us (default 5)"),
    };
    cli_option outputs[] = {
        OPT_FLAG("--ascii", &r.ascii, "draw the timelines as text, COLUMNS wide"),
        OPT_OUTPUT("--svg", "FILE", &r.svg, "draw the timelines as SVG"),
        OPT_OUTPUT("--html", "FILE", &r.html, "write a page with figures and timelines"),
        OPT_OUTPUT("--trace", "FILE", &r.trace, "write a trace for ui.perfetto.dev"),
        OPT_JSON(&r.json),
    };
    const cli_section sections[] = {
        CLI_SECTION("The problem", shape),
        CLI_SECTION("A rank", rates),
        CLI_SECTION("Output (a FILE of - is standard output)", outputs),
    };
    const cli_syntax syntax = {
        "schedule --ranks N [OPTIONS]",
        "Simulate attention over ranks that divide each sequence, forward and backward: the time\n"
        "of heads, gather and relay, what a rank sends and holds, and how long it computes.",
        sections, 3,
        "  ordo schedule --ranks 8\n"
        "  ordo schedule --ranks 64 --seq 1048576 --link-gbs 50 --link-us 10 --json\n"
        "  ordo schedule --ranks 8 --kv-heads 4 --method relay --svg relay.svg\n"
    };
    int status = CLI_OK;
    return cli_args_read(&syntax, argc, argv, &status) ? run_request(&r) : status;
}
