/* model_svg.c: heat maps of a grid as one SVG drawing.
 *
 * Quantities with a middle (a speedup of 1, a gain of 0) are blue above it and red below, white at
 * it, the same distance the same strength. Others go from pale to dark on a logarithmic scale,
 * since memory and time span decades. Every cell says its value, so the colours only guide. */
#include "cli/model_grid.h"
#include "kit/page.h"

#include <math.h>
#include <string.h>

enum {
    CELL_W = 74,
    CELL_H = 34,
    LEFT = 74,
    TOP = 66,
    BOTTOM = 64,
    GAP = 34,
    BAR = 14,
    BAR_GAP = 78
};

typedef struct rgb {
    double r, g, b;
} rgb;

static rgb mix(rgb a, rgb b, double t)
{
    return (rgb) { a.r + (b.r - a.r) * t, a.g + (b.g - a.g) * t, a.b + (b.b - a.b) * t };
}

typedef struct scale {
    double middle; /* NAN: logarithmic */
    double low, high;
} scale;

static double middle_of(const cli_heat *h)
{
    return h->points ? 0 : h->quantity->middle;
}

/* One scale for all maps of a drawing that measure from the same middle, and for measured values
 * and those of the model. */
static scale scale_of(const cli_grid *g, const cli_heat *like)
{
    scale s = { .middle = middle_of(like), .low = INFINITY, .high = -INFINITY };
    for (size_t k = 0; k < g->count; k++) {
        const cli_heat *h = &g->heats[k];
        const double middle = middle_of(h);
        const bool pair = h == like || h->model == like || like->model == h;
        if (!pair && (isnan(middle) || middle != s.middle))
            continue;
        for (size_t i = 0; i < h->x.count * h->y.count; i++) {
            /* fmin() and fmax() ignore cells that were not measured */
            s.low = fmin(s.low, h->cells[i]);
            s.high = fmax(s.high, h->cells[i]);
        }
    }
    if (isnan(s.middle)) {
        if (s.low <= 0) /* no logarithm there */
            s.low = s.high > 0 ? s.high / 1e3 : 1e-3;
        return s;
    }
    const double reach = fmax(fmax(s.high - s.middle, s.middle - s.low), 1e-9);
    s.low = s.middle - reach;
    s.high = s.middle + reach;
    return s;
}

/* Place of a value on the scale, 0 to 1. */
static double place(const scale *s, double value)
{
    const double t = isnan(s->middle)
                         ? log(fmax(value, s->low) / s->low) / fmax(log(s->high / s->low), 1e-9)
                         : (value - s->low) / (s->high - s->low);
    return fmin(fmax(t, 0), 1);
}

static rgb colour(const scale *s, double t)
{
    static const rgb red = { 178, 24, 43 }, pale = { 247, 247, 247 }, blue = { 33, 102, 172 };
    static const rgb cream = { 255, 247, 227 }, green = { 0, 92, 83 };
    if (isnan(s->middle))
        return mix(cream, green, t);
    return t < 0.5 ? mix(red, pale, 2 * t) : mix(pale, blue, 2 * t - 1);
}

/* White letters on dark cells. */
static const char *ink(rgb c)
{
    return 0.3 * c.r + 0.59 * c.g + 0.11 * c.b < 130 ? "#fff" : "#1a1a1a";
}

static void text_at(FILE *out, double x, double y, const char *class, const char *text)
{
    fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    cli_page_escape(out, text);
    fputs("</text>\n", out);
}

/* What a cell says. */
static void label_cell(const cli_heat *h, size_t i, char *label, size_t capacity)
{
    if (isnan(h->cells[i]))
        snprintf(label, capacity, "-");
    else if (h->quantity->decimals == 3)
        snprintf(label, capacity, "%.3g", h->cells[i]);
    else
        snprintf(label, capacity, "%.*f", h->points ? 1 : h->quantity->decimals, h->cells[i]);
}

static void draw_cells(FILE *out, const cli_heat *h, const scale *s)
{
    static const rgb grey = { 225, 225, 225 };
    for (size_t i = 0; i < h->x.count * h->y.count; i++) {
        const size_t x = i % h->x.count, y = i / h->x.count;
        const rgb c = isnan(h->cells[i]) ? grey : colour(s, place(s, h->cells[i]));
        const double left = (double)(x * CELL_W), top = (double)(y * CELL_H);
        char label[40], region[24] = "";
        label_cell(h, i, label, sizeof label);
        if (!h->model)
            snprintf(region, sizeof region, ", region %d", h->regions[i]);
        fprintf(out,
                "<rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" fill=\"rgb(%.0f,%.0f,"
                "%.0f)\"><title>%s %s, %s %s: %s%s</title></rect>\n",
                left, top, CELL_W - 1, CELL_H - 1, c.r, c.g, c.b, h->x.name, h->x.text[x],
                h->y.name, h->y.text[y], isnan(h->cells[i]) ? "not measured" : label, region);
        fprintf(out, "<text class=\"cell\" style=\"fill:%s\" x=\"%.1f\" y=\"%.1f\">%s", ink(c),
                left + CELL_W / 2.0, top + CELL_H / 2.0 + 5, label);
        if (!isnan(s->middle) && !h->points && !h->model)
            fprintf(out, "<tspan class=\"region\" style=\"fill:%s\" dy=\"-5\"> %d</tspan>", ink(c),
                    h->regions[i]);
        fputs("</text>\n", out);
    }
}

/* An axis as a reader would name it. */
static const char *label_of(const cli_axis *axis)
{
    static const char *const labels[][2] = {
        { "seq", "sequence length" },  { "embed", "model width" },
        { "batch", "sequences" },      { "head-dim", "head size" },
        { "rounds", "Philox rounds" }, { "bits", "random bits per element" }
    };
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++)
        if (strcmp(labels[i][0], axis->name) == 0)
            return labels[i][1];
    return axis->name;
}

static void draw_axes(FILE *out, const cli_heat *h)
{
    const double width = (double)(h->x.count * CELL_W), height = (double)(h->y.count * CELL_H);
    for (size_t x = 0; x < h->x.count; x++)
        text_at(out, (double)(x * CELL_W) + CELL_W / 2.0, height + 16, "tick", h->x.text[x]);
    for (size_t y = 0; y < h->y.count; y++)
        text_at(out, -8, (double)(y * CELL_H) + CELL_H / 2.0 + 4, "tick end", h->y.text[y]);
    text_at(out, width / 2, height + 36, "axis", label_of(&h->x));
    fprintf(out, "<text class=\"axis\" transform=\"translate(-50 %.1f) rotate(-90)\">", height / 2);
    cli_page_escape(out, label_of(&h->y));
    fputs("</text>\n", out);
}

static void draw_bar(FILE *out, const cli_heat *h, const scale *s)
{
    enum { STEPS = 32 };
    const double left = (double)(h->x.count * CELL_W) + 18, height = (double)(h->y.count * CELL_H);
    for (int i = 0; i < STEPS; i++) {
        const rgb c = colour(s, 1 - (i + 0.5) / STEPS);
        fprintf(
            out,
            "<rect x=\"%.0f\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" fill=\"rgb(%.0f,%.0f,%.0f)"
            "\"/>\n",
            left, height * i / STEPS, BAR, height / STEPS + 0.5, c.r, c.g, c.b);
    }
    for (int i = 0; i <= 2; i++) {
        const double t = 1 - i / 2.0;
        const double value =
            isnan(s->middle) ? s->low * pow(s->high / s->low, t) : s->low + (s->high - s->low) * t;
        char label[24];
        snprintf(label, sizeof label, "%.3g", value);
        text_at(out, left + BAR + 6,
                height * i / 2.0 + (i == 0   ? 10
                                    : i == 1 ? 4
                                             : 0),
                "bar", label);
    }
}

static double heat_width(const cli_heat *h)
{
    return LEFT + (double)(h->x.count * CELL_W) + BAR_GAP;
}

void cli_grid_svg(FILE *out, const void *what)
{
    const cli_grid *g = what;
    double width = 0, height = 0;
    for (size_t i = 0; i < g->count; i++) {
        width += heat_width(&g->heats[i]) + (i > 0 ? GAP : 0);
        height = fmax(height, (double)(g->heats[i].y.count * CELL_H));
    }
    height += TOP + BOTTOM;
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 "
        "%.0f %.0f\" role=\"img\">\n<title>",
        width, height, width, height);
    cli_page_escape(out, g->title);
    fputs(
        "</title>\n<style>\n"
        ".heat text{font:12px system-ui,sans-serif;fill:#222}.heat .title{font-size:14px;"
        "font-weight:600}\n"
        ".heat .tick{text-anchor:middle}.heat .end{text-anchor:end}.heat .axis{text-anchor:middle;"
        "fill:#555}\n.heat .bar{font-size:11px}.heat .sub{fill:#555}\n"
        ".heat .cell{text-anchor:middle}.heat .region{font-size:8px;opacity:.75}\n"
        "</style>\n<g class=\"heat\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        out);
    text_at(out, 10, 20, "sub", g->title);
    if (!isnan(g->heats[0].quantity->middle) && !g->heats[0].points)
        text_at(out, 10, height - 6, "bar",
                "Small digit: 1 making the bits hides easily under the GEMMs, 2 it hides, 3 it "
                "outlasts "
                "them.");
    double left = 0;
    for (size_t i = 0; i < g->count; i++) {
        const cli_heat *h = &g->heats[i];
        const scale s = scale_of(g, h);
        fprintf(out, "<g transform=\"translate(%.0f %d)\">\n", left + LEFT, TOP);
        text_at(out, 0, -14, "title", h->title);
        draw_cells(out, h, &s);
        draw_axes(out, h);
        draw_bar(out, h, &s);
        fputs("</g>\n", out);
        left += heat_width(h) + GAP;
    }
    fputs("</g>\n</svg>\n", out);
}
