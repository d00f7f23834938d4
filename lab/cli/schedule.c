/* schedule.c: `ordo schedule`: replay orders of sums on a timeline, report and draw them. */
#include "cli/schedule.h"
#include "cli/schedule_ranks.h"

#include "cli/lab.h"
#include "kit/args.h"
#include "kit/block_mask.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/plan_args.h"
#include "kit/problem_args.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_REPLAYS = 32, MOST_BLOCKS = 1 << 26 };
#define MOST INT64_C(1000000000)

typedef struct request {
    int mask, assign, issue; /* -1: not given */
    const char *tiles, *order, *group, *ratio, *window, *block_mask;
    int64_t heads, kv_heads, workers, compute, reduce, compute_partial, latency, overlap,
        accumulators, section;
    bool ascii, critical;
    const char *svg, *trace, *html;
    cli_json_target json;
} request;

typedef bool writer(FILE *out, const cli_chart *chart);

static int read_tiles(const char *text, ordo_schedule *s)
{
    if (text == NULL)
        return cli_usage("--tiles: missing; expected key tiles, such as 8 or 8x16");
    if (cli_read_size(text, 1, MOST, &s->key_tiles) ||
        cli_read_pair(text, 'x', 1, MOST, &s->key_tiles, &s->query_tiles))
        return CLI_OK;
    return cli_usage("--tiles %s: expected key tiles, or key tiles x query tiles, such as 8x16",
                     text);
}

static int make_schedule(const request *r, ordo_schedule *s)
{
    CLI_TRY(read_tiles(r->tiles, s));
    CLI_TRY(cli_read_group(r->group, &s->group));
    if (r->ratio && !cli_read_ratio(r->ratio, &s->ratio_num, &s->ratio_den))
        return cli_usage("--ratio %s: expected a positive number such as 1.6 or 8/5", r->ratio);
    if (r->section > 0 && r->issue != ORDO_ISSUE_KEY - 1)
        return cli_usage("--section: expected only with --issue key");
    s->mask = (ordo_mask)r->mask;
    s->kv_heads = r->kv_heads;
    s->window.on = r->window != NULL;
    if (r->window && !cli_read_pair(r->window, ',', -1, MOST, &s->window.left, &s->window.right))
        return cli_usage("--window %s: expected two whole numbers, such as 4,0; -1 = open",
                         r->window);
    s->heads = r->heads;
    s->workers = r->workers > 0 ? r->workers : s->key_tiles;
    s->accumulators = r->accumulators;
    s->issue = (ordo_issue)(r->issue + 1); /* the words stand in the order of the enums */
    s->section = r->section;
    s->assign = (ordo_assign)(r->assign + 1);
    s->compute = r->compute;
    s->reduce = r->reduce;
    s->latency = r->latency;
    s->compute_partial = r->compute_partial;
    s->overlap = r->overlap;
    s->record = r->ascii || r->critical || r->svg || r->trace || r->html;
    return CLI_OK;
}

/* The block mask in key tiles, as one byte per query tile and key tile: a query tile sees what one
 * of its rows does. free() releases `blocks`. */
static int make_blocks(const char *text, ordo_schedule *s, uint8_t **blocks)
{
    const int64_t nk = s->key_tiles;
    const int64_t num = s->ratio_num     ? s->ratio_num
                        : s->query_tiles ? s->query_tiles
                                         : 1; /* query tiles per key tile: num / den */
    const int64_t den = s->ratio_num ? s->ratio_den : s->query_tiles ? nk : 1;
    if (nk > MOST_BLOCKS / num || nk * num > MOST_BLOCKS / nk)
        return cli_usage("--tiles: expected at most 2^26 pairs of tiles with --block-mask");
    const int64_t nq = s->query_tiles ? s->query_tiles : (nk * num + den - 1) / den;
    const int64_t rows = (nq * den + num - 1) / num;
    ordo_block_mask *mask = NULL;
    CLI_TRY(cli_block_mask_make(text, rows, nk, &mask));
    *blocks = calloc((size_t)(nq * nk) + 1, sizeof **blocks);
    for (int64_t i = 0; *blocks && i < nq; i++)
        for (int64_t r = i * den / num; r < rows && r * num < (i + 1) * den; r++)
            if (mask->first[r] <= mask->last[r])
                memset(*blocks + i * nk + mask->first[r], 1,
                       (size_t)mask->last[r] - (size_t)mask->first[r] + 1);
    ordo_block_mask_destroy(mask);
    s->blocks = *blocks;
    return *blocks ? CLI_OK : cli_out_of_memory();
}

/* One name of the list after --order: may stand for one order or for all of them. */
static int add_order(const char *name, const ordo_schedule *schedule, cli_replay *replays,
                     size_t *count)
{
    ordo_order first = 0, last;
    bool chosen = false;
    if (strcmp(name, "all") == 0) {
        first = (ordo_order)1;
        last = (ordo_order)ORDO_ORDER_COUNT;
    } else if (strcmp(name, "auto") == 0) {
        CLI_TRY(cli_library(ordo_schedule_auto(schedule, &first)));
        last = first;
        chosen = true;
    } else {
        CLI_TRY(cli_read_order(name, &first));
        last = first;
    }
    for (int order = (int)first; order <= (int)last; order++) {
        if (*count == MOST_REPLAYS)
            return cli_usage("--order: expected at most %d orders", MOST_REPLAYS);
        replays[(*count)++] = (cli_replay) { .order = (ordo_order)order, .chosen = chosen };
    }
    return CLI_OK;
}

static int add_orders(const char *names, const ordo_schedule *schedule, cli_replay *replays,
                      size_t *count)
{
    int status = CLI_OK;
    while (status == CLI_OK) {
        char name[64];
        const size_t length = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        status = add_order(name, schedule, replays, count);
        if (names[length] == '\0')
            break;
        names += length + 1;
    }
    return status;
}

/* Only these orders have groups; "auto" may stand for any. */
static int check_group(const request *r, const cli_replay *replays, size_t count)
{
    bool grouped = r->group == NULL;
    for (size_t i = 0; i < count; i++)
        grouped |= replays[i].chosen || replays[i].order == ORDO_ORDER_SHIFT ||
                   replays[i].order == ORDO_ORDER_SYMMETRIC;
    return grouped ? CLI_OK : cli_usage("--group: expected only with order shift or symmetric");
}

/* Replay one order. One that cannot run here is noted, and is fatal only on its own. */
static int replay(const ordo_schedule *schedule, cli_replay *r)
{
    ordo_schedule mine = *schedule;
    mine.order = r->order;
    r->status = ordo_timeline_create(&r->timeline, &mine);
    if (r->status == ORDO_OK)
        r->status = ordo_timeline_query(r->timeline, &r->info);
    if (r->status == ORDO_OK)
        return CLI_OK;
    snprintf(r->why, sizeof r->why, "%s", ordo_last_error());
    return r->status == ORDO_ERR_UNSUPPORTED ? CLI_OK : cli_library(r->status);
}

static int replay_all(const ordo_schedule *schedule, cli_replay *replays, size_t count)
{
    size_t good = 0, valid = 0;
    int status = CLI_OK;
    cli_progress_start("replaying");
    for (size_t i = 0; i < count && status == CLI_OK; i++) {
        status = replay(schedule, &replays[i]);
        good += replays[i].status == ORDO_OK;
        valid += replays[i].status == ORDO_OK && replays[i].info.valid;
    }
    cli_progress_stop();
    if (status != CLI_OK)
        return status;
    if (good == 0 && count > 1)
        return cli_error(CLI_UNSUPPORTED, "no order can run this; the first says: %s",
                         replays[0].why);
    if (good == 0)
        return cli_error(CLI_UNSUPPORTED, "%s", replays[0].why);
    return valid == good ? CLI_OK : CLI_FAILED;
}

static int write_file(const char *path, writer *write, const cli_chart *chart)
{
    cli_file file;
    if (path == NULL)
        return CLI_OK;
    int status = cli_file_open(&file, path);
    if (status != CLI_OK)
        return status;
    if (write(file.stream, chart))
        return cli_file_commit(&file);
    cli_file_discard(&file);
    return cli_out_of_memory();
}

/* A step takes some 400 bytes of trace; beyond this no viewer opens it. */
static int check_trace(const char *path, const cli_chart *chart)
{
    const uint64_t most = 2000000;
    uint64_t steps = 0;
    for (size_t i = 0; i < chart->count; i++)
        steps += chart->replays[i].status == ORDO_OK ? chart->replays[i].info.tasks : 0;
    if (path == NULL || steps <= most)
        return CLI_OK;
    return cli_error(CLI_UNSUPPORTED,
                     "--trace %s: %llu steps, expected at most %llu; use fewer heads or orders",
                     path, (unsigned long long)steps, (unsigned long long)most);
}

static int write_report(const request *r, const cli_schedule_report *report)
{
    CLI_TRY(check_trace(r->trace, &report->chart));
    CLI_TRY(write_file(r->svg, cli_chart_svg, &report->chart));
    CLI_TRY(write_file(r->trace, cli_chart_trace, &report->chart));
    CLI_TRY(write_file(r->html, cli_chart_html, &report->chart));
    if (r->json.on)
        CLI_TRY(cli_schedule_json(&r->json, report));
    /* Standard output belongs to one thing only. */
    const bool taken = cli_json_on_stdout(&r->json) || cli_is_stdout(r->svg) ||
                       cli_is_stdout(r->trace) || cli_is_stdout(r->html);
    if (taken)
        return CLI_OK;
    cli_schedule_text(report);
    if (r->ascii && !cli_chart_ascii(stdout, &report->chart, cli_terminal_width()))
        return cli_out_of_memory();
    return CLI_OK;
}

static int check_outputs(const request *r)
{
    const int streams = cli_json_on_stdout(&r->json) + cli_is_stdout(r->svg) +
                        cli_is_stdout(r->trace) + cli_is_stdout(r->html);
    if (streams > 1)
        return cli_usage(
            "expected at most one of --json, --svg, --trace and --html on standard output");
    return CLI_OK;
}

static int run_request(const request *r)
{
    ordo_schedule schedule = ORDO_SCHEDULE_INIT;
    uint8_t *blocks = NULL;
    cli_replay replays[MOST_REPLAYS] = { 0 };
    size_t count = 0;
    int status = check_outputs(r);
    if (status == CLI_OK)
        status = make_schedule(r, &schedule);
    if (status == CLI_OK && r->block_mask)
        status = make_blocks(r->block_mask, &schedule, &blocks);
    if (status == CLI_OK)
        status = add_orders(r->order ? r->order : "auto", &schedule, replays, &count);
    if (status == CLI_OK)
        status = check_group(r, replays, count);
    if (status == CLI_OK)
        status = replay_all(&schedule, replays, count);
    const bool invalid = status == CLI_FAILED && count > 0 && replays[0].status == ORDO_OK;
    if (status == CLI_OK || invalid) {
        const cli_schedule_report report = {
            .chart = { schedule, replays, count },
            .several = count > 1,
            .critical = schedule.record,
        };
        const int written = write_report(r, &report);
        status = written != CLI_OK ? written : status;
    }
    for (size_t i = 0; i < count; i++)
        ordo_timeline_destroy(replays[i].timeline);
    free(blocks);
    return status;
}

/* Whether the timeline is one of ranks: `--ranks N` or `--ranks=N`. */
static bool names_ranks(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--ranks") == 0 || strncmp(argv[i], "--ranks=", 8) == 0)
            return true;
    return false;
}

int cli_schedule(int argc, char **argv)
{
    if (names_ranks(argc, argv))
        return cli_schedule_ranks(argc, argv);
    request r = {
        .assign = -1, .issue = -1, .heads = 1, .compute = 10, .reduce = 5, .compute_partial = 0
    };
    cli_option shape[] = {
        OPT_CHOICE("--mask", cli_mask_words(), &r.mask,
                   "which keys a query row sees (default full)"),
        OPT_TEXT("--tiles", "N[xM]", &r.tiles, "key tiles [x query tiles] per head"),
        OPT_INT("--heads", "N", &r.heads, 1, MOST, "heads (default 1)"),
        OPT_INT("--kv-heads", "N", &r.kv_heads, 1, MOST,
                "key heads; a chain takes all heads of its keys (default --heads)"),
        OPT_TEXT("--window", "L,R", &r.window,
                 "key tiles to the left and right that a row sees; -1 = all"),
        OPT_TEXT("--block-mask", "chunk:N|documents:N,N..|FILE", &r.block_mask,
                 "narrow the mask to chunks, documents or by a file, in key tiles"),
        OPT_INT("--workers", "N", &r.workers, 1, MOST, "workers (default as many as key tiles)"),
        OPT_TEXT("--ratio", "S", &r.ratio, "key rows / query rows of a tile: 2, 8/5"),
        OPT_INT("--compute", "T", &r.compute, 0, MOST,
                "time to compute one tile pair (default 10)"),
        OPT_INT("--compute-partial", "T", &r.compute_partial, 1, MOST,
                "the same for partial tiles (default --compute)"),
        OPT_INT("--reduce", "T", &r.reduce, 0, MOST, "time to add its result to dQ (default 5)"),
        OPT_INT("--latency", "T", &r.latency, 0, MOST,
                "time from one addition to the next to the same tile (default 0)"),
        OPT_INT("--overlap", "N", &r.overlap, 0, MOST,
                "additions that may be pending during the computation (default 0)"),
    };
    cli_option choices[] = {
        OPT_TEXT("--order", "NAME|auto|all", &r.order,
                 "order of the sums, or a list of orders (default auto)"),
        OPT_TEXT("--group", "N|waves", &r.group,
                 "group size of orders shift and symmetric (default waves)"),
        OPT_INT("--accumulators", "N", &r.accumulators, 1, MOST,
                "accumulators per query tile (default 1)"),
        OPT_CHOICE("--assign", "pinned|first-free", &r.assign,
                   "chains on fixed workers, or on the first free one"),
        OPT_CHOICE("--issue", "head|key", &r.issue,
                   "issue order of chains: head by head, or key tile by key tile"),
        OPT_INT("--section", "N", &r.section, 1, MOST,
                "heads per section of --issue key (default all)"),
    };
    cli_option outputs[] = {
        OPT_FLAG("--ascii", &r.ascii, "draw the timeline as text, COLUMNS wide"),
        OPT_OUTPUT("--svg", "FILE", &r.svg, "draw the timeline as SVG"),
        OPT_OUTPUT("--html", "FILE", &r.html, "write a page with figures and the timeline"),
        OPT_OUTPUT("--trace", "FILE", &r.trace, "write a trace for ui.perfetto.dev"),
        OPT_FLAG("--critical", &r.critical, "list the critical path in JSON"),
        OPT_JSON(&r.json),
    };
    const cli_section sections[] = {
        CLI_SECTION("The schedule", shape),
        CLI_SECTION("Choices", choices),
        CLI_SECTION("Output (a FILE of - is standard output)", outputs),
    };
    const cli_syntax syntax = {
        "schedule --tiles N[xM] [OPTIONS]",
        "Replay orders of the sums of the backward pass on a timeline, in integer time. Print the\n"
        "makespan, its bounds, the waiting time, and how many chains must run at the same time.\n"
        "`ordo schedule --ranks N` simulates ranks that divide each sequence; it has its own help.",
        sections, 3,
        "  ordo schedule --mask causal --tiles 8 --heads 4 --order symmetric --compute 2 --reduce "
        "2\n"
        "  ordo schedule --mask causal --tiles 8 --heads 4 --order all --ascii\n"
        "  ordo schedule --tiles 16 --heads 8 --order ascending,shift --svg shift.svg\n"
        "  ordo schedule --mask causal --tiles 64 --ratio 2 --heads 32 --workers 132 --overlap 1 "
        "\\\n"
        "                --latency 3 --order all --json\n"
        "  ordo schedule --mask causal --tiles 32 --heads 8 --kv-heads 2 --window 8,0 --order all\n"
        "  ordo schedule --mask causal --tiles 64 --block-mask documents:24,8,32 --order all\n"
    };
    int status = CLI_OK;
    return cli_args_read(&syntax, argc, argv, &status) ? run_request(&r) : status;
}
