/* model_grid.c: `ordo model grid`: values of a block over two axes, as text, JSON or heat maps. */
#include "cli/model_grid.h"

#include <stdlib.h>
#include <string.h>

typedef struct request {
    cli_model_args model;
    cli_block_args block;
    int figure; /* index among the figures; -1: axes */
    const char *x, *y, *value, *svg, *measured;
} request;

/* A figure has the paper's block: fp8 and its generator, unless the caller names another. */
static int figure_block(request *r, const cli_syntax *syntax)
{
    static const char *const free[] = { "--precision", "--bits", "--generator" };
    for (size_t i = 0; i < CLI_MODEL_BLOCK; i++) {
        bool may = !r->block.options[i].used;
        for (size_t k = 0; k < sizeof free / sizeof free[0]; k++)
            may |= strcmp(r->block.options[i].name, free[k]) == 0;
        if (!may)
            return cli_usage("%s: a figure has its own block; expected no option of the block but "
                             "--precision, --bits and --generator",
                             r->block.options[i].name);
    }
    if (!cli_args_used(syntax, "--precision"))
        r->block.precision = ORDO_PRECISION_FP8;
    if (!cli_args_used(syntax, "--bits") && !cli_args_used(syntax, "--generator")) {
        r->block.bits = 32;
        r->block.generator = ORDO_GENERATOR_COMPARE;
    }
    return CLI_OK;
}

static int make_figure(request *r, const cli_syntax *syntax, cli_grid *grid, cli_measured *measured)
{
    if (r->x || r->y || r->value)
        return cli_usage("--figure: a figure has its own axes; expected no --x, --y or --value");
    if (r->measured && !cli_figure_compares(r->figure))
        return cli_usage(
            "--measured: figures 13, cost and speedup show measured values, figure %s does not",
            cli_figure_name(r->figure));
    CLI_TRY(figure_block(r, syntax));
    if (!cli_args_used(syntax, "--machine"))
        r->model.machine_name = "h100";
    if (r->measured) {
        CLI_TRY(cli_measured_read(measured, r->measured));
        if (!cli_args_used(syntax, "--machine") && measured->machine[0] != '\0')
            r->model.machine_name = measured->machine;
    }
    grid->measured = r->measured;
    CLI_TRY(cli_model_open(&r->model, cli_block_is_paper(&r->block) && !r->measured));
    return cli_grid_figure(grid, &r->model, &r->block, r->figure, r->measured ? measured : NULL);
}

static int make_grid(request *r, const cli_syntax *syntax, cli_grid *grid, cli_measured *measured)
{
    if (r->figure >= 0)
        return make_figure(r, syntax, grid, measured);
    if (r->measured)
        return cli_usage("--measured: expected --figure 13, cost or speedup");
    if (!r->x || !r->y)
        return cli_usage("expected --figure N, or two axes: --x seq=2k,4k --y embed=4k,8k");
    CLI_TRY(cli_model_open(&r->model, cli_block_is_paper(&r->block)));
    return cli_grid_axes(grid, &r->model, &r->block, r->x, r->y,
                         r->value ? r->value : "overlapped_over_sequential");
}

/* Append the names of the values, four on a line. */
static void list_values(char *text, size_t capacity)
{
    const cli_quantity *quantity;
    for (size_t i = 0; (quantity = cli_grid_quantity_at(i)) != NULL; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, capacity - used, "%s%s%s", i % 4 ? " " : "\n", quantity->name,
                 cli_grid_quantity_at(i + 1) ? "," : ".");
    }
}

int cli_model_grid(int argc, char **argv)
{
    request r = { .figure = -1 };
    cli_grid grid = { 0 };
    cli_measured measured = { .count = 0 };
    cli_option options[] = {
        OPT_CHOICE("--figure", CLI_FIGURES, &r.figure,
                   "figure of arXiv 2410.07531, or a view (default h100)"),
        OPT_TEXT("--measured", "FILE", &r.measured, "13, cost and speedup: measured blocks, too"),
        OPT_TEXT("--x", "NAME=VALUES", &r.x,
                 "an option of the block, seq=2k,4k, or a constant, tensor=1x,2x"),
        OPT_TEXT("--y", "NAME=VALUES", &r.y, "the other axis"),
        OPT_TEXT("--value", "NAME", &r.value, "value to show (default overlapped_over_sequential)"),
        OPT_OUTPUT("--svg", "FILE", &r.svg, "write heat maps"),
    };
    const cli_section sections[] = { CLI_SECTION("Grid", options), cli_block_section(&r.block),
                                     cli_model_section(&r.model) };
    char about[2048] =
        "One value of a block over two axes. The digit after a value is its region: "
        "1 making the\nbits hides easily under the GEMMs, 2 it hides, 3 it outlasts "
        "them.\nWith --measured, the machine is the file's own and the calibration silicon unless "
        "named;\nrows of the figure's precision and generator are shown with the model's "
        "values.\nbench/gpu/run block_h200 --model writes such a file. Values:";
    list_values(about, sizeof about);
    const cli_syntax syntax = {
        "model grid --figure N | --x NAME=VALUES --y NAME=VALUES [OPTIONS]", about, sections, 3,
        "  ordo model grid --figure 5\n"
        "  ordo model grid --figure 13 --svg figure13.svg\n"
        "  ordo model grid --figure speedup --precision bf16 --bits 8 --generator sliced\n"
        "  ordo model grid --x seq=2k,8k,32k --y tensor=1x,2x,4x --embed 4k --value dropout_cost\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status)) {
        status = make_grid(&r, &syntax, &grid, &measured);
        if (status == CLI_OK && r.svg)
            status = cli_report_file(r.svg, cli_grid_svg, &grid);
        if (status == CLI_OK && (r.model.json.on || !r.svg))
            status = cli_model_show(&r.model, "grid", cli_grid_text, cli_grid_fields, &grid);
    }
    cli_grid_free(&grid);
    cli_measured_free(&measured);
    cli_model_free(&r.model);
    return status;
}
