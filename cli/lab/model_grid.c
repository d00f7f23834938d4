/* model_grid.c: `ordo model grid`: values of a block over two axes, as text, JSON or heat maps. */
#include "lab/model_grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a cell shows ---- */

enum {
    OVERLAPPED_OVER_SEQUENTIAL,
    OVERLAPPED_OVER_FUSED,
    FUSED_OVER_SEQUENTIAL,
    OVERLAPPED_GAIN,
    DROPOUT_COST,
    MASK_GIB,
    GEMM_MS,
    ATTENTION_MS,
    RNG_MS,
    NONE_MS,
    BEST_MS
};

static const cli_quantity quantities[] = {
    { OVERLAPPED_OVER_SEQUENTIAL, "overlapped_over_sequential", "overlapped over sequential", 2,
      1 },
    { OVERLAPPED_OVER_FUSED, "overlapped_over_fused", "overlapped over fused", 2, 1 },
    { FUSED_OVER_SEQUENTIAL, "fused_over_sequential", "fused over sequential", 2, 1 },
    { OVERLAPPED_GAIN, "overlapped_gain", "gain of overlapped over fused, %", 1, 0 },
    { DROPOUT_COST, "dropout_cost", "cost of dropout in the best mode, %", 1, NAN },
    { MASK_GIB, "mask_gib", "keep bits, GiB", 3, NAN },
    { GEMM_MS, "gemm_ms", "GEMMs, ms", 3, NAN },
    { ATTENTION_MS, "attention_ms", "attention, ms", 3, NAN },
    { RNG_MS, "rng_ms", "making the bits, ms", 3, NAN },
    { NONE_MS, "none_ms", "block without dropout, ms", 3, NAN },
    { BEST_MS, "best_ms", "block in the best mode, ms", 3, NAN },
};
enum { QUANTITIES = sizeof quantities / sizeof quantities[0] };

static double value_of(const cli_quantity *quantity, const ordo_block_report *r)
{
    switch (quantity->id) {
    case OVERLAPPED_OVER_SEQUENTIAL: return r->overlapped_over_sequential;
    case OVERLAPPED_OVER_FUSED: return r->overlapped_over_fused;
    case FUSED_OVER_SEQUENTIAL: return r->fused_over_sequential;
    case OVERLAPPED_GAIN: return 100 * (r->overlapped_over_fused - 1);
    case DROPOUT_COST: return 100 * (r->mode[r->best] / r->none - 1);
    case MASK_GIB: return r->mask_bytes[ORDO_DROPOUT_MODE_OVERLAPPED] * 0x1p-30;
    case GEMM_MS: return r->gemm_seconds * 1e3;
    case ATTENTION_MS: return r->attention.seconds * 1e3;
    case RNG_MS: return r->rng.seconds * 1e3;
    case NONE_MS: return r->none * 1e3;
    default: return r->mode[r->best] * 1e3;
    }
}

static const cli_quantity *find_quantity(const char *name)
{
    for (size_t i = 0; i < QUANTITIES; i++)
        if (strcmp(quantities[i].name, name) == 0)
            return &quantities[i];
    return NULL;
}

/* ---- axes ---- */

/* The block's field an axis varies, or NULL if the axis is a constant of the model. */
static int64_t *field_of(cli_block_args *b, const char *name)
{
    const struct {
        const char *name;
        int64_t *at;
    } fields[] = {
        { "seq", &b->seq },
        { "embed", &b->embed },
        { "batch", &b->batch },
        { "head-dim", &b->head_dim },
        { "kv-heads", &b->kv_heads },
        { "rounds", &b->rounds },
        { "bits", &b->bits },
        { "segments", &b->segments },
        { "tensor-parallel", &b->tensor_parallel },
        { "sequence-parallel", &b->sequence_parallel },
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(fields[i].name, name) == 0)
            return fields[i].at;
    return NULL;
}

/* "seq=2k,4k,8k" */
static int read_axis(const char *option, const char *text, cli_axis *axis)
{
    const char *equals = strchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : 0;
    *axis = (cli_axis) { .count = 0 };
    if (length == 0 || length >= sizeof axis->name)
        return cli_usage("%s %s: expected NAME=VALUES, such as seq=2k,4k,8k", option, text);
    memcpy(axis->name, text, length);
    for (const char *at = equals + 1;; at++) {
        const size_t here = strcspn(at, ",");
        if (here == 0 || here >= sizeof axis->text[0] || axis->count == CLI_AXIS_MOST)
            return cli_usage("%s %s: expected 1 to %d values of at most %zu characters", option,
                             text, CLI_AXIS_MOST, sizeof axis->text[0] - 1);
        memcpy(axis->text[axis->count++], at, here);
        at += here;
        if (*at == '\0')
            return CLI_OK;
    }
}

static int apply_axis(const cli_axis *axis, size_t i, cli_block_args *block, ordo_model *model)
{
    int64_t *field = field_of(block, axis->name);
    char change[64];
    if (field) {
        if (!cli_read_size(axis->text[i], 1, 1 << 28, field))
            return cli_usage("%s %s: expected a whole number from 1 to %d", axis->name,
                             axis->text[i], 1 << 28);
        return CLI_OK;
    }
    snprintf(change, sizeof change, "%s=%s", axis->name, axis->text[i]);
    return cli_model_apply(model, change);
}

/* ---- cells ---- */

/* Where a heat map starts from. */
typedef struct start {
    const cli_model_args *model;
    cli_block_args block;
    const char *changes[CLI_MOST_WORDS];
    size_t change_count;
} start;

static int price_cell(const start *from, const cli_heat *heat, size_t y, size_t x,
                      ordo_block_report *report)
{
    cli_block_args block = from->block;
    ordo_model *model = NULL;
    int status = cli_model_create(from->model, &model);
    if (status == CLI_OK)
        status = cli_model_apply_set(from->model, model);
    for (size_t i = 0; i < from->change_count && status == CLI_OK; i++)
        status = cli_model_apply(model, from->changes[i]);
    if (status == CLI_OK)
        status = apply_axis(&heat->x, x, &block, model);
    if (status == CLI_OK)
        status = apply_axis(&heat->y, y, &block, model);
    const ordo_block asked = cli_block_of(&block);
    if (status == CLI_OK)
        status = cli_library(ordo_model_block(model, &asked, report));
    ordo_model_destroy(model);
    return status;
}

static int fill(const start *from, cli_heat *heat)
{
    const size_t cells = heat->x.count * heat->y.count;
    if (cells == 0) /* no axis is empty, but only read_axis() knows */
        return cli_usage("expected axes with values");
    heat->cells = calloc(cells, sizeof *heat->cells);
    heat->regions = calloc(cells, sizeof *heat->regions);
    if (!heat->cells || !heat->regions)
        return cli_out_of_memory();
    for (size_t y = 0; y < heat->y.count; y++)
        for (size_t x = 0; x < heat->x.count; x++) {
            ordo_block_report report;
            CLI_TRY(price_cell(from, heat, y, x, &report));
            heat->cells[y * heat->x.count + x] = value_of(heat->quantity, &report);
            heat->regions[y * heat->x.count + x] = report.region;
        }
    return CLI_OK;
}

int cli_grid_axes(cli_grid *grid, const cli_model_args *model, const cli_block_args *block,
                  const char *x, const char *y, const char *quantity)
{
    start from = { .model = model, .block = *block };
    cli_heat *heat = &grid->heats[0];
    grid->model = model;
    grid->count = 1;
    heat->quantity = find_quantity(quantity);
    if (!heat->quantity) {
        const char *names[QUANTITIES];
        for (size_t i = 0; i < QUANTITIES; i++)
            names[i] = quantities[i].name;
        const char *near = cli_nearest(quantity, names, QUANTITIES);
        return cli_usage("--value %s: unknown; %s%s", quantity,
                         near ? "did you mean " : "see --help", near ? near : "");
    }
    snprintf(heat->title, sizeof heat->title, "%s", heat->quantity->about);
    snprintf(grid->title, sizeof grid->title, "%s", ordo_machine_title(model->machine));
    CLI_TRY(read_axis("--x", x, &heat->x));
    CLI_TRY(read_axis("--y", y, &heat->y));
    return fill(&from, heat);
}

/* ---- the paper's figures ---- */

typedef struct panel {
    const char *quantity;
    const char *title; /* NULL: what the quantity is about */
    int rounds;        /* 0 = 7 */
    bool twice;        /* twice the tensor cores, as the paper's B100 */
    bool difference;   /* of that to the machine as it is, in percentage points */
    int ranks;         /* that share the heads; 0 = 1 */
} panel;

static const char with_region[] = "overlapped over sequential (region)";

static const struct figure {
    int number;
    bool qkv_only;
    const char *title;
    panel panels[CLI_HEATS_MOST];
} figures[] = {
    { 5,
      false,
      "speedup over sequential",
      { { "fused_over_sequential" },
        { "overlapped_over_sequential", with_region },
        { "overlapped_over_fused" } } },
    { 8,
      false,
      "twice the tensor cores",
      { { "overlapped_over_sequential", with_region, .twice = true } } },
    { 9,
      false,
      "what twice the tensor cores change",
      { { "overlapped_over_sequential", "overlapped over sequential, change in points",
          .twice = true, .difference = true } } },
    { 12,
      false,
      "fewer rounds",
      { { "overlapped_over_sequential", "Philox-7: overlapped over sequential (region)" },
        { "overlapped_over_sequential", "Philox-5", .rounds = 5 },
        { "overlapped_over_sequential", "Philox-3", .rounds = 3 } } },
    { 13, true, "one GEMM to hide under", { { "overlapped_gain" } } },
    { 14,
      false,
      "memory of the keep bits",
      { { "mask_gib", "GiB on one device" },
        { "mask_gib", "GiB on each of 16 that share the heads", .ranks = 16 } } },
};

static void default_axes(cli_heat *heat)
{
    (void)read_axis("--x", "seq=2k,4k,8k,16k,32k,64k", &heat->x);
    (void)read_axis("--y", "embed=4k,6k,8k,10k,12k,14k,16k", &heat->y);
}

static void set_twice(start *from, bool twice)
{
    static const char *const changes[] = { "tensor=2x", "l2=2x", "hbm=2x" };
    from->change_count = twice ? 3 : 0;
    memcpy(from->changes, changes, sizeof changes);
}

static int fill_panel(cli_heat *heat, start *from, const panel *p)
{
    default_axes(heat);
    heat->quantity = find_quantity(p->quantity);
    heat->points = p->difference;
    snprintf(heat->title, sizeof heat->title, "%s", p->title ? p->title : heat->quantity->about);
    from->block.rounds = p->rounds ? p->rounds : 7;
    from->block.tensor_parallel = p->ranks;
    set_twice(from, p->twice);
    int status = fill(from, heat);
    if (status != CLI_OK || !p->difference)
        return status;
    cli_heat before = *heat;
    before.cells = NULL;
    before.regions = NULL;
    set_twice(from, false);
    status = fill(from, &before);
    for (size_t i = 0; i < heat->x.count * heat->y.count && status == CLI_OK; i++)
        heat->cells[i] = 100 * (heat->cells[i] - before.cells[i]);
    free(before.cells);
    free(before.regions);
    return status;
}

int cli_grid_figure(cli_grid *grid, const cli_model_args *model, int number)
{
    start from = { .model = model };
    (void)cli_block_section(&from.block); /* its defaults; the options are not read */
    from.block.precision = ORDO_PRECISION_FP8;
    from.block.bits = 32;
    from.block.generator = ORDO_GENERATOR_COMPARE;
    const struct figure *f = figures;
    while (f->number != number)
        f++;
    from.block.overlap = f->qkv_only ? 0 : 1;
    grid->model = model;
    grid->figure = number;
    snprintf(grid->title, sizeof grid->title, "Figure %d: %s; %s, fp8, 32 bits compared", number,
             f->title, ordo_machine_title(model->machine));
    int status = CLI_OK;
    while (grid->count < CLI_HEATS_MOST && f->panels[grid->count].quantity && status == CLI_OK) {
        const size_t i = grid->count++;
        status = fill_panel(&grid->heats[i], &from, &f->panels[i]);
    }
    return status;
}

void cli_grid_free(cli_grid *grid)
{
    for (size_t i = 0; i < grid->count; i++) {
        free(grid->heats[i].cells);
        free(grid->heats[i].regions);
    }
}

/* ---- output ---- */

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
            printf(" %*.*f (%d)", 8, decimals, h->cells[i], h->regions[i]);
        }
        puts("");
    }
}

static void print_grid(const void *what)
{
    const cli_grid *g = what;
    printf("%s\n", g->title);
    for (size_t i = 0; i < g->count; i++)
        print_heat(&g->heats[i]);
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

static void heat_json(cli_json *json, const cli_heat *h)
{
    cli_json_object(json, NULL);
    cli_json_text(json, "title", h->title);
    cli_json_text(json, "value", h->quantity->name);
    cli_json_bool(json, "points", h->points);
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

static void grid_json(cli_json *json, const void *what)
{
    const cli_grid *g = what;
    cli_json_text(json, "title", g->title);
    if (g->figure)
        cli_json_int(json, "figure", g->figure);
    cli_json_array(json, "panels");
    for (size_t i = 0; i < g->count; i++)
        heat_json(json, &g->heats[i]);
    cli_json_end_array(json);
}

typedef struct request {
    cli_model_args model;
    cli_block_args block;
    int figure; /* index among the figures; -1: axes */
    const char *x, *y, *value, *svg;
} request;

static int make_grid(request *r, const cli_syntax *syntax, cli_grid *grid)
{
    const bool figure = r->figure >= 0;
    if (figure && (r->x || r->y || r->value))
        return cli_usage("--figure: a figure has its own axes; expected no --x, --y or --value");
    if (!figure && (!r->x || !r->y))
        return cli_usage("expected --figure N, or two axes: --x seq=2k,4k --y embed=4k,8k");
    if (figure)
        for (size_t i = 0; i < CLI_MODEL_BLOCK; i++)
            if (r->block.options[i].given)
                return cli_usage("%s: a figure has its own block; expected no option of the block",
                                 r->block.options[i].name);
    if (figure && !cli_args_given(syntax, "--machine"))
        r->model.machine_name = "h100";
    CLI_TRY(cli_model_open(&r->model, figure || cli_block_is_paper(&r->block)));
    return figure ? cli_grid_figure(grid, &r->model, figures[r->figure].number)
                  : cli_grid_axes(grid, &r->model, &r->block, r->x, r->y,
                                  r->value ? r->value : "overlapped_over_sequential");
}

/* Append the names of the values, four on a line. */
static void list_values(char *text, size_t capacity)
{
    for (size_t i = 0; i < QUANTITIES; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, capacity - used, "%s%s%s", i % 4 ? " " : "\n", quantities[i].name,
                 i + 1 < QUANTITIES ? "," : ".");
    }
}

int cli_model_grid(int argc, char **argv)
{
    request r = { .figure = -1 };
    cli_grid grid = { 0 };
    cli_option options[] = {
        OPT_CHOICE("--figure", "5|8|9|12|13|14", &r.figure,
                   "figure of arXiv 2410.07531 (default machine h100)"),
        OPT_TEXT("--x", "NAME=VALUES", &r.x,
                 "an option of the block, seq=2k,4k, or a constant, tensor=1x,2x"),
        OPT_TEXT("--y", "NAME=VALUES", &r.y, "the other axis"),
        OPT_TEXT("--value", "NAME", &r.value, "value to show (default overlapped_over_sequential)"),
        OPT_TEXT("--svg", "FILE", &r.svg, "write heat maps"),
    };
    const cli_section sections[] = { CLI_SECTION("Grid", options), cli_block_section(&r.block),
                                     cli_model_section(&r.model) };
    char about[1024] =
        "One value of a block over two axes. The digit behind a value is its region: "
        "1 making the\nbits hides easily under the GEMMs, 2 it hides, 3 it outlasts "
        "them. Values:";
    list_values(about, sizeof about);
    const cli_syntax syntax = {
        "model grid --figure N | --x NAME=VALUES --y NAME=VALUES [OPTIONS]", about, sections, 3,
        "  ordo model grid --figure 5\n"
        "  ordo model grid --figure 13 --svg figure13.svg\n"
        "  ordo model grid --x seq=2k,8k,32k --y tensor=1x,2x,4x --embed 4k --value dropout_cost\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status)) {
        status = make_grid(&r, &syntax, &grid);
        if (status == CLI_OK && r.svg)
            status = cli_report_file(r.svg, cli_grid_svg, &grid);
        if (status == CLI_OK && (r.model.json.on || !r.svg))
            status = cli_model_show(&r.model, "grid", print_grid, grid_json, &grid);
    }
    cli_grid_free(&grid);
    cli_model_free(&r.model);
    return status;
}
