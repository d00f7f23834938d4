/* schedule_chart_svg.c: schedules as a Gantt chart: one panel per order, all on one time axis.
 *
 * Few steps are drawn one by one, with labels. Many are drawn as cells of a pixel or more,
 * so that the size of the file has a bound that does not depend on the schedule. */
#include "cli/schedule_chart_svg.h"

#include <inttypes.h>

enum {
    LEFT = 64,
    RIGHT = 24,
    WIDTH = LEFT + SVG_PLOT + RIGHT,
    TITLE = 48, /* above the lanes of a panel */
    AXIS = 36,  /* below them */
    LEGEND = 56
};

/* Distinguishable, also for most colour-blind readers; red is kept for waiting. */
static const char *const colours[SVG_PALETTE] = { "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1",
                                                  "#76b7b2", "#e0bb2f", "#9c755f", "#5fa8d3",
                                                  "#a6a6a6", "#8cd17d" };

static void write_style(FILE *out)
{
    fputs("<style>\n"
          "text{font:12px system-ui,sans-serif;fill:#333}\n"
          ".title{font-size:15px;font-weight:600}.small{font-size:10px;fill:#777}\n"
          ".label{font-size:9px;fill:#1a1a1a;text-anchor:middle;pointer-events:none}\n"
          ".ground{fill:#fff}.lane{fill:#f3f4f6}.grid{stroke:#d5d8dc;stroke-width:1}\n"
          ".end{stroke:#333;stroke-width:1.5}.bound{stroke:#2166ac;stroke-width:1.5;"
          "stroke-dasharray:5 3}\n"
          ".c{fill-opacity:.5}.w{fill:url(#wait)}.p{fill:#f2b5ae}\n"
          ".critical{fill:none;stroke:#111;stroke-width:1.6}.strip{fill:#111}\n"
          ".tip{fill:none;pointer-events:all}\n",
          out);
    for (int i = 0; i < SVG_PALETTE; i++)
        fprintf(out, ".h%d{fill:%s}", i, colours[i]);
    fputs("\n@media(prefers-color-scheme:dark){text{fill:#ddd}.small{fill:#999}"
          ".label{fill:#fff}.ground{fill:#15181c}.lane{fill:#22262c}.grid{stroke:#3a4048}"
          ".p{fill:#8c3530}.end{stroke:#ddd}.bound{stroke:#6db3f2}.critical{stroke:#fff}.strip{"
          "fill:#fff}}\n"
          "</style>\n"
          "<defs><pattern id=\"wait\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"#f7c6c1\"/>"
          "<rect width=\"2\" height=\"5\" fill=\"#d6453d\"/></pattern></defs>\n",
          out);
}

static double lane_height(int64_t lanes)
{
    return lanes <= 16 ? 22 : lanes <= 32 ? 15 : lanes <= 64 ? 9 : lanes <= 160 ? 5 : 2;
}

/* A round number of units between ticks, for at most a dozen of them. */
static int64_t tick_of(int64_t longest)
{
    for (int64_t tick = 1;; tick *= 10)
        for (int m = 1; m <= 5; m += m == 1 ? 1 : 3)
            if (longest / (tick * m) <= 12 || tick > INT64_MAX / 100)
                return tick * m;
}

static void draw_axis(const cli_panel *p, int64_t longest)
{
    const int64_t tick = tick_of(longest);
    const double bottom = (double)p->lanes * p->lane_height;
    for (int64_t i = 0; i <= longest / tick; i++) {
        const double x = p->scale * (double)(i * tick);
        fprintf(p->out,
                "<path class=\"grid\" d=\"M%.1f 0V%.1f\"/><text class=\"small\" x=\"%.1f\" "
                "y=\"%.1f\" text-anchor=\"middle\">%" PRId64 "</text>\n",
                x, bottom + 4, x, bottom + 16, i * tick);
    }
}

static void draw_lanes(const cli_panel *p)
{
    const double h = p->lane_height;
    const int64_t every = (int64_t)(11 / h) + 1; /* labels must not touch */
    fprintf(p->out, "<rect class=\"lane\" width=\"%d\" height=\"%.1f\"/>\n", SVG_PLOT,
            (double)p->lanes * h);
    for (int64_t lane = 0; lane < p->lanes; lane += every)
        fprintf(p->out,
                "<text class=\"small\" x=\"-6\" y=\"%.1f\" text-anchor=\"end\">%" PRId64
                "</text>\n",
                (double)lane * h + h / 2 + 3, lane * p->stride);
    fprintf(p->out, "<text class=\"small\" x=\"-6\" y=\"-6\" text-anchor=\"end\">worker</text>\n");
}

static void draw_title(const cli_panel *p)
{
    const ordo_timeline_info *info = &p->replay->info;
    fprintf(p->out, "<text class=\"title\" y=\"-24\">%s</text>\n", ordo_order_name(info->order));
    fprintf(p->out,
            "<text x=\"110\" y=\"-24\">makespan %" PRId64 " \302\267 utilization %.1f %% \302\267 "
            "waiting %" PRId64 " \302\267 lower bound %" PRId64,
            info->makespan, 100 * info->utilization, info->stall, info->lower_bound);
    if (info->closed_form >= 0)
        fprintf(p->out, " \302\267 closed form %" PRId64, info->closed_form);
    if (p->stride > 1)
        fprintf(p->out, " \302\267 every %" PRId64 "th worker shown", p->stride);
    fputs("</text>\n", p->out);
}

/* Where the schedule ends, and where no schedule can end before. */
static void draw_ends(const cli_panel *p)
{
    const ordo_timeline_info *info = &p->replay->info;
    const double bottom = (double)p->lanes * p->lane_height + 4;
    if (info->lower_bound < info->makespan)
        fprintf(p->out, "<path class=\"bound\" d=\"M%.1f -4V%.1f\"/>\n",
                p->scale * (double)info->lower_bound, bottom);
    fprintf(p->out, "<path class=\"end\" d=\"M%.1f -4V%.1f\"/>\n",
            p->scale * (double)info->makespan, bottom);
}

static void draw_key(FILE *out, int x, const char *class, const char *text)
{
    fprintf(out,
            "<rect x=\"%d\" width=\"22\" height=\"13\" class=\"%s\"/><text x=\"%d\" "
            "y=\"11\">%s</text>\n",
            x, class, x + 28, text);
}

static void draw_legend(FILE *out, const cli_chart *chart, bool cells)
{
    const int64_t heads = chart->schedule.heads;
    const double step = (double)chart->schedule.compute / (double)cli_chart_longest(chart);
    const bool labels = !cells && step * SVG_PLOT >= SVG_LABEL;
    if (!cells) {
        draw_key(out, 0, "h0 c", "compute");
        draw_key(out, 105, "h0", "reduce");
    } else {
        draw_key(out, 0, "h0", "busy");
    }
    draw_key(out, 200, cells ? "p" : "w", "waits for its turn");
    draw_key(out, 355, cells ? "strip" : "critical", "critical path");
    fprintf(out,
            "<path class=\"bound\" d=\"M480 0V14\"/><text x=\"490\" y=\"11\">lower bound</text>"
            "<text x=\"600\" y=\"11\">%s</text>\n",
            labels ? "labels: key tile,query tile" : "");
    fputs("<g transform=\"translate(0 22)\"><text y=\"11\">heads</text>\n", out);
    for (int i = 0; i < SVG_PALETTE && i < heads; i++)
        fprintf(out,
                "<rect x=\"%d\" width=\"22\" height=\"13\" class=\"h%d\"/><text x=\"%d\" "
                "y=\"11\">%d</text>\n",
                50 + 52 * i, i, 76 + 52 * i, i);
    if (heads > SVG_PALETTE)
        fprintf(out, "<text x=\"%d\" y=\"11\">and again in turn</text>\n", 50 + 52 * SVG_PALETTE);
    fputs("</g>\n", out);
}

static cli_panel panel_of(FILE *out, const cli_chart *chart, const cli_replay *replay)
{
    const int64_t workers = replay->info.workers;
    const int64_t stride = (workers + SVG_MOST_LANES - 1) / SVG_MOST_LANES;
    const int64_t lanes = (workers + stride - 1) / stride;
    return (cli_panel) {
        .out = out,
        .replay = replay,
        .schedule = &chart->schedule,
        .lanes = lanes,
        .stride = stride,
        .lane_height = lane_height(lanes),
        .scale = (double)SVG_PLOT / (double)cli_chart_longest(chart),
    };
}

/* Height of all panels; sums steps and lanes up on the way. */
static double measure(const cli_chart *chart, uint64_t *steps, int64_t *lanes)
{
    double height = 0;
    *steps = 0;
    *lanes = 0;
    for (size_t i = 0; i < chart->count; i++) {
        if (chart->replays[i].status != ORDO_OK)
            continue;
        const cli_panel p = panel_of(NULL, chart, &chart->replays[i]);
        height += TITLE + AXIS + (double)p.lanes * p.lane_height;
        *steps += ordo_timeline_step_count(chart->replays[i].timeline);
        *lanes += p.lanes;
    }
    return height;
}

static bool draw_panel(cli_panel *p, double top, bool cells, int64_t columns, int64_t longest)
{
    fprintf(p->out, "<g transform=\"translate(%d %.1f)\">\n", LEFT, top + TITLE);
    draw_title(p);
    draw_lanes(p);
    draw_axis(p, longest);
    const bool drawn = cells ? cli_panel_cells(p, columns) : cli_panel_steps(p);
    draw_ends(p);
    fputs("</g>\n", p->out);
    return drawn;
}

bool cli_chart_svg(FILE *out, const cli_chart *chart)
{
    uint64_t steps;
    int64_t lanes;
    const double panels = measure(chart, &steps, &lanes);
    const int64_t longest = cli_chart_longest(chart);
    const int64_t step = chart->schedule.compute + chart->schedule.reduce;
    /* Steps narrower than two pixels are better shown as cells, however few they are. */
    const bool cells = steps > SVG_MOST_STEPS || longest / (step > 0 ? step : 1) > SVG_PLOT / 2;
    int64_t columns = lanes > 0 ? SVG_MOST_CELLS / lanes : 1;
    columns = columns > SVG_PLOT ? SVG_PLOT : columns < 1 ? 1 : columns;

    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d "
        "%.0f\">\n",
        WIDTH, panels + LEGEND, WIDTH, panels + LEGEND);
    write_style(out);
    fputs("<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n", out);
    double top = 0;
    for (size_t i = 0; i < chart->count; i++) {
        if (chart->replays[i].status != ORDO_OK)
            continue;
        cli_panel p = panel_of(out, chart, &chart->replays[i]);
        if (!draw_panel(&p, top, cells, columns, longest))
            return false;
        top += TITLE + AXIS + (double)p.lanes * p.lane_height;
    }
    fprintf(out, "<g transform=\"translate(%d %.1f)\">\n", LEFT, top + 6);
    draw_legend(out, chart, cells);
    fputs("</g>\n</svg>\n", out);
    return true;
}
