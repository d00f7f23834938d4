/* compare_svg.c: the loss curves of two runs, and a map of layers and steps. */
#include "record/compare.h"

#include "kit/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 1080,
    LEFT = 220, /* labels of layers */
    RIGHT = 20,
    PLOT = WIDTH - LEFT - RIGHT,
    HEIGHT = 300, /* height of the curves */
    TOP = 16,
    BOTTOM = 40,
    MOST_POINTS = 4000,
    MOST_COLUMNS = 420,
    ROW = 14,
    MOST_LABEL = 34 /* characters */
};

static ordo_comparison_step step_at(const cli_comparison *c, int64_t index)
{
    ordo_comparison_step step = ORDO_COMPARISON_STEP_INIT;
    (void)ordo_comparison_step_at(c->comparison, index, &step);
    return step;
}

/* ---- curves ---- */

typedef struct range {
    double low, high;
} range;

static void widen(range *r, double value)
{
    if (isfinite(value)) {
        r->low = fmin(r->low, value);
        r->high = fmax(r->high, value);
    }
}

static double x_of(const cli_comparison *c, int64_t step)
{
    const double span = fmax(1, (double)c->info.last - (double)c->info.first);
    return LEFT + ((double)step - (double)c->info.first) / span * PLOT;
}

static double y_of(const range *r, double value)
{
    return TOP + (r->high - value) / (r->high - r->low) * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(FILE *out, const cli_comparison *c, const range *r)
{
    for (int i = 0; i <= 4; i++) {
        const double value = r->low + (r->high - r->low) * i / 4;
        fprintf(out,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%.4g</text>\n",
                LEFT, y_of(r, value), WIDTH - RIGHT, LEFT - 8, y_of(r, value) + 4, value);
    }
    fprintf(out,
            "<text x=\"%d\" y=\"%d\">step %" PRId64 "</text><text x=\"%d\" y=\"%d\" "
            "text-anchor=\"end\">step %" PRId64 "</text>\n",
            LEFT, HEIGHT - BOTTOM + 20, c->info.first, WIDTH - RIGHT, HEIGHT - BOTTOM + 20,
            c->info.last);
    if (c->info.equal || c->info.step < c->info.first || c->info.step > c->info.last)
        return;
    const double x = x_of(c, c->info.step);
    const bool right = x > LEFT + 0.5 * PLOT; /* where the label would leave the picture */
    fprintf(out,
            "<path stroke=\"#d6453d\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
            "text-anchor=\"%s\">first difference</text>\n",
            x, TOP, HEIGHT - BOTTOM, x + (right ? -4 : 4), TOP + 10, right ? "end" : "start");
}

static void draw_curve(FILE *out, const cli_comparison *c, const range *r, int which)
{
    const int64_t stride = 1 + c->info.steps / MOST_POINTS;
    const char *move = "M";
    fprintf(out, "<path class=\"curve %c\" d=\"", 'a' + which);
    for (int64_t i = 0; i < c->info.steps; i += stride) {
        const ordo_comparison_step s = step_at(c, i);
        const double loss = which ? s.loss_b : s.loss_a;
        if (isfinite(loss))
            fprintf(out, "%s%.1f %.1f", move, x_of(c, s.step), y_of(r, loss));
        move = isfinite(loss) ? "L" : "M";
    }
    fputs("\"/>\n", out);
}

void cli_compare_curves(FILE *out, const cli_comparison *c)
{
    range r = { INFINITY, -INFINITY };
    for (int64_t i = 0; i < c->info.steps; i++) {
        const ordo_comparison_step s = step_at(c, i);
        widen(&r, s.loss_a);
        widen(&r, s.loss_b);
    }
    if (r.low > r.high) {
        fputs("<p>No loss was recorded.</p>\n", out);
        return;
    }
    if (r.low == r.high)
        r.high = r.low + fmax(1e-6, fabs(r.low) * 1e-3);
    fprintf(out, "<svg width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH,
            HEIGHT, WIDTH, HEIGHT);
    draw_axes(out, c, &r);
    draw_curve(out, c, &r, 0);
    draw_curve(out, c, &r, 1);
    fputs("</svg>\n", out);
}

/* ---- the map ---- */

typedef struct layers {
    const char **name; /* first tensor of each */
    size_t *length;    /* length of the layer's part of that name */
    size_t *of;        /* layer of each tensor */
    size_t count;
} layers;

static void free_layers(layers *l)
{
    free((void *)l->name);
    free(l->length);
    free(l->of);
}

/* "h.0.attn.weight" and "h.0.attn.bias" are of the layer "h.0.attn". */
static bool make_layers(layers *l, const cli_comparison *c)
{
    const size_t count = (size_t)c->info.tensors;
    *l = (layers) { (const char **)calloc(count + 1, sizeof *l->name),
                    calloc(count + 1, sizeof *l->length), calloc(count + 1, sizeof *l->of), 0 };
    if (!l->name || !l->length || !l->of)
        return false;
    for (size_t t = 0; t < count; t++) {
        const char *name = ordo_comparison_tensor(c->comparison, (int64_t)t, NULL);
        const char *dot = strrchr(name, '.');
        const size_t length = dot ? (size_t)(dot - name) : strlen(name);
        size_t x = 0;
        while (x < l->count && (l->length[x] != length || strncmp(l->name[x], name, length) != 0))
            x++;
        if (x == l->count) {
            l->name[x] = name;
            l->length[x] = length;
            l->count++;
        }
        l->of[t] = x;
    }
    return true;
}

enum { CELL_THERE = 1, CELL_WEIGHT = 2, CELL_GRADIENT = 4 };

/* One byte per layer and column; a column may hold several steps. */
static unsigned char *make_cells(const cli_comparison *c, const layers *l, int64_t columns)
{
    unsigned char *cells = calloc(l->count * (size_t)columns + 1, 1);
    for (int64_t t = 0; cells && t < c->info.tensors; t++) {
        bool gradient = false;
        (void)ordo_comparison_tensor(c->comparison, t, &gradient);
        for (int64_t i = 0; i < c->info.steps; i++) {
            const ordo_cell cell = ordo_comparison_cell(c->comparison, t, i);
            unsigned char *to =
                &cells[l->of[t] * (size_t)columns + (size_t)(i * columns / c->info.steps)];
            if (cell != ORDO_CELL_ABSENT)
                *to |= CELL_THERE;
            if (cell == ORDO_CELL_DIFFERENT)
                *to |= gradient ? CELL_GRADIENT : CELL_WEIGHT;
        }
    }
    return cells;
}

/* Runs of equal cells are one rectangle. */
static void draw_row(FILE *out, const unsigned char *cells, int64_t columns, double y)
{
    static const char *const classes[] = { "same", "w", "g", "gw" };
    const double width = (double)PLOT / (double)columns;
    for (int64_t x = 0, end; x < columns; x = end) {
        for (end = x + 1; end < columns && cells[end] == cells[x]; end++)
            ;
        if (cells[x] & CELL_THERE)
            fprintf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"/>",
                    classes[cells[x] >> 1], LEFT + width * (double)x, y, width * (double)(end - x),
                    ROW - 2);
    }
}

static void draw_label(FILE *out, const layers *l, size_t layer, double y)
{
    char text[MOST_LABEL + 1];
    const size_t length = l->length[layer];
    size_t skip = length > MOST_LABEL ? length - MOST_LABEL : 0; /* the end tells more */
    while (skip > 0 && skip < length && (l->name[layer][skip] & 0xc0) == 0x80)
        skip++; /* not inside a character */
    memcpy(text, l->name[layer] + skip, length - skip);
    text[length - skip] = '\0';
    fprintf(out, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">", LEFT - 8, y + ROW - 3);
    cli_page_escape(out, text);
    fputs("</text>", out);
}

bool cli_compare_map(FILE *out, const cli_comparison *c)
{
    layers l;
    const int64_t columns = c->info.steps < MOST_COLUMNS ? c->info.steps : MOST_COLUMNS;
    unsigned char *cells = make_layers(&l, c) ? make_cells(c, &l, columns) : NULL;
    const int height = (int)l.count * ROW + 30;
    if (cells && l.count > 0) {
        fprintf(out, "<svg width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH,
                height, WIDTH, height);
        for (size_t x = 0; x < l.count; x++) {
            draw_label(out, &l, x, (double)x * ROW);
            draw_row(out, cells + x * (size_t)columns, columns, (double)x * ROW);
            fputs("\n", out);
        }
        fprintf(out,
                "<text x=\"%d\" y=\"%d\">step %" PRId64 "</text><text x=\"%d\" y=\"%d\" "
                "text-anchor=\"end\">step %" PRId64 "</text>\n</svg>\n",
                LEFT, height - 12, c->info.first, WIDTH - RIGHT, height - 12, c->info.last);
    } else if (cells) {
        fputs("<p>No weights or gradients were recorded.</p>\n", out);
    }
    free_layers(&l);
    free(cells);
    return cells != NULL;
}
