/* model.c: `ordo model`: dispatches to its parts. */
#include "cli/model.h"

#include "cli/lab.h"

#include <stdio.h>
#include <string.h>

static const struct part {
    const char *name;
    int (*run)(int argc, char **argv);
} parts[] = {
    { "block", cli_model_block },         { "what-if", cli_model_what_if },
    { "kernel", cli_model_kernel },       { "grid", cli_model_grid },
    { "report", cli_model_report },       { "validate", cli_model_validate },
    { "constants", cli_model_constants }, { "overlap", cli_model_overlap },
};
enum { PARTS = sizeof parts / sizeof parts[0] };

static int unknown(const char *word)
{
    const char *names[PARTS];
    for (size_t i = 0; i < PARTS; i++)
        names[i] = parts[i].name;
    const char *near = cli_nearest(word, names, PARTS);
    if (near)
        return cli_usage(
            "'%s': expected an option, or a part as the first word: did you mean '%s'?", word,
            near);
    return cli_usage(
        "'%s': expected an option, or a part as the first word: block, what-if, kernel, "
        "grid, report, overlap, validate or constants",
        word);
}

static int run_part(const struct part *part, int argc, char **argv)
{
    static char command[32]; /* messages point at the help of the part */
    snprintf(command, sizeof command, "model %s", part->name);
    cli_message_command(command);
    return part->run(argc, argv);
}

int cli_model(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] != '-') {
        for (size_t i = 0; i < PARTS; i++)
            if (strcmp(argv[1], parts[i].name) == 0)
                return run_part(&parts[i], argc - 1, argv + 1);
        return unknown(argv[1]);
    }
    cli_model_args args = { 0 };
    const cli_section sections[] = { cli_model_section(&args) };
    const cli_syntax syntax = {
        "model PART [OPTIONS]",
        "Price kernels and transformer blocks on a machine by their limiters, and say in\n"
        "which mode attention dropout costs least.\n"
        "\n"
        "  block      one transformer block: times, limiters, the dropout mode that wins\n"
        "  what-if    the same, and on a changed machine\n"
        "  kernel     one kernel: gemm, attention, attention-backward, rng, memory\n"
        "  grid       heat maps over two axes; the figures of arXiv 2410.07531\n"
        "  report     a self-contained HTML page for one block\n"
        "  overlap    a list of kernels: where to make the keep bits\n"
        "  validate   predictions and measured times\n"
        "  constants  every number the model uses, with kind and source\n"
        "\n"
        "`ordo model PART --help` lists what a part takes. All of them take:",
        sections, 1,
        "  ordo model block --machine h200 --precision bf16 --seq 8k --embed 4k\n"
        "  ordo model block --machine h100 --precision fp8 --seq 8k --embed 4k --bits 32 \\\n"
        "      --generator compare --overlap all --json\n"
        "  ordo model what-if --machine h200 --seq 8k --embed 4k --set tensor=2x --set alu=1.5x\n"
        "  ordo model kernel --kernel gemm --m 8k --n 12k --k 4k\n"
        "  ordo model grid --figure 5\n"
        "  ordo model constants --machine h200\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status))
        status = cli_usage("expected a part: block, what-if, kernel, grid, report, overlap, "
                           "validate or constants");
    return status;
}
