/* io_report.c: `ordo io` as tables and as JSON. */
#include "cli/io.h"
#include "cli/io_tiles.h"
#include "kit/message.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

double cli_io_total(const cli_io_row *row)
{
    return row->counted ? (double)(row->report.loads + row->report.stores)
                        : (double)(row->predicted.loads + row->predicted.stores);
}

typedef struct table {
    const cli_io_row *rows;
    size_t count;
    bool sweep;
} table;

/* ---- text ---- */

static double scores(const ordo_io_problem *p)
{
    const double heads = p->heads ? (double)p->heads : 1;
    return heads * (double)p->q_len * (double)(p->kv_len ? p->kv_len : p->q_len);
}

static void print_traffic(const char *title, const ordo_io_traffic *list, size_t most)
{
    printf("\n%-12s %14s %14s\n", title, "loads", "stores");
    for (size_t i = 0; i < most && list[i].name; i++)
        printf("%-12s %14" PRId64 " %14" PRId64 "\n", list[i].name, list[i].loads, list[i].stores);
}

static void print_row(const cli_io_row *row)
{
    char tiles[96];
    if (row->status != ORDO_OK) {
        printf("%-8s %10" PRId64 "  %s\n", ordo_io_algorithm_name(row->algorithm),
               row->problem.cache_words, row->why);
        return;
    }
    cli_io_tiles_text(row->problem.pass, row->algorithm, &row->tiles, tiles, sizeof tiles);
    printf("%-8s %10" PRId64 " %-18s %14" PRId64 " %14" PRId64 " %10.2f",
           ordo_io_algorithm_name(row->algorithm), row->problem.cache_words, tiles,
           row->counted ? row->report.loads : row->predicted.loads,
           row->counted ? row->report.stores : row->predicted.stores,
           cli_io_total(row) / scores(&row->problem));
    if (row->bound.words > 0)
        printf(" %7.2f", cli_io_total(row) / row->bound.words);
    if (row->counted)
        printf(" %9" PRId64 " %8.1e", row->report.peak, row->report.error);
    putchar('\n');
}

/* M in squares of the head size: below 1, small-cache algorithms are best, in order of growth. */
static double squares(const ordo_io_problem *p)
{
    const double dk = (double)p->head_dim,
                 dv = (double)(p->v_head_dim ? p->v_head_dim : p->head_dim);
    return (double)p->cache_words / (dk * dv);
}

static const char *regime(const ordo_io_problem *p)
{
    return squares(p) < 1 ? "small" : "large";
}

/* Every lower bound, and the fewest words of the rows. */
static void print_bounds(const table *t)
{
    const cli_io_row *first = &t->rows[0];
    double fewest = INFINITY;
    for (size_t i = 0; i < t->count; i++)
        if (t->rows[i].status == ORDO_OK)
            fewest = fmin(fewest, cli_io_total(&t->rows[i]));
    printf("\nregime     %s cache: M = %.3g d^2\n", regime(&first->problem),
           squares(&first->problem));
    printf("%-17s %15s %10s %7s  %s\n", "bound", "words", "per score", "ratio", "holds");
    for (int i = 0; i < ORDO_IO_BOUND_COUNT; i++) {
        ordo_io_bound b;
        if (ordo_io_bound_at(&first->problem, i, &b) != ORDO_OK)
            continue;
        if (b.words > 0)
            printf("%-17s %15.0f %10.2f %7.2f", b.name, b.words, b.words / scores(&first->problem),
                   fewest / b.words);
        else
            printf("%-17s %15s %10s %7s", b.name, "-", "-", "-");
        printf("  %s%s\n", b.valid, strcmp(b.name, first->bound.name) == 0 ? "; the best" : "");
    }
}

static void print_table(const table *t)
{
    const cli_io_row *first = &t->rows[0];
    printf("%s, %s model: words moved, %s\n\n", ordo_io_pass_name(first->problem.pass),
           first->model, first->counted ? "counted in a run" : "in closed form");
    printf("%-8s %10s %-18s %14s %14s %10s %7s %9s %8s\n", "", "M", "tiles", "loads", "stores",
           "per score", "/bound", first->counted ? "peak" : "", first->counted ? "error" : "");
    for (size_t i = 0; i < t->count; i++)
        print_row(&t->rows[i]);
    if (t->sweep || first->status != ORDO_OK)
        return;
    print_bounds(t);
    if (first->sparse > 0)
        printf(
            "sparse     %.0f (order of growth for the worst Q and K with as many live scores; no "
            "bound of this mask)\n",
            first->sparse);
    if (t->count > 1 || !first->counted)
        return;
    if (first->report.loads != first->predicted.loads ||
        first->report.stores != first->predicted.stores)
        printf("staged     %" PRId64 " loads, %" PRId64 " stores\n", first->predicted.loads,
               first->predicted.stores);
    if (first->inner.loads > 0)
        printf("inner      %" PRId64 " loads, %" PRId64 " stores of the first level\n",
               first->inner.loads, first->inner.stores);
    if (first->report.tensors[0].name)
        print_traffic("tensor", first->report.tensors, ORDO_IO_TENSORS);
    if (first->report.loops[0].name)
        print_traffic("loop", first->report.loops, ORDO_IO_LOOPS);
}

/* ---- JSON ---- */

static void traffic_json(cli_json *json, const char *key, const ordo_io_traffic *list, size_t most)
{
    cli_json_array(json, key);
    for (size_t i = 0; i < most && list[i].name; i++) {
        cli_json_object(json, NULL);
        json->compact = json->depth;
        cli_json_text(json, "name", list[i].name);
        cli_json_int(json, "loads", list[i].loads);
        cli_json_int(json, "stores", list[i].stores);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

static void counts_json(cli_json *json, const cli_io_row *row)
{
    if (row->counted) {
        cli_json_int(json, "loads", row->report.loads);
        cli_json_int(json, "stores", row->report.stores);
        cli_json_int(json, "total", row->report.loads + row->report.stores);
        cli_json_int(json, "peak", row->report.peak);
        cli_json_real(json, "error", row->report.error);
        cli_json_int(json, "accesses", row->report.accesses);
        if (row->inner.loads > 0) {
            cli_json_int(json, "inner_loads", row->inner.loads);
            cli_json_int(json, "inner_stores", row->inner.stores);
        }
        return;
    }
    cli_json_null(json, "loads");
    cli_json_null(json, "stores");
    cli_json_int(json, "total", row->predicted.loads + row->predicted.stores);
    cli_json_null(json, "peak");
    cli_json_null(json, "error");
}

static void bounds_json(cli_json *json, const ordo_io_problem *p)
{
    cli_json_text(json, "regime", regime(p));
    cli_json_real(json, "cache_per_d2", squares(p));
    cli_json_array(json, "bounds");
    for (int i = 0; i < ORDO_IO_BOUND_COUNT; i++) {
        ordo_io_bound b;
        if (ordo_io_bound_at(p, i, &b) != ORDO_OK)
            continue;
        cli_json_object(json, NULL);
        json->compact = json->depth;
        cli_json_text(json, "name", b.name);
        cli_json_real(json, "words", b.words);
        cli_json_bool(json, "holds", b.holds);
        cli_json_text(json, "valid", b.valid);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

static void row_json(cli_json *json, const cli_io_row *row, bool brief)
{
    int64_t list[CLI_IO_TILES];
    cli_json_text(json, "pass", ordo_io_pass_name(row->problem.pass));
    cli_json_text(json, "algorithm", ordo_io_algorithm_name(row->algorithm));
    cli_json_text(json, "model", row->model);
    cli_json_int(json, "cache", row->problem.cache_words);
    if (row->status != ORDO_OK) {
        cli_json_text(json, "status", ordo_status_name(row->status));
        cli_json_text(json, "message", row->why);
        return;
    }
    const size_t count = cli_io_tiles_list(row->problem.pass, row->algorithm, &row->tiles, list);
    cli_json_array(json, "tiles");
    for (size_t i = 0; i < count; i++)
        cli_json_int(json, NULL, list[i]);
    cli_json_end_array(json);
    if (row->tiles.panel)
        cli_json_int(json, "panel", row->tiles.panel);
    counts_json(json, row);
    cli_json_int(json, "predicted_loads", row->predicted.loads);
    cli_json_int(json, "predicted_stores", row->predicted.stores);
    cli_json_int(json, "workspace", row->predicted.workspace);
    cli_json_real(json, "bound", row->bound.words);
    cli_json_text(json, "bound_name", row->bound.name);
    cli_json_text(json, "bound_valid", row->bound.valid);
    if (row->sparse > 0)
        cli_json_real(json, "sparse_form", row->sparse);
    cli_json_real(json, "ratio", row->bound.words > 0 ? cli_io_total(row) / row->bound.words : NAN);
    if (brief)
        return;
    bounds_json(json, &row->problem);
    if (!row->counted)
        return;
    traffic_json(json, "tensors", row->report.tensors, ORDO_IO_TENSORS);
    traffic_json(json, "loops", row->report.loops, ORDO_IO_LOOPS);
}

static void brief_json(cli_json *json, const void *row)
{
    row_json(json, row, true);
}

static void table_json(cli_json *json, const void *what)
{
    const table *t = what;
    if (t->count == 1 && !t->sweep)
        row_json(json, t->rows, false);
    else
        cli_results_json(json, &(cli_results) { .fields = brief_json,
                                                .items = t->rows,
                                                .size = sizeof *t->rows,
                                                .count = t->count });
}

int cli_io_show(const cli_json_target *target, const cli_io_row *rows, size_t count, bool sweep)
{
    const table t = { rows, count, sweep };
    if (target->on)
        return cli_report_json(target, "io", table_json, &t);
    print_table(&t);
    return CLI_OK;
}
