/* schedule_print.c: the report of `ordo schedule`, as text and as JSON. */
#include "cli/schedule.h"

#include "kit/plan_args.h"

#include <inttypes.h>

enum { MOST_CRITICAL = 10000 }; /* longer critical paths are counted, not listed */

static const char *edge_name(ordo_edge edge)
{
    return edge == ORDO_EDGE_START ? "start" : edge == ORDO_EDGE_WORKER ? "worker" : "turn";
}

static void print_bound(const ordo_timeline_info *info)
{
    printf("lower bound  %" PRId64 "  (work %" PRId64 ", longest chain %" PRId64 ", turns %" PRId64
           ")\n",
           info->lower_bound, info->bound_work, info->bound_chain, info->bound_turns);
    if (info->closed_form < 0)
        puts("closed form  none for this schedule");
    else
        printf("closed form  %" PRId64 "  (%s)\n", info->closed_form,
               info->closed_form == info->makespan ? "agrees" : "DISAGREES");
}

static void print_one(const cli_replay *r)
{
    const ordo_timeline_info *info = &r->info;
    printf("order        %s", ordo_order_name(info->order));
    if (r->chosen)
        fputs("  (chosen)", stdout);
    else if (info->order_asked != info->order)
        printf("  (asked: %s)", ordo_order_name(info->order_asked));
    printf("\nshape        %" PRId64 " key tiles x %" PRId64 " query tiles, %" PRId64
           " heads, %" PRIu64 " tile pairs\n",
           info->key_tiles, info->query_tiles, info->heads, info->tasks);
    printf("workers      %" PRId64 ", %s, issue %s, accumulators %" PRId64, info->workers,
           ordo_assign_name(info->assign), ordo_issue_name(info->issue), info->accumulators);
    cli_group_text(info->group);
    printf("\nmakespan     %" PRId64 "%s\n", info->makespan,
           info->exact ? "" : "  (extended from fewer heads)");
    print_bound(info);
    printf("utilization  %.1f %%  (busy %" PRId64 ")\n", 100 * info->utilization, info->busy);
    printf("waiting      %" PRId64 "  (%" PRId64 " before a first reduction), %" PRId64
           " at the tail\n",
           info->stall, info->startup, info->tail);
    if (info->coresident > 0)
        printf("resident     %" PRId64 " chains must run at the same time\n", info->coresident);
    else
        puts("resident     waits only on work issued earlier");
    printf("valid        %s\nnumeric key  %s\n", info->valid ? "yes" : "NO", info->numeric_key);
    if (info->note[0] != '\0')
        printf("note         %s\n", info->note);
}

static void print_row(const cli_replay *r, int64_t best)
{
    const ordo_timeline_info *info = &r->info;
    char form[32] = "-";
    if (info->closed_form >= 0)
        snprintf(form, sizeof form, "%" PRId64 "%s", info->closed_form,
                 info->closed_form == info->makespan ? "" : " !");
    printf("%-12s %11" PRId64 "%c %9.3f %11.1f %% %11" PRId64 " %11" PRId64 " %10" PRId64
           " %12s%s\n",
           ordo_order_name(info->order_asked), info->makespan, info->makespan == best ? '*' : ' ',
           info->lower_bound > 0 ? (double)info->makespan / (double)info->lower_bound : 1.0,
           100 * info->utilization, info->stall, info->tail, info->coresident, form,
           info->valid ? "" : "  NOT VALID");
}

static void print_rows(const cli_chart *chart)
{
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < chart->count; i++)
        if (chart->replays[i].status == ORDO_OK && chart->replays[i].info.makespan < best)
            best = chart->replays[i].info.makespan;
    printf("%-12s %11s  %9s %13s %11s %11s %10s %12s\n", "order", "makespan", "/bound",
           "utilization", "waiting", "tail", "resident", "closed form");
    for (size_t i = 0; i < chart->count; i++)
        if (chart->replays[i].status == ORDO_OK)
            print_row(&chart->replays[i], best);
    for (size_t i = 0; i < chart->count; i++) {
        const cli_replay *r = &chart->replays[i];
        if (r->status != ORDO_OK)
            printf("%-12s refused: %s\n", ordo_order_name(r->order), r->why);
        else if (r->info.note[0] != '\0')
            printf("%-12s %s\n", ordo_order_name(r->order), r->info.note);
    }
}

void cli_schedule_text(const cli_schedule_report *report)
{
    if (report->several)
        print_rows(&report->chart);
    else
        print_one(&report->chart.replays[0]);
}

static void critical_json(cli_json *json, const ordo_timeline *timeline)
{
    const uint64_t count = ordo_timeline_critical_count(timeline);
    cli_json_uint(json, "critical_path_length", count);
    if (count > MOST_CRITICAL) {
        cli_json_null(json, "critical_path");
        return;
    }
    cli_json_array(json, "critical_path");
    for (uint64_t i = count; i-- > 0;) { /* the library gives the last step first */
        ordo_critical c;
        ordo_timeline_step s;
        if (ordo_timeline_critical_at(timeline, i, &c) != ORDO_OK ||
            ordo_timeline_step_at(timeline, c.step, &s) != ORDO_OK)
            continue;
        cli_json_object(json, NULL);
        json->compact = json->depth;
        cli_json_int(json, "worker", s.worker);
        cli_json_int(json, "head", s.head);
        cli_json_int(json, "key", s.key);
        cli_json_int(json, "query", s.query);
        cli_json_int(json, "turn", s.turn);
        cli_json_text(json, "edge", edge_name(c.edge));
        cli_json_int(json, "begin", s.begin);
        cli_json_int(json, "ready", s.ready);
        cli_json_int(json, "start", s.start);
        cli_json_int(json, "end", s.end);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

static void choices_json(cli_json *json, const cli_replay *r)
{
    const ordo_timeline_info *info = &r->info;
    cli_json_text(json, "order", ordo_order_name(info->order));
    cli_json_text(json, "order_asked", r->chosen ? "auto" : ordo_order_name(info->order_asked));
    cli_json_text(json, "assign", ordo_assign_name(info->assign));
    cli_json_text(json, "issue", ordo_issue_name(info->issue));
    cli_group_json(json, info->group);
    cli_json_int(json, "accumulators", info->accumulators);
}

static void bounds_json(cli_json *json, const ordo_timeline_info *info)
{
    cli_json_int(json, "makespan", info->makespan);
    cli_json_int(json, "lower_bound", info->lower_bound);
    cli_json_int(json, "bound_work", info->bound_work);
    cli_json_int(json, "bound_chain", info->bound_chain);
    cli_json_int(json, "bound_turns", info->bound_turns);
    if (info->closed_form < 0) {
        cli_json_null(json, "closed_form");
        cli_json_null(json, "closed_form_agrees");
    } else {
        cli_json_int(json, "closed_form", info->closed_form);
        cli_json_bool(json, "closed_form_agrees", info->closed_form == info->makespan);
    }
}

static void replay_json(cli_json *json, const cli_replay *r, bool critical)
{
    const ordo_timeline_info *info = &r->info;
    if (r->status != ORDO_OK) {
        cli_json_text(json, "order", ordo_order_name(r->order));
        cli_json_text(json, "error", ordo_status_name(r->status));
        cli_json_text(json, "message", r->why);
        return;
    }
    choices_json(json, r);
    cli_json_uint(json, "tasks", info->tasks);
    bounds_json(json, info);
    cli_json_bool(json, "exact", info->exact);
    cli_json_real(json, "utilization", info->utilization);
    cli_json_int(json, "busy", info->busy);
    cli_json_int(json, "stall", info->stall);
    cli_json_int(json, "startup", info->startup);
    cli_json_int(json, "tail", info->tail);
    cli_json_int(json, "coresident", info->coresident);
    cli_json_bool(json, "valid", info->valid);
    cli_json_text(json, "numeric_key", info->numeric_key);
    cli_json_text(json, "note", info->note);
    if (critical)
        critical_json(json, r->timeline);
}

static void schedule_json(cli_json *json, const cli_chart *chart)
{
    const ordo_schedule *s = &chart->schedule;
    int64_t query_tiles = s->query_tiles;
    for (size_t i = 0; i < chart->count && query_tiles == 0; i++)
        query_tiles = chart->replays[i].info.query_tiles;
    cli_json_object(json, "schedule");
    cli_json_text(json, "mask", ordo_mask_name(s->mask));
    cli_json_int(json, "key_tiles", s->key_tiles);
    cli_json_int(json, "query_tiles", query_tiles);
    cli_json_int(json, "heads", s->heads);
    cli_json_int(json, "kv_heads", s->kv_heads ? s->kv_heads : s->heads);
    if (s->window.on) {
        cli_json_int(json, "window_left", s->window.left);
        cli_json_int(json, "window_right", s->window.right);
    }
    cli_json_int(json, "workers", s->workers);
    cli_json_int(json, "compute", s->compute);
    cli_json_int(json, "compute_partial", s->compute_partial ? s->compute_partial : s->compute);
    cli_json_int(json, "reduce", s->reduce);
    cli_json_int(json, "latency", s->latency);
    cli_json_int(json, "overlap", s->overlap);
    cli_json_end_object(json);
}

static void replays_json(cli_json *json, const void *what)
{
    const cli_schedule_report *report = what;
    schedule_json(json, &report->chart);
    if (!report->several) {
        replay_json(json, &report->chart.replays[0], report->critical);
        return;
    }
    cli_json_array(json, "orders");
    for (size_t i = 0; i < report->chart.count; i++) {
        cli_json_object(json, NULL);
        replay_json(json, &report->chart.replays[i], report->critical);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

int cli_schedule_json(const cli_json_target *target, const cli_schedule_report *report)
{
    return cli_report_json(target, "schedule", replays_json, report);
}
