/* schedule_ranks_draw.c: timelines of ranks as text, SVG, a page and a trace.
 *
 * Each rank has a compute lane and, below it, its link. Of many ranks every n-th is drawn, and
 * spans narrower than a pixel are drawn as one, so that a file has a bound that does not depend on
 * the problem. */
#include "cli/schedule_ranks.h"
#include "kit/page.h"

#include "kit/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 60, PLOT = 1000, LANE = 14, LINK = 6, TITLE = 46, SHOWN = 32 };

static const char *const words[] = { "forward", "backward", "dq", "dk and dv", "exchange" };
static const char letters[] = "fbqk-";
static const char *const colours[] = { "#4e79a7", "#59a14f", "#f28e2b", "#b07aa1", "#9a9a9a" };

double cli_rank_total_ns(const ordo_rank_info *info)
{
    return info->forward_ns + info->backward_ns;
}

const cli_rank_run *cli_rank_best(const cli_rank_report *report)
{
    const cli_rank_run *best = NULL;
    for (size_t i = 0; i < report->count; i++) {
        const cli_rank_run *run = &report->runs[i];
        if (run->timeline &&
            (!best || cli_rank_total_ns(&run->info) < cli_rank_total_ns(&best->info)))
            best = run;
    }
    return best;
}

static int64_t stride_of(const cli_rank_report *report, int64_t most)
{
    return (report->problem.ranks + most - 1) / most;
}

static double longest(const cli_rank_report *report)
{
    double ns = 1;
    for (size_t i = 0; i < report->count; i++)
        if (report->runs[i].timeline && cli_rank_total_ns(&report->runs[i].info) > ns)
            ns = cli_rank_total_ns(&report->runs[i].info);
    return ns;
}

typedef void visit(void *context, const ordo_rank_span *span);

static void each_span(const cli_rank_run *run, visit *see, void *context)
{
    const uint64_t count = ordo_rank_span_count(run->timeline);
    for (uint64_t i = 0; i < count; i++) {
        ordo_rank_span span;
        if (ordo_rank_span_at(run->timeline, i, &span) == ORDO_OK)
            see(context, &span);
    }
}

/* ---- text ---- */

typedef struct cells {
    char *text; /* lanes of `width` */
    int width;
    int64_t stride;
    double scale;
} cells;

static void fill_cells(void *context, const ordo_rank_span *span)
{
    const cells *c = context;
    if (span->rank % c->stride != 0)
        return;
    char *line = c->text + span->rank / c->stride * c->width;
    for (int x = (int)(span->begin_ns * c->scale); x < c->width && x < span->end_ns * c->scale; x++)
        if (span->work != ORDO_WORK_EXCHANGE || line[x] == ' ')
            line[x] = letters[span->work];
}

void cli_rank_ascii(FILE *out, const void *what)
{
    const cli_rank_report *report = what;
    cells c = { .width = report->width - 8, .stride = stride_of(report, SHOWN) };
    const int64_t lanes = (report->problem.ranks + c.stride - 1) / c.stride;
    c.scale = c.width / longest(report);
    c.text = malloc((size_t)lanes * (size_t)c.width);
    for (size_t i = 0; c.text && i < report->count; i++) {
        if (!report->runs[i].timeline)
            continue;
        memset(c.text, ' ', (size_t)lanes * (size_t)c.width);
        each_span(&report->runs[i], fill_cells, &c);
        fprintf(out, "\n%s: f forward, b backward, q dq, k dk and dv, - exchange\n",
                ordo_rank_method_name(report->runs[i].info.method));
        for (int64_t lane = 0; lane < lanes; lane++)
            fprintf(out, "%4" PRId64 " |%.*s|\n", lane * c.stride, c.width,
                    c.text + lane * c.width);
    }
    free(c.text);
}

/* ---- SVG and the page ---- */

typedef struct panel {
    FILE *out;
    double scale;
    int64_t stride;
    double drawn[2 * SHOWN]; /* by lane: up to where */
} panel;

static void draw_span(void *context, const ordo_rank_span *span)
{
    panel *p = context;
    const bool link = span->work == ORDO_WORK_EXCHANGE;
    const int64_t lane = span->rank / p->stride;
    double *drawn = &p->drawn[2 * lane + link];
    const double begin = span->begin_ns * p->scale, end = span->end_ns * p->scale;
    if (span->rank % p->stride != 0 || end < *drawn)
        return;
    const double x = begin > *drawn ? begin : *drawn;
    *drawn = end - x > 1 ? end : x + 1;
    fprintf(p->out,
            "<rect x=\"%.1f\" y=\"%" PRId64 "\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", x,
            lane * (LANE + LINK + 4) + (link ? LANE : 0), *drawn - x, link ? LINK : LANE,
            colours[span->work]);
}

static int64_t panel_height(const cli_rank_report *report)
{
    const int64_t stride = stride_of(report, SHOWN);
    return (report->problem.ranks + stride - 1) / stride * (LANE + LINK + 4) + TITLE;
}

static void draw_panel(FILE *out, const cli_rank_report *report, const cli_rank_run *run)
{
    const ordo_rank_info *x = &run->info;
    panel p = { .out = out, .scale = PLOT / longest(report), .stride = stride_of(report, SHOWN) };
    fprintf(out,
            "<text y=\"-10\"><tspan font-weight=\"600\">%s</tspan> %.3f ms, %.3f of the ideal, "
            "computing %.1f %%</text>\n",
            ordo_rank_method_name(x->method), cli_rank_total_ns(x) / 1e6,
            cli_rank_total_ns(x) / x->ideal_ns, 100 * x->utilization);
    for (int64_t r = 0; r < report->problem.ranks; r += p.stride)
        fprintf(out, "<text x=\"-8\" y=\"%" PRId64 "\" text-anchor=\"end\">%" PRId64 "</text>\n",
                r / p.stride * (LANE + LINK + 4) + LANE - 2, r);
    each_span(run, draw_span, &p);
}

void cli_rank_svg(FILE *out, const void *what)
{
    const cli_rank_report *report = what;
    const int64_t each = panel_height(report);
    int64_t panels = 0, y = TITLE;
    for (size_t i = 0; i < report->count; i++)
        panels += report->runs[i].timeline != NULL;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %" PRId64
            "\" font-family=\"system-ui,sans-serif\" font-size=\"11\" fill=\"#444\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            LEFT + PLOT + 20, panels * each + TITLE);
    for (size_t i = 0; i < report->count; i++) {
        if (!report->runs[i].timeline)
            continue;
        fprintf(out, "<g transform=\"translate(%d %" PRId64 ")\">\n", LEFT, y);
        draw_panel(out, report, &report->runs[i]);
        fputs("</g>\n", out);
        y += each;
    }
    for (int i = 0; i < 5; i++)
        fprintf(out,
                "<rect x=\"%d\" y=\"%" PRId64 "\" width=\"14\" height=\"10\" fill=\"%s\"/>"
                "<text x=\"%d\" y=\"%" PRId64 "\">%s</text>\n",
                LEFT + 120 * i, y - TITLE + 20, colours[i], LEFT + 120 * i + 20, y - TITLE + 29,
                words[i]);
    fputs("</svg>\n", out);
}

void cli_rank_html(FILE *out, const void *what)
{
    const cli_rank_report *report = what;
    const ordo_rank_problem *p = &report->problem;
    cli_page_start(out, "Attention over ranks, simulated", "");
    fprintf(out,
            "<h1>Attention over ranks, simulated</h1>\n<p>%" PRId64 " ranks (%s), %" PRId64
            " x %" PRId64 " rows, %" PRId64 " heads, %" PRId64
            " key heads. %.0f TFLOP/s, %.1f GB/s, %.1f us. No figure here is measured.</p>\n"
            "<table><tr><th>method</th><th>forward ms</th><th>backward ms</th><th>/ ideal</th>"
            "<th>computing %%</th><th>sent GB</th><th>held GB</th></tr>\n",
            p->ranks, report->machine, p->batch, p->rows, p->heads, p->kv_heads,
            p->flop_per_s / 1e12, p->link_bytes_per_s / 1e9, p->link_ns / 1e3);
    for (size_t i = 0; i < report->count; i++) {
        const cli_rank_run *run = &report->runs[i];
        const ordo_rank_info *x = &run->info;
        if (run->timeline)
            fprintf(out,
                    "<tr%s><td>%s</td><td>%.3f</td><td>%.3f</td><td>%.3f</td><td>%.1f</td>"
                    "<td>%.3f</td><td>%.3f</td></tr>\n",
                    run == cli_rank_best(report) ? " class=\"best\"" : "",
                    ordo_rank_method_name(x->method), x->forward_ns / 1e6, x->backward_ns / 1e6,
                    cli_rank_total_ns(x) / x->ideal_ns, 100 * x->utilization, x->sent_bytes / 1e9,
                    x->memory_bytes / 1e9);
        else
            fprintf(out, "<tr><td>%s</td><td class=\"text\" colspan=\"6\">%s</td></tr>\n",
                    ordo_rank_method_name(x->method), run->why);
    }
    fputs("</table>\n<div class=\"chart\">\n", out);
    cli_rank_svg(out, report);
    fputs("</div>\n</body>\n</html>\n", out);
}

/* ---- trace ---- */

typedef struct trace {
    cli_json json;
    int method;
} trace;

static void trace_span(void *context, const ordo_rank_span *span)
{
    trace *t = context;
    cli_json_object(&t->json, NULL);
    t->json.compact = t->json.depth;
    cli_json_text(&t->json, "name", words[span->work]);
    cli_json_text(&t->json, "ph", "X");
    cli_json_int(&t->json, "pid", t->method);
    cli_json_int(&t->json, "tid", 2 * span->rank + (span->work == ORDO_WORK_EXCHANGE));
    cli_json_real(&t->json, "ts", span->begin_ns / 1e3);
    cli_json_real(&t->json, "dur", (span->end_ns - span->begin_ns) / 1e3);
    cli_json_end_object(&t->json);
}

static void name_lane(trace *t, const char *kind, int64_t tid, const char *name)
{
    cli_json_object(&t->json, NULL);
    t->json.compact = t->json.depth;
    cli_json_text(&t->json, "name", kind);
    cli_json_text(&t->json, "ph", "M");
    cli_json_int(&t->json, "pid", t->method);
    cli_json_int(&t->json, "tid", tid);
    cli_json_object(&t->json, "args");
    cli_json_text(&t->json, "name", name);
    cli_json_end_object(&t->json);
    cli_json_end_object(&t->json);
}

void cli_rank_trace(FILE *out, const void *what)
{
    const cli_rank_report *report = what;
    trace t = { .json = { .out = out } };
    cli_json_object(&t.json, NULL);
    cli_json_array(&t.json, "traceEvents");
    for (size_t i = 0; i < report->count; i++) {
        const cli_rank_run *run = &report->runs[i];
        if (!run->timeline)
            continue;
        t.method = (int)run->info.method;
        name_lane(&t, "process_name", 0, ordo_rank_method_name(run->info.method));
        for (int64_t lane = 0; lane < 2 * report->problem.ranks; lane++) {
            char name[48];
            snprintf(name, sizeof name, "rank %" PRId64 "%s", lane / 2, lane % 2 ? " link" : "");
            name_lane(&t, "thread_name", lane, name);
        }
        each_span(run, trace_span, &t);
    }
    cli_json_end_array(&t.json);
    cli_json_end_object(&t.json);
    fputc('\n', out);
}
