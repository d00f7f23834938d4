/* model_figure.c: figures of arXiv 2410.07531, with measured values.
 *
 * Figures 6 and 10 follow their captions, figure 11 what the text states. Cost and speedup are no
 * figures of the paper: what its text says of dropout end to end, to compare with measurements. */
#include "cli/model_grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct panel {
    const char *quantity;
    const char *title; /* NULL: what the quantity is about */
    int rounds;        /* 0 = 7 */
    bool twice;        /* twice the tensor cores, as the paper's B100 */
    bool difference;   /* shows the difference from the machine as it is, in percentage points */
    int ranks;         /* that share the heads; 0 = 1 */
    const char *y;     /* the other axis; NULL = width of the model */
} panel;

static const char with_region[] = "overlapped over sequential (region)";
static const char lengths[] = "seq=2k,4k,8k,16k,32k,64k";
static const char widths[] = "embed=4k,6k,8k,10k,12k,14k,16k";
static const char rounds[] = "rounds=3,5,7,10";

enum { PANELS_MOST = 3 };

typedef struct figure {
    const char *name; /* the number of a figure of the paper, or a word */
    bool qkv_only;
    bool compares; /* measured values are shown, too */
    const char *title;
    panel panels[PANELS_MOST];
} figure;

static const figure figures[] = {
    /* in the order of CLI_FIGURES */
    { "5",
      false,
      false,
      "speedup over sequential",
      { { "fused_over_sequential" },
        { "overlapped_over_sequential", with_region },
        { "overlapped_over_fused" } } },
    { "6", false, false, "run times", { { "gemm_ms" }, { "attention_ms" }, { "rng_ms" } } },
    { "8",
      false,
      false,
      "twice the tensor cores",
      { { "overlapped_over_sequential", with_region, .twice = true } } },
    { "9",
      false,
      false,
      "what twice the tensor cores change",
      { { "overlapped_over_sequential", "overlapped over sequential, change in points",
          .twice = true, .difference = true } } },
    { "10", false, false, "making the bits, by rounds, width 4k", { { "rng_ms", .y = rounds } } },
    { "11",
      false,
      false,
      "rounds of the generator, width 4k",
      { { "rng_ms", .y = rounds }, { "overlapped_over_sequential", with_region, .y = rounds } } },
    { "12",
      false,
      false,
      "fewer rounds",
      { { "overlapped_over_sequential", "Philox-7: overlapped over sequential (region)" },
        { "overlapped_over_sequential", "Philox-5", .rounds = 5 },
        { "overlapped_over_sequential", "Philox-3", .rounds = 3 } } },
    { "13",
      true,
      true,
      "one GEMM to hide under",
      { { "hiding_gain", "first GEMM and attention: gain of overlapped over fused, %" } } },
    { "14",
      false,
      false,
      "memory of the keep bits",
      { { "bits_gib", "GiB on one device" },
        { "bits_gib", "GiB on each of 16 that share the heads", .ranks = 16 } } },
    { "cost",
      false,
      true,
      "cost of dropout over the block without",
      { { "sequential_cost" }, { "fused_cost" }, { "overlapped_cost" } } },
    { "speedup",
      false,
      true,
      "speedup of overlapped",
      { { "overlapped_over_sequential" }, { "overlapped_over_fused" } } },
};

const char *cli_figure_name(int index)
{
    return figures[index].name;
}

bool cli_figure_compares(int index)
{
    return figures[index].compares;
}

static void set_twice(cli_start *from, bool twice)
{
    static const char *const changes[] = { "tensor=2x", "l2=2x", "hbm=2x" };
    from->change_count = twice ? 3 : 0;
    memcpy(from->changes, changes, sizeof changes);
}

static int fill_panel(cli_heat *heat, cli_start *from, const panel *p)
{
    (void)cli_grid_axis("--x", lengths, &heat->x);
    (void)cli_grid_axis("--y", p->y ? p->y : widths, &heat->y);
    heat->quantity = cli_grid_quantity(p->quantity);
    heat->points = p->difference;
    snprintf(heat->title, sizeof heat->title, "%s", p->title ? p->title : heat->quantity->about);
    from->block.embed = 4096; /* where it is no axis */
    from->block.rounds = p->rounds ? p->rounds : 7;
    from->block.tensor_parallel = p->ranks;
    set_twice(from, p->twice);
    int status = cli_grid_fill(from, heat);
    if (status != CLI_OK || !p->difference)
        return status;
    cli_heat before = *heat;
    before.cells = NULL;
    before.regions = NULL;
    set_twice(from, false);
    status = cli_grid_fill(from, &before);
    for (size_t i = 0; i < heat->x.count * heat->y.count && status == CLI_OK; i++)
        heat->cells[i] = 100 * (heat->cells[i] - before.cells[i]);
    free(before.cells);
    free(before.regions);
    return status;
}

/* The same map from measured times. */
static int fill_measured(cli_heat *heat, const cli_start *from, const cli_heat *model,
                         const cli_measured *measured)
{
    *heat = (cli_heat) { .quantity = model->quantity, .x = model->x, .y = model->y };
    heat->model = model;
    snprintf(heat->title, sizeof heat->title, "measured: %s", heat->quantity->about);
    CLI_TRY(cli_grid_room(heat));
    for (size_t i = 0; i < heat->x.count * heat->y.count; i++) {
        ordo_block block;
        CLI_TRY(cli_grid_block(from, heat, i, &block));
        const cli_block_times times = cli_block_times_measured(measured, &block);
        heat->cells[i] = cli_quantity_of_times(heat->quantity, &times);
    }
    return CLI_OK;
}

cli_difference cli_heat_difference(const cli_heat *measured)
{
    cli_difference d = { 0 };
    double squares = 0;
    for (size_t i = 0; i < measured->x.count * measured->y.count; i++) {
        const double difference = measured->model->cells[i] - measured->cells[i];
        if (isnan(difference))
            continue;
        d.count++;
        d.mean += difference;
        d.absolute += fabs(difference);
        squares += difference * difference;
    }
    if (d.count == 0)
        return (cli_difference) { 0, NAN, NAN, NAN };
    d.mean /= (double)d.count;
    d.absolute /= (double)d.count;
    d.deviation = sqrt(fmax(squares / (double)d.count - d.mean * d.mean, 0));
    return d;
}

int cli_grid_figure(cli_grid *grid, const cli_model_args *model, const cli_block_args *block,
                    int index, const cli_measured *measured)
{
    const figure *f = &figures[index];
    cli_start from = { .model = model, .block = *block };
    /* A measured block is a whole one, not its first GEMM and attention. */
    const panel whole = { "overlapped_qkv_gain" };
    from.block.overlap = (f->qkv_only ? ORDO_BLOCK_BESIDE_QKV : ORDO_BLOCK_BESIDE_ALL) - 1;
    grid->model = model;
    const bool numbered = f->name[0] >= '0' && f->name[0] <= '9';
    grid->figure = f->name;
    grid->compares = f->compares;
    snprintf(grid->title, sizeof grid->title, "%s%s: %s; %s, %s, %d bits, %s",
             numbered ? "Figure " : "", f->name, f->title, ordo_machine_title(model->machine),
             ordo_precision_name((ordo_precision)block->precision), (int)block->bits,
             ordo_generator_name((ordo_generator)block->generator));
    for (size_t i = 0; i < PANELS_MOST && f->panels[i].quantity; i++) {
        cli_heat *heat = &grid->heats[grid->count++];
        CLI_TRY(fill_panel(heat, &from, f->qkv_only && measured ? &whole : &f->panels[i]));
        if (measured)
            CLI_TRY(fill_measured(&grid->heats[grid->count++], &from, heat, measured));
    }
    return CLI_OK;
}
