/* model_grid_report.c: the heat maps of a grid, for people and as JSON. */
#include "cli/model_grid.h"

#include <math.h>
#include <stdlib.h>

static void print_heat(const cli_heat *h)
{
    const int decimals = h->points ? 1 : h->quantity->decimals;
    printf("\n%s\n  %-10s", h->title, h->y.name);
    for (size_t x = 0; x < h->x.count; x++)
        printf(" %12s", h->x.text[x]);
    printf("  %s\n", h->x.name);
    for (size_t y = 0; y < h->y.count; y++) {
        printf("  %-10s", h->y.text[y]);
        for (size_t x = 0; x < h->x.count; x++) {
            const size_t i = y * h->x.count + x;
            if (isnan(h->cells[i]))
                printf(" %8s    ", "-");
            else if (h->model)
                printf(" %*.*f    ", 8, decimals, h->cells[i]);
            else
                printf(" %*.*f (%d)", 8, decimals, h->cells[i], h->regions[i]);
        }
        puts("");
    }
}

static void print_difference(const cli_heat *h)
{
    const cli_difference d = cli_heat_difference(h);
    if (d.count == 0)
        puts("  not measured: the file has no row of these blocks");
    else
        printf("  measured cells: %zu; model minus measurement: mean %+.3f, of absolute values "
               "%.3f, standard deviation %.3f\n",
               d.count, d.mean, d.absolute, d.deviation);
}

void cli_grid_text(const void *what)
{
    const cli_grid *g = what;
    printf("%s\n", g->title);
    for (size_t i = 0; i < g->count; i++) {
        print_heat(&g->heats[i]);
        if (g->heats[i].model)
            print_difference(&g->heats[i]);
    }
    if (g->compares && !g->measured)
        puts("\nmeasured values: not measured; --measured FILE takes them from a file");
}

static void axis_json(cli_json *json, const char *key, const cli_axis *axis)
{
    cli_json_object(json, key);
    cli_json_text(json, "name", axis->name);
    cli_json_array(json, "values");
    for (size_t i = 0; i < axis->count; i++)
        cli_json_text(json, NULL, axis->text[i]);
    cli_json_end_array(json);
    cli_json_end_object(json);
}

static void difference_json(cli_json *json, const cli_heat *h)
{
    const cli_difference d = cli_heat_difference(h);
    cli_json_object(json, "model_minus_measured");
    cli_json_uint(json, "cells", d.count);
    cli_json_real(json, "mean", d.mean);
    cli_json_real(json, "mean_absolute", d.absolute);
    cli_json_real(json, "standard_deviation", d.deviation);
    cli_json_end_object(json);
}

static void heat_json(cli_json *json, const cli_heat *h)
{
    cli_json_object(json, NULL);
    cli_json_text(json, "title", h->title);
    cli_json_text(json, "value", h->quantity->name);
    cli_json_bool(json, "points", h->points);
    cli_json_bool(json, "measured", h->model != NULL);
    if (h->model)
        difference_json(json, h);
    axis_json(json, "x", &h->x);
    axis_json(json, "y", &h->y);
    cli_json_array(json, "cells");
    for (size_t y = 0; y < h->y.count; y++) {
        cli_json_array(json, NULL);
        for (size_t x = 0; x < h->x.count; x++)
            cli_json_real(json, NULL, h->cells[y * h->x.count + x]);
        cli_json_end_array(json);
    }
    cli_json_end_array(json);
    cli_json_array(json, "regions");
    for (size_t y = 0; y < h->y.count; y++) {
        cli_json_array(json, NULL);
        for (size_t x = 0; x < h->x.count; x++)
            cli_json_int(json, NULL, h->regions[y * h->x.count + x]);
        cli_json_end_array(json);
    }
    cli_json_end_array(json);
    cli_json_end_object(json);
}

void cli_grid_fields(cli_json *json, const void *what)
{
    const cli_grid *g = what;
    cli_json_text(json, "title", g->title);
    if (g->figure && g->figure[0] <= '9')
        cli_json_int(json, "figure", strtol(g->figure, NULL, 10));
    else if (g->figure)
        cli_json_text(json, "view", g->figure);
    if (g->measured)
        cli_json_text(json, "measured", g->measured);
    else if (g->compares)
        cli_json_text(json, "measured", "not measured");
    cli_json_array(json, "panels");
    for (size_t i = 0; i < g->count; i++)
        heat_json(json, &g->heats[i]);
    cli_json_end_array(json);
}
