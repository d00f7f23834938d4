/* io_plot.c: words moved, per score or per word of the lower bound, against the size of fast
 * memory, log-log, as SVG. */
#include "cli/io.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 860,
    HEIGHT = 560,
    LEFT = 84,
    RIGHT = 150, /* labels of the curves */
    TOP = 56,
    BOTTOM = 64,
    LABEL_GAP = 15
};

typedef struct plot {
    FILE *out;
    const cli_io_row *rows;
    size_t count;
    double x0, x1, y0, y1; /* log10 of what is shown */
    double d2;             /* square of the head size */
    double scores;
    bool ratio; /* to the bound, instead of words per score */
} plot;

/* The height of a number of words at row i. */
static double scaled(const plot *p, size_t i, double words)
{
    return words / (p->ratio ? p->rows[i].bound.words : p->scores);
}

static double x_of(const plot *p, double m)
{
    return LEFT + (log10(m) - p->x0) / (p->x1 - p->x0) * (WIDTH - LEFT - RIGHT);
}
static double y_of(const plot *p, double words)
{
    return TOP + (p->y1 - log10(words)) / (p->y1 - p->y0) * (HEIGHT - TOP - BOTTOM);
}

static const char *colour_of(ordo_io_algorithm a)
{
    static const char *const colours[ORDO_IO_ALGORITHM_COUNT + 1] = {
        "#333333", "#a6a6a6", "#4e79a7", "#76b7b2", "#5fa8d3", "#f28e2b", "#d6453d", "#59a14f"
    };
    return colours[a];
}

static void set_ranges(plot *p)
{
    double least = INFINITY, most = 0, small = INFINITY, large = 0;
    for (size_t i = 0; i < p->count; i++) {
        const cli_io_row *r = &p->rows[i];
        small = fmin(small, (double)r->problem.cache_words);
        large = fmax(large, (double)r->problem.cache_words);
        if (r->status != ORDO_OK)
            continue;
        least = fmin(least, scaled(p, i, fmin(cli_io_total(r), r->bound.words)));
        most = fmax(most, scaled(p, i, cli_io_total(r)));
    }
    p->x0 = log10(small);
    p->x1 = log10(fmax(large, 2 * small));
    p->y0 = floor(log10(fmax(least, 1e-12)) * 4) / 4;
    p->y1 = ceil(log10(fmax(most, 1e-12)) * 4 + 1.4) / 4; /* room for the labels of marks */
}

/* ---- axes ---- */

static void tick(const plot *p, bool across, double value, bool major)
{
    const double at = across ? x_of(p, value) : y_of(p, value);
    char text[32];
    if (across && value >= 1048576 && fmod(value, 1048576) == 0)
        snprintf(text, sizeof text, "%.0fM", value / 1048576);
    else if (across && value >= 1024)
        snprintf(text, sizeof text, "%.0fk", value / 1024);
    else
        snprintf(text, sizeof text, "%g", value);
    if (across)
        fprintf(p->out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", at, TOP, HEIGHT - BOTTOM);
    else
        fprintf(p->out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, at, WIDTH - RIGHT);
    if (major && across)
        fprintf(p->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", at,
                HEIGHT - BOTTOM + 18, text);
    else if (major)
        fprintf(p->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
                at + 4, text);
}

static void draw_axes(const plot *p)
{
    const double octaves = (p->x1 - p->x0) / log10(2);
    const int every = octaves > 14 ? 2 : 1;
    for (int e = 0; e < 62; e += every) {
        const double v = ldexp(1, e);
        if (log10(v) >= p->x0 - 1e-9 && log10(v) <= p->x1 + 1e-9)
            tick(p, true, v, true);
    }
    for (int e = -12; e < 18; e++)
        for (int m = 1; m <= 5; m += m == 1 ? 1 : 3) {
            const double v = m * pow(10, e);
            if (log10(v) >= p->y0 && log10(v) <= p->y1)
                tick(p, false, v, true);
        }
    fprintf(p->out,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">words of fast memory, M</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 44);
    fprintf(p->out,
            "<text transform=\"translate(24 %d) rotate(-90)\" text-anchor=\"middle\">words moved "
            "%s</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2, p->ratio ? "/ lower bound" : "per score");
}

static void draw_head_size(const plot *p)
{
    if (log10(p->d2) < p->x0 || log10(p->d2) > p->x1)
        return;
    fprintf(p->out,
            "<path class=\"mark\" d=\"M%.1f %dV%d\"/><text class=\"small\" x=\"%.1f\" y=\"%d\">M = "
            "d&#178;</text>\n",
            x_of(p, p->d2), TOP, HEIGHT - BOTTOM, x_of(p, p->d2) + 5, TOP + 14);
}

/* ---- curves ---- */

/* The value of row i for a curve; NaN: no point there. */
static double curve_value(const plot *p, size_t i, int algorithm)
{
    const cli_io_row *r = &p->rows[i];
    if (algorithm == 0) /* the bound: the same at every row of one M */
        return r->status == ORDO_OK && r->bound.words > 0 ? r->bound.words : NAN;
    return r->status == ORDO_OK && (int)r->algorithm == algorithm ? cli_io_total(r) : NAN;
}

/* Where the curve ends: for its label. */
static double draw_curve(const plot *p, int algorithm)
{
    double last = NAN, before = NAN;
    bool open = false;
    for (size_t i = 0; i < p->count; i++) {
        const double v = curve_value(p, i, algorithm), m = (double)p->rows[i].problem.cache_words;
        if (isnan(v) || m == before)
            continue;
        if (!open)
            fprintf(p->out, "<path class=\"%s\" stroke=\"%s\" d=\"",
                    algorithm == 0 ? "bound" : "curve", colour_of((ordo_io_algorithm)algorithm));
        last = y_of(p, scaled(p, i, v));
        fprintf(p->out, "%s%.1f %.1f", open ? "L" : "M", x_of(p, m), last);
        open = true;
        before = m;
    }
    if (open)
        fputs("\"/>\n", p->out);
    return last;
}

/* One form of the bound where it holds, and its name: where it begins, or below its end if that is
 * where curves are not. */
static void draw_bound(const plot *p, int index)
{
    double before = NAN, x = NAN, y = NAN, x_first = NAN, y_first = NAN;
    const char *name = NULL;
    for (size_t i = 0; i < p->count; i++) {
        const double m = (double)p->rows[i].problem.cache_words;
        ordo_io_bound bound;
        if (m == before || ordo_io_bound_at(&p->rows[i].problem, index, &bound) != ORDO_OK)
            continue;
        before = m;
        const double height = scaled(p, i, bound.words);
        if (!bound.holds || log10(fmax(height, 1e-12)) < p->y0)
            continue;
        x = x_of(p, m);
        y = y_of(p, height);
        fprintf(p->out, name ? "L%.1f %.1f" : "<path class=\"form\" d=\"M%.1f %.1f", x, y);
        x_first = name ? x_first : x;
        y_first = name ? y_first : y;
        name = bound.name;
    }
    if (!name)
        return;
    const bool at_end = strcmp(name, "products") == 0;
    const double beside = strcmp(name, "trivial") == 0 ? 84 : 4; /* rows may be close */
    fprintf(p->out,
            "\"/><text class=\"small\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
            at_end ? x - 6 : x_first + beside, at_end ? y + 14 : y_first - 5,
            at_end ? "end" : "start", name);
}

static void draw_labels(const plot *p, const double *ends)
{
    int order[ORDO_IO_ALGORITHM_COUNT + 1], count = 0;
    for (int a = 0; a <= ORDO_IO_ALGORITHM_COUNT; a++)
        if (!isnan(ends[a])) { /* by height, inserted */
            int at = count++;
            for (; at > 0 && ends[order[at - 1]] > ends[a]; at--)
                order[at] = order[at - 1];
            order[at] = a;
        }
    double y = -INFINITY;
    for (int i = 0; i < count; i++) {
        y = fmax(ends[order[i]] + 4, y + LABEL_GAP);
        fprintf(p->out, "<text x=\"%d\" y=\"%.1f\" style=\"fill:%s\">%s</text>\n",
                WIDTH - RIGHT + 8, y, colour_of((ordo_io_algorithm)order[i]),
                order[i] == 0 ? "lower bound"
                              : ordo_io_algorithm_name((ordo_io_algorithm)order[i]));
    }
}

/* ---- the crossover ---- */

static bool is_large(ordo_io_algorithm a)
{
    return a == ORDO_IO_FLASH || a == ORDO_IO_FLASH1 || a == ORDO_IO_APART;
}

/* The first M from which the best of the flash family moves no more than the best of the others. */
static void draw_crossover(const plot *p)
{
    for (size_t i = 0; i < p->count;) {
        double large = INFINITY, small = INFINITY;
        const int64_t m = p->rows[i].problem.cache_words;
        for (; i < p->count && p->rows[i].problem.cache_words == m; i++) {
            const cli_io_row *r = &p->rows[i];
            if (r->status != ORDO_OK || r->algorithm == ORDO_IO_NAIVE)
                continue;
            if (is_large(r->algorithm))
                large = fmin(large, cli_io_total(r));
            else
                small = fmin(small, cli_io_total(r));
        }
        if (large > small || isinf(small))
            continue;
        /* The label stands at the top, where no curve is, away from that of d^2. */
        const double x = x_of(p, (double)m), y = y_of(p, scaled(p, i - 1, large));
        const bool before = (double)m < p->d2;
        fprintf(p->out,
                "<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/><path class=\"mark\" "
                "d=\"M%.1f %.1fV%d\"/><text class=\"small\" x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"%s\">flash from %.2f d&#178;</text>\n",
                x, y, x, y - 6, TOP + 24, x + (before ? -5 : 5), TOP + 32, before ? "end" : "start",
                (double)m / p->d2);
        return;
    }
}

void cli_io_plot(FILE *out, const cli_io_row *rows, size_t count, bool ratio)
{
    const ordo_io_problem *q = &rows[0].problem;
    plot p = { .out = out, .rows = rows, .count = count, .ratio = ratio };
    double ends[ORDO_IO_ALGORITHM_COUNT + 1];
    p.d2 = (double)q->head_dim * (double)q->head_dim;
    p.scores = (double)q->q_len * (double)(q->kv_len ? q->kv_len : q->q_len) *
               (q->heads ? (double)q->heads : 1);
    set_ranges(&p);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\">\n<style>text{font:12px system-ui,sans-serif;fill:#333}"
            ".title{font-size:15px;font-weight:600}.small{font-size:11px;fill:#555}"
            ".grid{stroke:#e3e6ea}.mark{stroke:#888;stroke-dasharray:4 3}"
            ".form{fill:none;stroke:#999;stroke-dasharray:2 3}"
            ".curve{fill:none;stroke-width:2}.bound{fill:none;stroke-width:2;stroke-dasharray:6 "
            "4}.ring{fill:none;stroke:#111;stroke-width:1.6}</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    char model[64] = "explicit model";
    if (strcmp(rows[0].model, "explicit") != 0)
        snprintf(model, sizeof model, "%s cache, tiles for %g M", rows[0].model,
                 rows[0].budget > 0 ? rows[0].budget : 1);
    fprintf(out,
            "<text class=\"title\" x=\"%d\" y=\"28\">Attention %s, n = %lld, d = %lld%s: words "
            "moved%s, %s</text>\n",
            LEFT, ordo_io_pass_name(q->pass), (long long)q->q_len, (long long)q->head_dim,
            q->mask ? ", causal" : "", ratio ? " / lower bound" : "", model);
    draw_axes(&p);
    draw_head_size(&p);
    for (int i = 0; i < ORDO_IO_BOUND_COUNT && !ratio; i++)
        draw_bound(&p, i);
    for (int a = 0; a <= ORDO_IO_ALGORITHM_COUNT; a++)
        ends[a] = draw_curve(&p, a);
    draw_labels(&p, ends);
    draw_crossover(&p);
    fputs("</svg>\n", out);
}
