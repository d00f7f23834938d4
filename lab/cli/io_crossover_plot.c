/* io_crossover_plot.c: forms of the backward pass over head size, as SVG: bytes per score, and
 * rates at most with those measured. */
#include "cli/io_crossover.h"
#include "kit/page.h"

#include <math.h>

enum { PANEL_W = 380, PANEL_H = 320, LEFT = 70, GAP = 90, TOP = 70, BOTTOM = 70, TICKS = 5 };
enum { WIDTH = 2 * (LEFT + PANEL_W) + GAP, HEIGHT = TOP + PANEL_H + BOTTOM };

static const char *const colours[CLI_FORMS] = { "#4e79a7", "#5fa8d3", "#d6453d" };

typedef struct panel {
    FILE *out;
    const cli_crossover *c;
    double left, top; /* the largest value shown */
} panel;

static double x_of(const panel *p, double head_dim)
{
    const double range = CLI_CROSSOVER_LAST - CLI_CROSSOVER_FIRST;
    return p->left + (head_dim - CLI_CROSSOVER_FIRST) / range * PANEL_W;
}

static double y_of(const panel *p, double value)
{
    return TOP + PANEL_H * (1 - value / p->top);
}

/* The end of an axis of `TICKS` steps of 1, 2, 3 or 5 times a power of ten. */
static double axis_end(double largest)
{
    static const double steps[] = { 1, 2, 3, 5, 10 };
    const double unit = pow(10, floor(log10(fmax(largest, 1) / TICKS)));
    int i = 0;
    while (i < 4 && steps[i] * unit * TICKS < largest)
        i++;
    return steps[i] * unit * TICKS;
}

/* The largest bytes, or the largest rate in TFLOP/s. */
static double largest(const cli_crossover *c, bool rates)
{
    double most = 0;
    for (int i = 0; i < CLI_CROSSOVER_ROWS; i++)
        for (int form = 0; form < CLI_FORMS; form++) {
            const cli_crossover_row *r = &c->rows[i];
            /* fmax() ignores what is not known */
            most = fmax(most, rates ? 1e-12 * fmax(r->most[form], r->measured[form])
                                    : fmax(r->bytes[form], r->counted[form]));
        }
    return most;
}

static void draw_axes(const panel *p, const char *title)
{
    fprintf(p->out, "<text class=\"title\" x=\"%.0f\" y=\"%d\">%s</text>\n", p->left, TOP - 14,
            title);
    for (int i = 0; i <= TICKS; i++) {
        const double value = p->top * i / TICKS;
        fprintf(p->out,
                "<path class=\"grid\" d=\"M%.0f %.1fh%d\"/><text x=\"%.0f\" y=\"%.1f\" "
                "text-anchor=\"end\">%g</text>\n",
                p->left, y_of(p, value), PANEL_W, p->left - 8, y_of(p, value) + 4, value);
    }
    for (int d = CLI_CROSSOVER_FIRST; d <= CLI_CROSSOVER_LAST; d += 64)
        fprintf(p->out,
                "<path class=\"grid\" d=\"M%.1f %dv%d\"/><text x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\">%d</text>\n",
                x_of(p, d), TOP, PANEL_H, x_of(p, d), TOP + PANEL_H + 18, d);
    fprintf(p->out, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">head size</text>\n",
            p->left + PANEL_W / 2.0, TOP + PANEL_H + 40);
}

static void draw_mark(const panel *p, int64_t head_dim, int line, const char *text)
{
    if (head_dim == 0)
        return;
    fprintf(p->out,
            "<path class=\"mark\" d=\"M%.1f %dv%d\"/><text class=\"small\" x=\"%.1f\" y=\"%d\">%s "
            "%lld</text>\n",
            x_of(p, (double)head_dim), TOP, PANEL_H, x_of(p, (double)head_dim) + 4,
            TOP + 12 + 14 * line, text, (long long)head_dim);
}

static void draw_marks(const panel *p, cli_ahead ahead, const char *in_chains, const char *text)
{
    draw_mark(p, ahead.chains, 0, in_chains);
    draw_mark(p, ahead.separate, 1, text);
}

static void draw_curve(const panel *p, int form, bool rates)
{
    if (rates && isnan(p->c->rows[0].most[form]))
        return;
    fprintf(p->out, "<path class=\"curve\" stroke=\"%s\" d=\"", colours[form]);
    for (int i = 0; i < CLI_CROSSOVER_ROWS; i++) {
        const cli_crossover_row *r = &p->c->rows[i];
        const double value = rates ? r->most[form] * 1e-12 : r->bytes[form];
        /* phase: another line where chains end */
        const bool begins =
            i == 0 || (form == CLI_FORM_PHASE && r->chained != p->c->rows[i - 1].chained);
        fprintf(p->out, "%s%.1f %.1f", begins ? "M" : "L", x_of(p, (double)r->head_dim),
                y_of(p, value));
    }
    fputs("\"/>\n", p->out);
}

static void draw_measured(const panel *p, int form, bool rates)
{
    for (int i = 0; i < CLI_CROSSOVER_ROWS; i++) {
        const cli_crossover_row *r = &p->c->rows[i];
        const double value = rates ? r->measured[form] * 1e-12 : r->counted[form];
        if (isnan(value))
            continue;
        fprintf(p->out,
                "<circle class=\"measured\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"%s\"><title>"
                "%s, head size %lld: %.*f %s</title></circle>\n",
                x_of(p, (double)r->head_dim), y_of(p, value), colours[form], cli_form_names[form],
                (long long)r->head_dim, rates ? 0 : 1, value,
                rates ? "TFLOP/s measured" : "bytes per score counted");
    }
}

static void draw_legend(const panel *p)
{
    char more[CLI_FORMS][40] = { "", " (7 products)", "" };
    snprintf(more[CLI_FORM_PHASE], sizeof more[0], " (to %lld in chains)",
             (long long)p->c->chains_last);
    for (int form = 0; form < CLI_FORMS; form++)
        fprintf(p->out, "<text x=\"%d\" y=\"%d\" style=\"fill:%s\">%s%s</text>\n",
                LEFT + 110 * form, HEIGHT - 10, colours[form], cli_form_names[form], more[form]);
    fprintf(p->out, "<text x=\"%d\" y=\"%d\">lines: by the model, rates at most; dots: %s</text>\n",
            LEFT + 420, HEIGHT - 10, p->c->measured || p->c->counted ? "measured" : "not measured");
}

void cli_crossover_svg(FILE *out, const void *what)
{
    const cli_crossover *c = what;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\">\n<style>text{font:12px system-ui,sans-serif;fill:#333}"
            ".title{font-size:14px;font-weight:600}.small{font-size:11px;fill:#555}"
            ".grid{stroke:#e3e6ea}.mark{stroke:#888;stroke-dasharray:4 3}"
            ".curve{fill:none;stroke-width:2}.measured{stroke:#111}</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"24\">",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    cli_page_escape(out, "Forms of the backward pass over head size: ");
    cli_page_escape(out, c->title);
    fputs("</text>\n", out);
    const panel bytes = { out, c, LEFT, axis_end(largest(c, false)) };
    const panel rates = { out, c, LEFT + PANEL_W + GAP, axis_end(largest(c, true)) };
    draw_axes(&bytes, "bytes per score between L2 and shared memory");
    draw_marks(&bytes, c->by_bytes, "chains below flash from", "phase below flash from");
    draw_axes(&rates, "TFLOP/s, five products counted");
    draw_marks(&rates, c->by_rate, "chains above flash from", "phase above flash from");
    for (int form = 0; form < CLI_FORMS; form++) {
        draw_curve(&bytes, form, false);
        draw_curve(&rates, form, true);
    }
    for (int form = 0; form < CLI_FORMS; form++) {
        draw_measured(&bytes, form, false);
        draw_measured(&rates, form, true);
    }
    draw_legend(&rates);
    fputs("</svg>\n", out);
}
