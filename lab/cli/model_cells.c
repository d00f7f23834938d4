/* model_cells.c: what a cell of a grid shows, the axes, and the cells as the model prices them. */
#include "cli/model_grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a cell shows ---- */

enum {
    OVERLAPPED_OVER_SEQUENTIAL,
    OVERLAPPED_OVER_FUSED,
    FUSED_OVER_SEQUENTIAL,
    OVERLAPPED_GAIN,
    OVERLAPPED_QKV_GAIN,
    HIDING_GAIN,
    DROPOUT_COST,
    SEQUENTIAL_COST,
    FUSED_COST,
    OVERLAPPED_COST,
    BITS_GIB,
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
    { OVERLAPPED_QKV_GAIN, "overlapped_qkv_gain",
      "whole block: gain of overlapped beside QKV over fused, %", 1, 0 },
    { HIDING_GAIN, "hiding_gain",
      "these GEMMs and attention alone: gain of overlapped over fused, %", 1, 0 },
    { DROPOUT_COST, "dropout_cost", "cost of dropout in the best mode, %", 1, NAN },
    { SEQUENTIAL_COST, "sequential_cost", "cost of dropout, sequential, %", 1, NAN },
    { FUSED_COST, "fused_cost", "cost of dropout, fused, %", 1, NAN },
    { OVERLAPPED_COST, "overlapped_cost", "cost of dropout, overlapped, %", 1, NAN },
    { BITS_GIB, "bits_gib", "keep bits, GiB", 3, NAN },
    { GEMM_MS, "gemm_ms", "GEMMs, ms", 3, NAN },
    { ATTENTION_MS, "attention_ms", "attention, ms", 3, NAN },
    { RNG_MS, "rng_ms", "making the bits, ms", 3, NAN },
    { NONE_MS, "none_ms", "block without dropout, ms", 3, NAN },
    { BEST_MS, "best_ms", "block in the best mode, ms", 3, NAN },
};
enum { QUANTITIES = sizeof quantities / sizeof quantities[0] };

double cli_quantity_of_times(const cli_quantity *quantity, const cli_block_times *t)
{
    switch (quantity->id) {
    case OVERLAPPED_OVER_SEQUENTIAL: return t->sequential / t->overlapped;
    case OVERLAPPED_OVER_FUSED: return t->fused / t->overlapped;
    case FUSED_OVER_SEQUENTIAL: return t->sequential / t->fused;
    case OVERLAPPED_GAIN: return 100 * (t->fused / t->overlapped - 1);
    case OVERLAPPED_QKV_GAIN: return 100 * (t->fused / t->overlapped_qkv - 1);
    case SEQUENTIAL_COST: return 100 * (t->sequential / t->none - 1);
    case FUSED_COST: return 100 * (t->fused / t->none - 1);
    case OVERLAPPED_COST: return 100 * (t->overlapped / t->none - 1);
    default: return NAN;
    }
}

static double value_of(const cli_quantity *quantity, const ordo_block_report *r)
{
    const cli_block_times times = cli_block_times_of(r);
    switch (quantity->id) {
    case DROPOUT_COST: return 100 * (r->mode[r->best] / r->none - 1);
    case HIDING_GAIN:
        return 100 * ((r->gemm_seconds + r->attention_made.seconds) /
                          (r->gemm_beside_rng + r->attention_given.seconds) -
                      1);
    case BITS_GIB: return r->keep_bits_bytes[ORDO_DROPOUT_MODE_OVERLAPPED] * 0x1p-30;
    case GEMM_MS: return r->gemm_seconds * 1e3;
    case ATTENTION_MS: return r->attention.seconds * 1e3;
    case RNG_MS: return r->rng.seconds * 1e3;
    case NONE_MS: return r->none * 1e3;
    case BEST_MS: return r->mode[r->best] * 1e3;
    default: return cli_quantity_of_times(quantity, &times);
    }
}

const cli_quantity *cli_grid_quantity_at(size_t i)
{
    return i < QUANTITIES ? &quantities[i] : NULL;
}

const cli_quantity *cli_grid_quantity(const char *name)
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
int cli_grid_axis(const char *option, const char *text, cli_axis *axis)
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

/* Apply both axes of a cell to a block and to a model. */
static int apply_axes(const cli_heat *heat, size_t cell, cli_block_args *block, ordo_model *model)
{
    CLI_TRY(apply_axis(&heat->x, cell % heat->x.count, block, model));
    return apply_axis(&heat->y, cell / heat->x.count, block, model);
}

int cli_grid_block(const cli_start *from, const cli_heat *heat, size_t cell, ordo_block *block)
{
    cli_block_args args = from->block;
    CLI_TRY(apply_axes(heat, cell, &args, NULL));
    *block = cli_block_of(&args);
    return CLI_OK;
}

static int price_cell(const cli_start *from, const cli_heat *heat, size_t cell, double *value,
                      int *region)
{
    cli_block_args block = from->block;
    ordo_model *model = NULL;
    int status = cli_model_create(from->model, &model);
    if (status == CLI_OK)
        status = cli_model_apply_set(from->model, model);
    for (size_t i = 0; i < from->change_count && status == CLI_OK; i++)
        status = cli_model_apply(model, from->changes[i]);
    if (status == CLI_OK)
        status = apply_axes(heat, cell, &block, model);
    const ordo_block asked = cli_block_of(&block);
    ordo_block_report report = { 0 };
    if (status == CLI_OK)
        status = cli_library(ordo_model_block(model, &asked, &report));
    cli_block_times times = cli_block_times_of(&report);
    const bool qkv = heat->quantity->id == OVERLAPPED_QKV_GAIN;
    if (status == CLI_OK && qkv)
        status = cli_library(cli_block_beside_qkv(model, &asked, &times.overlapped_qkv));
    *value =
        qkv ? cli_quantity_of_times(heat->quantity, &times) : value_of(heat->quantity, &report);
    *region = report.region;
    ordo_model_destroy(model);
    return status;
}

int cli_grid_room(cli_heat *heat)
{
    const size_t cells = heat->x.count * heat->y.count;
    if (cells == 0) /* no axis is empty, but only cli_grid_axis() knows */
        return cli_usage("expected axes with values");
    heat->cells = calloc(cells, sizeof *heat->cells);
    heat->regions = calloc(cells, sizeof *heat->regions);
    return heat->cells && heat->regions ? CLI_OK : cli_out_of_memory();
}

int cli_grid_fill(const cli_start *from, cli_heat *heat)
{
    CLI_TRY(cli_grid_room(heat));
    for (size_t i = 0; i < heat->x.count * heat->y.count; i++)
        CLI_TRY(price_cell(from, heat, i, &heat->cells[i], &heat->regions[i]));
    return CLI_OK;
}

int cli_grid_axes(cli_grid *grid, const cli_model_args *model, const cli_block_args *block,
                  const char *x, const char *y, const char *quantity)
{
    const cli_start from = { .model = model, .block = *block };
    cli_heat *heat = &grid->heats[0];
    grid->model = model;
    grid->count = 1;
    heat->quantity = cli_grid_quantity(quantity);
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
    CLI_TRY(cli_grid_axis("--x", x, &heat->x));
    CLI_TRY(cli_grid_axis("--y", y, &heat->y));
    if (strcmp(heat->x.name, heat->y.name) == 0)
        return cli_usage("--y %s: --x has %s already; expected another axis", y, heat->x.name);
    return cli_grid_fill(&from, heat);
}

void cli_grid_free(cli_grid *grid)
{
    for (size_t i = 0; i < grid->count; i++) {
        free(grid->heats[i].cells);
        free(grid->heats[i].regions);
    }
}
