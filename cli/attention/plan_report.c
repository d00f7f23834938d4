/* plan_report.c: everything about a plan, for people and as JSON. */
#include "attention/plan_report.h"

#include "kit/message.h"
#include "kit/plan_args.h"
#include "kit/problem_args.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void print_order(const ordo_plan_info *info)
{
    printf("order          %s", ordo_order_name(info->order));
    if (info->order_asked != info->order)
        printf(" (asked: %s)", ordo_order_name(info->order_asked));
    cli_group_text(info->group);
    printf("\nissue          %s", ordo_issue_name(info->issue));
    if (info->issue == ORDO_ISSUE_KEY)
        printf(", section of %" PRId64 " heads", info->section);
    printf(", %s, %" PRId64 " workers\n", ordo_assign_name(info->assign), info->workers);
    if (info->coresident > 0)
        printf("residency      %" PRId64 " chains must run at the same time\n", info->coresident);
    else
        puts("residency      waits only on work issued earlier");
}

static void print_time(double ns)
{
    const double unit = ns < 1e6 ? 1e3 : ns < 1e9 ? 1e6 : 1e9;
    printf("%.4g %s", ns / unit, ns < 1e6 ? "us" : ns < 1e9 ? "ms" : "s");
}

static void print_predicted(const cli_plan_report *r)
{
    const cli_forecast *f = &r->forecast;
    fputs("predicted      ", stdout);
    if (!f->priced) {
        puts("unknown");
        return;
    }
    fputs("forward ", stdout);
    print_time(f->forward_ns);
    printf(", bound by %s; backward ", f->forward_limiter);
    print_time(f->backward_ns);
    printf(", bound by %s, workers busy %.1f %%\n", f->backward_limiter, 100 * f->utilization);
}

static void print_mode(const cli_plan_report *r)
{
    printf("dropout mode   %s", ordo_dropout_mode_name(r->info.dropout_mode));
    if (r->info.dropout_mode == ORDO_DROPOUT_MODE_FUSED) {
        puts(": each pass makes its keep bits");
        return;
    }
    if (r->info.segments > 0) {
        printf(", %" PRId64 " segments of rows: each pass makes its keep bits, %" PRIu64
               " of %" PRIu64 " B in memory\n",
               r->info.segments, r->info.segment_bytes, r->info.keep_bits_bytes);
        return;
    }
    if (r->info.dropout_mode == ORDO_DROPOUT_MODE_PIPELINED) {
        printf(": %" PRIu64 " B of keep bits; expected --segments or --keep-bits-memory\n",
               r->info.keep_bits_bytes);
        return;
    }
    printf(", %s: make the keep bits %s (%" PRIu64 " B",
           r->info.keep_bits_reused ? "keep" : "regenerate",
           r->info.keep_bits_reused ? "once" : "before each pass", r->info.keep_bits_bytes);
    if (r->forecast.priced) {
        fputs(", ", stdout);
        print_time(r->forecast.rng_ns);
        printf(", bound by %s", r->forecast.rng_limiter);
    }
    puts("), or overlapped with other work");
}

/* Why the form of the backward pass: of those with five products and kernels for this head size,
 * the one that moves the fewest bytes. */
static void print_form(const cli_plan_report *r)
{
    const cli_forecast *f = &r->forecast;
    const bool chain = r->info.backward_form == ORDO_FORM_CHAIN; /* counted as phase */
    const char *form = ordo_form_name(r->info.backward_form);
    printf("backward form  %s", form);
    if (!f->counted) {
        puts("");
        return;
    }
    if (strcmp(chain ? ordo_form_name(ORDO_FORM_PHASE) : form, f->fewest) == 0)
        fputs(", which moves the fewest", stdout);
    else
        printf("; %s has no kernels for this head size, but moves fewer", f->fewest);
    printf(" bytes per score between L2 and shared memory: flash %.0f, phase %.0f; apart %.0f "
           "with seven products\n",
           f->flash_bytes, f->phase_bytes, f->apart_bytes);
}

static void print_one(const void *report)
{
    const cli_plan_report *r = report;
    const ordo_plan_info *info = &r->info;
    char text[512];
    cli_problem_describe(&r->problem, text, sizeof text);
    printf("problem        %s\nbackend        %s\n", text, ordo_backend_name(info->backend));
    printf("tiles          forward %" PRId64 "x%" PRId64 ", backward %" PRId64 "x%" PRId64 "\n",
           info->forward_tile.q, info->forward_tile.k, info->backward_tile.q,
           info->backward_tile.k);
    printf("tile counts    %" PRId64 " query x %" PRId64 " key, backward\n", info->query_tiles,
           info->key_tiles);
    print_order(info);
    printf("workspace      forward %" PRIu64 " B, backward %" PRIu64 " B\n",
           info->forward_workspace_bytes, info->backward_workspace_bytes);
    fputs("keeps         ", stdout);
    cli_levels_text(info->kept);
    fputs("does not keep ", stdout);
    cli_levels_text(info->not_kept);
    if (r->problem.dropout.p > 0)
        printf("dropout        p %.17g of %g asked, %d rounds, %d bits, keep below %d\n",
               info->dropout_p_used, r->problem.dropout.p, info->dropout_rounds, info->dropout_bits,
               info->dropout_threshold);
    if (cli_lab())
        print_predicted(r);
    if (r->advised && r->problem.dropout.p > 0)
        print_mode(r);
    if (info->backend == ORDO_BACKEND_CUDA)
        print_form(r);
    if (r->checked)
        printf("checked        %" PRIu64 " tile pairs, each once, turns without holes\n", r->pairs);
    printf("numeric key    %s\n", info->numeric_key);
    printf("forward key    %s\n", info->forward_key);
    if (info->note[0] != '\0')
        printf("note           %s\n", info->note);
    printf("line           %s\n", r->line);
    if (r->memory)
        cli_lab()->memory_text(r->memory, &r->problem);
}

static void print_row(const cli_plan_report *r)
{
    const ordo_problem *p = &r->problem;
    const ordo_plan_info *info = &r->info;
    char tile[48], predicted[32] = "unknown";
    printf("%6" PRId64 " %6" PRId64 " %8" PRId64 " %5" PRId64 "  ", p->batch, p->heads, p->q_len,
           p->head_dim);
    if (r->status != ORDO_OK) {
        printf("refused: %s\n", r->why);
        return;
    }
    snprintf(tile, sizeof tile, "%" PRId64 "x%" PRId64, info->backward_tile.q,
             info->backward_tile.k);
    if (r->forecast.priced)
        snprintf(predicted, sizeof predicted, "%.4g", r->forecast.backward_ns / 1000);
    printf("%-10s %-12s %-6s %12" PRIu64 " %13s", tile, ordo_order_name(info->order),
           ordo_issue_name(info->issue), info->backward_workspace_bytes, predicted);
    if (r->checked)
        printf("  %" PRIu64 " pairs", r->pairs);
    puts("");
}

static void print_rows(const cli_plan_report *reports, size_t count)
{
    printf("%6s %6s %8s %5s  %-10s %-12s %-6s %12s %13s\n", "batch", "heads", "seq", "dim", "tile",
           "order", "issue", "workspace B", "predicted us");
    for (size_t i = 0; i < count; i++)
        print_row(&reports[i]);
}

void cli_plan_lines(const cli_plan_report *reports, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (reports[i].line)
            puts(reports[i].line);
}

static void tile_json(cli_json *json, const char *key, ordo_tile tile)
{
    cli_json_object(json, key);
    json->compact = json->depth;
    cli_json_int(json, "q", tile.q);
    cli_json_int(json, "k", tile.k);
    cli_json_end_object(json);
}

static void order_json(cli_json *json, const ordo_plan_info *info)
{
    cli_json_text(json, "order", ordo_order_name(info->order));
    cli_json_text(json, "order_asked", ordo_order_name(info->order_asked));
    cli_group_json(json, info->group);
    cli_json_text(json, "issue", ordo_issue_name(info->issue));
    cli_json_int(json, "section", info->section);
    cli_json_text(json, "assign", ordo_assign_name(info->assign));
    cli_json_int(json, "workers", info->workers);
    cli_json_int(json, "coresident", info->coresident);
}

static void dropout_json(cli_json *json, const ordo_plan_info *info)
{
    cli_json_object(json, "dropout");
    cli_json_int(json, "rounds", info->dropout_rounds);
    cli_json_int(json, "bits", info->dropout_bits);
    cli_json_int(json, "threshold", info->dropout_threshold);
    cli_json_real(json, "p_used", info->dropout_p_used);
    cli_json_text(json, "mode", ordo_dropout_mode_name(info->dropout_mode));
    cli_json_bool(json, "keep_bits_reused", info->keep_bits_reused);
    cli_json_uint(json, "keep_bits_bytes", info->keep_bits_bytes);
    cli_json_int(json, "segments", info->segments);
    cli_json_uint(json, "segment_bytes", info->segment_bytes);
    cli_json_end_object(json);
}

static void kernel_json(cli_json *json, const char *key, double ns, const char *limiter)
{
    cli_json_object(json, key);
    cli_json_real(json, "ns", ns);
    cli_json_text(json, "limiter", limiter);
    cli_json_end_object(json);
}

static void price_json(cli_json *json, const cli_plan_report *r)
{
    const cli_forecast *f = &r->forecast;
    cli_json_real(json, "predicted_ns", f->priced ? round(f->backward_ns) : NAN);
    if (!f->priced) {
        cli_json_null(json, "model");
        return;
    }
    cli_json_object(json, "model");
    kernel_json(json, "forward", f->forward_ns, f->forward_limiter);
    kernel_json(json, "backward", f->backward_ns, f->backward_limiter);
    cli_json_real(json, "utilization", f->utilization);
    if (r->problem.dropout.p > 0) {
        kernel_json(json, "rng", f->rng_ns, f->rng_limiter);
        cli_json_text(json, "dropout_mode", ordo_dropout_mode_name(r->info.dropout_mode));
        cli_json_text(json, "backward_bits", r->info.keep_bits_reused ? "keep" : "regenerate");
    }
    cli_json_end_object(json);
}

static void bytes_json(cli_json *json, const cli_forecast *f)
{
    cli_json_object(json, "bytes_per_score");
    cli_json_real(json, "flash", f->flash_bytes);
    cli_json_real(json, "apart", f->apart_bytes);
    cli_json_real(json, "phase", f->phase_bytes);
    cli_json_real(json, "phase_hbm", f->phase_hbm_bytes);
    cli_json_text(json, "fewest", f->fewest);
    cli_json_end_object(json);
}

static void report_json(cli_json *json, const void *report)
{
    const cli_plan_report *r = report;
    const ordo_plan_info *info = &r->info;
    cli_problem_json(json, "problem", &r->problem);
    if (r->status != ORDO_OK) {
        cli_json_text(json, "error", ordo_status_name(r->status));
        cli_json_text(json, "message", r->why);
        return;
    }
    cli_json_text(json, "backend", ordo_backend_name(info->backend));
    tile_json(json, "forward_tile", info->forward_tile);
    tile_json(json, "backward_tile", info->backward_tile);
    cli_json_text(json, "backward_form", ordo_form_name(info->backward_form));
    cli_json_int(json, "query_tiles", info->query_tiles);
    cli_json_int(json, "key_tiles", info->key_tiles);
    order_json(json, info);
    cli_json_uint(json, "forward_workspace_bytes", info->forward_workspace_bytes);
    cli_json_uint(json, "backward_workspace_bytes", info->backward_workspace_bytes);
    cli_json_uint(json, "workspace_bytes", r->workspace);
    cli_levels_json(json, "kept", info->kept);
    cli_levels_json(json, "not_kept", info->not_kept);
    dropout_json(json, info);
    price_json(json, r);
    if (r->forecast.counted)
        bytes_json(json, &r->forecast);
    if (r->checked)
        cli_json_uint(json, "pairs_checked", r->pairs);
    cli_json_text(json, "numeric_key", info->numeric_key);
    cli_json_text(json, "forward_key", info->forward_key);
    cli_json_text(json, "note", info->note);
    cli_json_text(json, "line", r->line);
    if (r->memory)
        cli_lab()->memory_json(json, r->memory, &r->problem);
}

int cli_plan_show(const cli_json_target *target, const cli_plan_report *reports, size_t count)
{
    const cli_results results = { "plan", report_json, print_one, reports, sizeof *reports, count };
    if (target->on || count == 1)
        return cli_report_results(target, &results);
    print_rows(reports, count);
    return CLI_OK;
}
