/* schedule_chart_bars.c: the lanes of an SVG chart: steps one by one, or time in cells. */
#include "cli/schedule_chart_svg.h"

#include <inttypes.h>

enum { MOST_TIPS = 1500 };

static double bar_top(const cli_panel *p, const ordo_timeline_step *s, int lane)
{
    const int64_t row = s->worker / p->stride;
    const double top = (double)row * p->lane_height;
    return lane == 0 ? top : top + p->lane_height * 0.6;
}

static double bar_height(const cli_panel *p, int lane)
{
    const double gap = p->lane_height > 8 ? 2 : p->lane_height > 4 ? 1 : 0;
    const double share = p->schedule->overlap == 0 ? 1 : lane == 0 ? 0.6 : 0.4;
    return p->lane_height * share - gap;
}

static void draw_bar(void *context, const ordo_timeline_step *s, const cli_interval *interval)
{
    const cli_panel *p = context;
    if (interval->part != p->part || s->worker % p->stride != 0)
        return;
    const double x = p->scale * (double)interval->begin;
    const double w = p->scale * (double)(interval->end - interval->begin);
    const double y = bar_top(p, s, interval->lane), h = bar_height(p, interval->lane);
    fprintf(p->out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" class=\"", x, y, w,
            h);
    if (interval->part == CLI_WAIT)
        fputs("w\"/>\n", p->out);
    else
        fprintf(p->out, "h%d%s\"/>\n", s->head % SVG_PALETTE,
                interval->part == CLI_COMPUTE ? " c" : "");
    if (interval->part == CLI_COMPUTE && w >= SVG_LABEL && h >= 11)
        fprintf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"label\">%d,%d</text>\n", x + w / 2,
                y + h / 2 + 3, (int)s->key, (int)s->query);
}

static void draw_frame(void *context, const ordo_timeline_step *s, const cli_interval *interval)
{
    const cli_panel *p = context;
    if (!interval->critical || s->worker % p->stride != 0)
        return;
    fprintf(p->out,
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" class=\"critical\"/>\n",
            p->scale * (double)interval->begin, bar_top(p, s, interval->lane),
            p->scale * (double)(interval->end - interval->begin), bar_height(p, interval->lane));
}

/* The tooltip of a step. */
static void draw_tips(const cli_panel *p)
{
    const uint64_t count = ordo_timeline_step_count(p->replay->timeline);
    for (uint64_t i = 0; i < count; i++) {
        ordo_timeline_step s;
        if (ordo_timeline_step_at(p->replay->timeline, i, &s) != ORDO_OK ||
            s.worker % p->stride != 0)
            continue;
        fprintf(
            p->out,
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" class=\"tip\"><title>head "
            "%d, key tile %d, query tile %d, turn %d: compute from %" PRId64 ", reduce %" PRId64
            " to %" PRId64 "</title></rect>\n",
            p->scale * (double)s.begin, bar_top(p, &s, 0), p->scale * (double)(s.end - s.begin),
            p->lane_height, (int)s.head, (int)s.key, (int)s.query, (int)s.turn, s.begin, s.start,
            s.end);
    }
}

bool cli_panel_steps(cli_panel *p)
{
    for (int part = CLI_COMPUTE; part <= CLI_REDUCE; part++) {
        p->part = (cli_part)part;
        if (!cli_chart_walk(p->replay, p->schedule, draw_bar, p))
            return false;
    }
    if (!cli_chart_walk(p->replay, p->schedule, draw_frame, p))
        return false;
    if (ordo_timeline_step_count(p->replay->timeline) <= MOST_TIPS)
        draw_tips(p);
    return true;
}

/* The class of a cell: a colour of the palette, SVG_PALETTE for waiting, -1 for nothing. */
static int cell_class(const cli_cells *cells, int64_t row, int64_t column)
{
    const cli_state state = cli_cells_state(cells, row, column);
    if (state == CLI_IDLE)
        return -1;
    return state == CLI_STALLED ? SVG_PALETTE
                                : cells->cells[row * cells->columns + column].head % SVG_PALETTE;
}

/* One path for all runs of cells of one class; SVG_PALETTE + 1 stands for the critical path. */
static void draw_runs(const cli_panel *p, const cli_cells *cells, int class, int top, int height)
{
    for (int64_t row = 0; row < cells->rows; row++) {
        const cli_cell *c = cells->cells + row * cells->columns;
        const int64_t y = (int64_t)((double)row * p->lane_height) + top;
        for (int64_t x = 0, from = -1; x <= cells->columns; x++) {
            const bool in =
                x < cells->columns &&
                (class > SVG_PALETTE ? c[x].critical : cell_class(cells, row, x) == class);
            if (in && from < 0)
                from = x;
            if (!in && from >= 0) {
                fprintf(p->out, "M%" PRId64 " %" PRId64 "h%" PRId64 "v%dh-%" PRId64 "z", from, y,
                        x - from, height, x - from);
                from = -1;
            }
        }
    }
}

bool cli_panel_cells(cli_panel *p, int64_t columns)
{
    cli_cells cells;
    const double width = (double)SVG_PLOT / p->scale / (double)columns;
    if (!cli_cells_make(&cells, p->replay, p->schedule, SVG_MOST_LANES, columns, width))
        return false;
    const int height = (int)p->lane_height - (p->lane_height > 4);
    const int strip = height > 5 ? 2 : 1;
    fprintf(p->out, "<g transform=\"scale(%.6f 1)\">\n", (double)SVG_PLOT / (double)columns);
    for (int class = 0; class <= SVG_PALETTE + 1; class ++) {
        char name[16] = "p";
        if (class < SVG_PALETTE)
            snprintf(name, sizeof name, "h%d", class);
        fprintf(p->out, "<path class=\"%s\" d=\"", class > SVG_PALETTE ? "strip" : name);
        if (class > SVG_PALETTE)
            draw_runs(p, &cells, class, (height - strip) / 2, strip);
        else
            draw_runs(p, &cells, class, 0, height);
        fputs("\"/>\n", p->out);
    }
    fputs("</g>\n", p->out);
    cli_cells_free(&cells);
    return true;
}
